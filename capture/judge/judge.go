package judge

import (
	"pktdirector/capture"
	"pktdirector/packet"
)

// DefaultConnections is how many connections a Judge keeps if not told
// otherwise: some 150 MB.
const DefaultConnections = 131072

// Options say what a Judge holds.
type Options struct {
	Connections int // kept at most; 0: DefaultConnections
	Files       []string
	// Scheduler is the one that picks should be explained by; empty: any.
	Scheduler string
}

// Judge takes the packets of a capture and judges them. It is not safe for
// concurrent use.
type Judge struct {
	opts    Options
	table   *table
	neigh   *neighbours
	packets uint64
	other   uint64 // packets that are neither IP nor ARP, or not enough of them
	first   int64
	last    int64
	cooked  bool // some link layer does not say where packets were sent
	files   map[int]bool
	seg     segment
}

// New returns a Judge that has seen nothing.
func New(o Options) *Judge {
	if o.Connections <= 0 {
		o.Connections = DefaultConnections
	}
	return &Judge{opts: o, table: newTable(o.Connections), neigh: newNeighbours(), files: map[int]bool{}}
}

// Packets is how many packets were added.
func (j *Judge) Packets() uint64 { return j.packets }

// Add takes the next packet. Packets come in order of time, as far as the clocks
// of several files allow. It keeps nothing of rec.Data.
func (j *Judge) Add(rec *capture.Record) {
	if j.packets == 0 {
		j.first = rec.Time
	}
	j.packets++
	j.last = max(j.last, rec.Time)
	if rec.Offset > len(rec.Data) {
		j.other++
		return
	}
	b, s := rec.Data[rec.Offset:], &j.seg
	switch rec.EtherType {
	case packet.EtherARP:
		j.neigh.arp(b, rec)
		return
	case packet.EtherIPv4, packet.EtherIPv6:
	default:
		j.other++
		return
	}
	if !s.read(b, max(rec.OrigLen-rec.Offset, len(b))) {
		j.other++
		return
	}
	if s.short {
		j.other++
	}
	j.neigh.packet(s, rec)
	switch {
	case s.icmp != nil:
		j.icmp(s, rec)
	case s.ports && !unlikely(s.flow.Dst) && !unlikely(s.flow.Src):
		if !rec.HasDst {
			j.cooked = true
		}
		j.table.add(s, rec)
	}
}

// unlikely reports whether an address is none that is balanced: a group or a
// broadcast.
func unlikely(a packet.Addr) bool {
	if a.Is4() {
		v := a.V4()
		return v>>28 >= 14 || v>>24 == 0 || v>>24 == 127
	}
	hi, _ := a.Words()
	return hi>>56 == 0xff || !a.IsValid() || hi == 0
}

// icmp files neighbour discovery, and errors about connections.
func (j *Judge) icmp(s *segment, rec *capture.Record) {
	if s.flow.Proto == packet.ICMPv6 {
		j.neigh.neighbourDiscovery(s, rec)
	}
	if len(s.icmp) < packet.ICMPHeaderLen {
		return
	}
	e := icmpError{ref: Ref{rec.File, rec.Number}, at: rec.Time, from: s.flow.Src, kind: s.icmp[0], code: s.icmp[1],
		v6: s.flow.Proto == packet.ICMPv6, count: 1}
	const unreachable, exceeded, parameter, lastV6 = 3, 11, 12, 4
	if e.v6 && (e.kind == 0 || e.kind > lastV6) || !e.v6 && e.kind != unreachable && e.kind != exceeded && e.kind != parameter {
		return
	}
	kind := packet.EtherIPv4
	if e.v6 {
		kind = packet.EtherIPv6
	}
	if e.fragNeeded() {
		e.mtu = int(s.icmp[6])<<8 | int(s.icmp[7])
		if e.v6 {
			e.mtu |= int(s.icmp[4])<<24 | int(s.icmp[5])<<16
		}
	}
	q, ok := packet.ParseQuote(s.icmp, packet.ICMPHeaderLen, kind)
	if inner, tunnel := quotedInner(s.icmp, &q, ok); tunnel {
		q, ok = inner, inner.L4 > 0
	}
	if !ok {
		return
	}
	j.table.icmp(&e, q.Flow)
}

// quotedInner finds the packet in a quoted tunnel packet, as far as it is quoted.
func quotedInner(b []byte, q *packet.Quote, ok bool) (packet.Quote, bool) {
	at := q.L4
	switch {
	case q.L4 == 0:
		return packet.Quote{}, false
	case q.Flow.Proto == packet.IPIP || q.Flow.Proto == packet.IPv6P:
	case q.Flow.Proto == packet.GRE:
		at += packet.GREHeaderLen
		if q.L4 < len(b) && b[q.L4]&packet.GREChecksum != 0 {
			at += packet.GREChecksumLen
		}
	case q.Flow.Proto == packet.UDP && ok && q.L4+packet.UDPHeaderLen+packet.GUEHeaderLen < len(b):
		g := b[q.L4+packet.UDPHeaderLen:]
		at += packet.UDPHeaderLen + packet.GUEHeaderLen + int(g[0]&0x1f)*4
		if g[0]>>5 != 0 || packet.Proto(g[1]) != packet.IPIP && packet.Proto(g[1]) != packet.IPv6P {
			return packet.Quote{}, false
		}
	default:
		return packet.Quote{}, false
	}
	if at >= len(b) {
		return packet.Quote{}, true
	}
	kind := packet.EtherIPv4
	if b[at]>>4 == 6 {
		kind = packet.EtherIPv6
	}
	inner, parsed := packet.ParseQuote(b, at, kind)
	if !parsed {
		inner.L4 = 0
	}
	return inner, true
}

// icmp files an error about a packet of flow f.
func (t *table) icmp(e *icmpError, f packet.Flow) {
	for _, reply := range []bool{false, true} {
		from, to := end{f.Src, f.SrcPort}, end{f.Dst, f.DstPort}
		if reply {
			from, to = to, from
		}
		for c := t.byClient[client{from, f.Proto}]; c != nil; c = c.older {
			for i := range c.paths {
				if c.paths[i].remote == to {
					e.remote, e.ofReply = to, reply
					c.complain(e)
					return
				}
			}
		}
	}
}

func (c *conn) complain(e *icmpError) {
	for i := range c.icmp {
		if o := &c.icmp[i]; o.from == e.from && o.kind == e.kind && o.code == e.code && o.remote == e.remote {
			o.count++
			return
		}
	}
	if len(c.icmp) < maxICMP {
		c.icmp = append(c.icmp, *e)
	}
}
