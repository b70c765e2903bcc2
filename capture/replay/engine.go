package replay

import (
	"encoding/binary"
	"fmt"
	"time"

	"pktdirector/capture"
	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// Options of an Engine.
type Options struct {
	Links []Link
	// Sent reports whether the director of the capture sent a frame from this MAC;
	// nil: it sent none.
	Sent func(packet.MAC) bool
	// MAC gives the MAC of a real server, zero where it is not known; nil: none is.
	MAC func(packet.Addr) packet.MAC
	// DIP gives the director's address that tunnels to a real server begin at, where a
	// link has no addresses; nil, or zero: made up.
	DIP func(server packet.Addr) packet.Addr
	// ServersSeen: replies of real servers were captured, so that those which clients
	// got are not played.
	ServersSeen bool
	// Left is told what leaves the director; nil: nobody is. It keeps nothing.
	Left func(p *packet.Packet, frame []byte, at int64)
	// Decided is told each scheduling decision with the packet that it was for.
	Decided func(d *dataplane.Decision, rec *capture.Record)
}

// Engine plays a capture's packets through a director, which must keep decisions
// (dataplane.Options) and have its rules already.
type Engine struct {
	o        Options
	director *dataplane.Director
	worker   *dataplane.Worker
	links    []Link
	servers  map[packet.Addr]int // their links
	marked   bool                // firewall marks may lead anywhere
	vips     map[packet.Addr]bool
	masq     map[lvs.ServerKey]bool // masqueraded servers
	picked   map[end]lvs.ServerKey  // of masqueraded connections, by the client's end
	began    int64
	now      time.Duration
	buf      []byte
	out      []byte
	seg      packet.Segmenter
	p        packet.Packet
	batch    [1]*packet.Packet

	// Played counts the packets that were played, Padded those of them that were cut
	// by the snaplen, and Other those that were left out.
	Played, Padded, Other uint64
}

// end is a client's end.
type end struct {
	addr  packet.Addr
	port  uint16
	proto packet.Proto
}

// maxPicked bounds the connections whose servers are remembered for replies.
const maxPicked = 1 << 18

// New returns an engine at the capture's beginning.
func New(d *dataplane.Director, rules lvs.Ruleset, o Options) (*Engine, error) {
	if len(o.Links) == 0 {
		return nil, fmt.Errorf("links: none: a director needs one")
	}
	if o.Sent == nil {
		o.Sent = func(packet.MAC) bool { return false }
	}
	if o.MAC == nil {
		o.MAC = func(packet.Addr) packet.MAC { return packet.MAC{} }
	}
	e := &Engine{o: o, director: d, links: o.Links, vips: map[packet.Addr]bool{}, masq: map[lvs.ServerKey]bool{}, picked: map[end]lvs.ServerKey{}, began: -1}
	e.marked = len(rules.Marks) > 0
	if o.DIP == nil {
		o.DIP = func(packet.Addr) packet.Addr { return packet.Addr{} }
	}
	e.servers = connect(d, o.Links, &rules, o.MAC, o.DIP)
	for _, vip := range rules.VIPs() {
		e.vips[vip] = true
	}
	for _, s := range rules.Services {
		for _, rs := range s.Servers {
			if rs.Method == lvs.Masq {
				e.masq[rs.ServerKey] = true
			}
		}
	}
	e.worker = d.NewWorker()
	e.batch[0] = &e.p
	e.worker.Tick(0)
	return e, nil
}

// Now returns the engine's time: since the first packet.
func (e *Engine) Now() time.Duration { return e.now }

const (
	// tick is the longest step of time between packets.
	tick = time.Second
	// instant is how much time passes without a tick of the engine's: what ends then
	// ends with the packet that follows, too. Entries end to 4 ms.
	instant = 4 * time.Millisecond
)

// advance lets time pass.
func (e *Engine) advance(at int64) {
	if e.began < 0 {
		e.began = at
	}
	to := time.Duration(max(at-e.began, 0))
	// A capture may pause for weeks: the engine looks for nothing while it does but
	// entries that end, which it does by itself.
	const most = 64
	if to-e.now > most*tick {
		e.now = to - most*tick
	}
	if to/instant == e.now/instant {
		e.now = max(e.now, to)
		return
	}
	for e.now < to {
		e.now = min(e.now+tick, to)
		e.leave(e.worker.Tick(e.now), at)
	}
}

// Add plays the next packet of the capture.
func (e *Engine) Add(rec *capture.Record) {
	if rec.Direction == capture.Outgoing && !e.replayedReply(rec) || rec.Offset > len(rec.Data) {
		e.Other++
		return
	}
	if rec.EtherType != packet.EtherIPv4 && rec.EtherType != packet.EtherIPv6 {
		e.Other++
		return
	}
	e.load(rec)
	if packet.Parse(&e.p) != packet.ParseOK && e.p.L4 == e.p.Start || !e.wanted(rec) {
		e.Other++
		return
	}
	e.advance(rec.Time)
	e.Played++
	out := e.worker.Process(e.batch[:], e.now)
	for i := range e.worker.Decisions {
		d := &e.worker.Decisions[i]
		if d.Pick != nil && d.Pick.Method() == lvs.Masq && len(e.picked) < maxPicked {
			e.picked[end{d.Flow.Src, d.Flow.SrcPort, d.Flow.Proto}] = d.Pick.Server
		}
		if e.o.Decided != nil {
			e.o.Decided(d, rec)
		}
	}
	e.leave(out, rec.Time)
}

// Finish lets the time that the capture lasted pass.
func (e *Engine) Finish(at int64) { e.advance(at) }

// replayedReply reports whether a frame that the captured director sent may stand
// for a server's reply.
func (e *Engine) replayedReply(*capture.Record) bool { return !e.o.ServersSeen }

// wanted decides whether a parsed packet is one that comes to a director, and
// turns replies into those of the server that was picked.
func (e *Engine) wanted(rec *capture.Record) bool {
	f := &e.p.Flow
	sent := rec.HasSrc && e.o.Sent(rec.SrcMAC) || rec.Direction == capture.Outgoing
	client := end{f.Dst, f.DstPort, f.Proto}
	switch {
	case e.vips[f.Dst]:
		e.p.Link = 0
		return !sent
	case e.vips[f.Src] && !e.o.ServersSeen:
		if pick, ok := e.picked[client]; ok {
			return e.asReply(pick)
		}
	case !sent && e.o.ServersSeen && e.masq[lvs.ServerKey{RIP: f.Src, Port: f.SrcPort}]:
		if pick, ok := e.picked[client]; ok {
			return e.asReply(pick)
		}
	case e.marked && !sent:
		_, server := e.servers[f.Src]
		return !server
	}
	return false
}

// asReply makes the packet one of the server's.
func (e *Engine) asReply(s lvs.ServerKey) bool {
	p := &e.p
	if p.Flow.Src.Is4() != s.RIP.Is4() || p.Frag != packet.Whole || p.ShortTransport() {
		return false
	}
	b := p.Buf
	if s.RIP.Is4() {
		s.RIP.Put4(b[p.L3+12:])
		packet.PutIPv4Checksum(b[p.L3:p.L4])
	} else {
		s.RIP.Put16(b[p.L3+8:])
	}
	binary.BigEndian.PutUint16(b[p.L4:], s.Port)
	p.Link = e.servers[s.RIP]
	p.Flow.Src, p.Flow.SrcPort = s.RIP, s.Port
	e.sum()
	return true
}

// load copies a record's packet, and pads what the snaplen cut off.
func (e *Engine) load(rec *capture.Record) {
	const most = 65535
	b := rec.Data[rec.Offset:]
	n := min(max(rec.OrigLen-rec.Offset, len(b)), most)
	b = b[:min(len(b), n)]
	if need := packet.Headroom + n; cap(e.buf) < need {
		e.buf = make([]byte, need)
	}
	e.buf = e.buf[:packet.Headroom+n]
	clear(e.buf[packet.Headroom+copy(e.buf[packet.Headroom:], b):])
	e.p.Reset(e.buf, packet.Headroom, n)
	e.p.EtherType, e.p.SrcMAC = rec.EtherType, rec.SrcMAC
	if tags := rec.Tags(); len(tags) > 0 {
		e.p.Tagged, e.p.VLAN, e.p.VLANType = true, tags[0].TCI, tags[0].Type
	}
	if packet.Parse(&e.p) != packet.ParseOK {
		return
	}
	padded := n > len(b)
	if padded {
		e.Padded++
	}
	if e.p.ShortTransport() || e.p.Frag != packet.Whole {
		return
	}
	if e.p.Flow.Proto == packet.TCP && e.p.Len() > mtu && e.p.HeaderLen() < mtu && e.p.Start+e.p.HeaderLen() < e.p.End {
		e.p.GSO, e.p.GSOSize = packet.GSOTCPv4, uint16(mtu-e.p.HeaderLen())
		if e.p.EtherType == packet.EtherIPv6 {
			e.p.GSO = packet.GSOTCPv6
		}
	}
	// Checksums that offloads left unfinished would look wrong to servers.
	e.sum()
}

// sum finishes the transport checksum of the packet.
func (e *Engine) sum() {
	p := &e.p
	field := p.ChecksumField()
	if field == nil || p.Frag != packet.Whole || p.Flow.Proto == packet.UDP && field[0] == 0 && field[1] == 0 {
		return
	}
	field[0], field[1] = 0, 0
	b := p.Buf[p.L4:p.End]
	sum := ^packet.Fold(packet.Sum(b, packet.PseudoSum(p.Flow.Src, p.Flow.Dst, p.Flow.Proto, len(b))))
	if sum == 0 && p.Flow.Proto == packet.UDP {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(field, sum)
}

// leave hands what leaves the director on, as frames; ARP and neighbour discovery
// are taken for granted.
func (e *Engine) leave(out []*packet.Packet, at int64) {
	for _, p := range out {
		p.Sent = true
		if e.o.Left == nil || p.EtherType == packet.EtherARP {
			continue
		}
		e.out = e.out[:0]
		if !e.links[p.Link].Layer3 {
			mac := linkMAC(p.Link)
			e.out = append(append(e.out, p.DstMAC[:]...), mac[:]...)
			if p.Tagged {
				kind := p.VLANType
				if kind == 0 {
					kind = packet.EtherVLAN
				}
				e.out = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(e.out, uint16(kind)), p.VLAN)
			}
			e.out = binary.BigEndian.AppendUint16(e.out, uint16(p.EtherType))
		}
		if p.GSO != packet.GSONone && p.L3 > p.Start && e.seg.Reset(p) == nil {
			e.cut(p, at)
			continue
		}
		e.o.Left(p, append(e.out, p.Bytes()...), at)
	}
}

// cut hands on what a super-frame stands for: no device cuts one behind the header
// of a tunnel.
func (e *Engine) cut(p *packet.Packet, at int64) {
	var header [packet.MaxSegmentHeader]byte
	for {
		h, payload := e.seg.Next(header[:])
		if h == nil {
			return
		}
		e.o.Left(p, append(append(e.out, h...), payload...), at)
	}
}
