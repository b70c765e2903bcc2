package judge

import (
	"encoding/binary"
	"slices"
	"time"

	"pktdirector/capture"
	"pktdirector/packet"
)

// neighbours is what ARP and neighbour discovery said: which MAC claims which
// address, and who asked for whom.
type neighbours struct {
	claims map[packet.Addr][]claim
	asks   map[ask]*asked
	open   map[packet.Addr][]*asked // whose traffic is waited for, by the target
	byMAC  map[packet.MAC][]packet.Addr
}

// claim is a MAC that said an address is its own.
type claim struct {
	mac         packet.MAC
	ref         Ref
	n           uint32
	replied     bool  // in answer, not only as the sender of a question
	first, last int64 // ns
}

// overlaps reports whether two machines claim an address at the same time, and not
// one after the other, as when a standby takes over.
func (c *claim) overlaps(o *claim) bool {
	return c.first <= o.last+handover && o.first <= c.last+handover
}

// ask names who asks for whom.
type ask struct {
	from   packet.MAC
	target packet.Addr
}

// asked counts questions and what came of them.
type asked struct {
	ask
	sender   packet.Addr // who asked; zero: an address probe
	n        uint32      // questions
	answered uint32
	lost     uint32 // answered, but the packets that the answer was wanted for never came
	streak   uint32 // questions since the last answer
	open     bool   // the latest was not answered yet
	waiting  bool   // for a packet to the target
	probe    bool   // the latest was asked without a packet that waits
	first    Ref
	last     Ref
	lastAt   int64
	firstAt  int64
	refs     []Ref // of questions that led nowhere, and their answers
	reply    Ref
	replyMAC packet.MAC
}

// Bounds of what is remembered about neighbours.
const (
	maxNeighbours = 16384
	maxClaims     = 4 // MACs of an address, and addresses of a MAC
	maxRefs       = 12
	// askPause is how far apart two questions are that are not one asked twice.
	askPause = 20 * int64(time.Millisecond)
	// handover is how much later than the last claim of one machine another one's
	// is no conflict any more.
	handover = int64(time.Second)
)

func newNeighbours() *neighbours {
	return &neighbours{claims: map[packet.Addr][]claim{}, asks: map[ask]*asked{}, open: map[packet.Addr][]*asked{}, byMAC: map[packet.MAC][]packet.Addr{}}
}

// arp reads an ARP packet (RFC 826) for IPv4 over Ethernet.
func (n *neighbours) arp(b []byte, rec *capture.Record) {
	const length, request, reply = 28, 1, 2
	if len(b) < length || binary.BigEndian.Uint32(b) != 1<<16|uint32(packet.EtherIPv4) || b[4] != 6 || b[5] != 4 {
		return
	}
	var mac packet.MAC
	copy(mac[:], b[8:])
	sender, target := packet.AddrFrom4(b[14:]), packet.AddrFrom4(b[24:])
	if sender.V4() == 0 {
		sender = packet.Addr{}
	}
	switch op := binary.BigEndian.Uint16(b[6:]); {
	case op == request && target != sender:
		n.claim(sender, mac, rec, false)
		n.question(mac, sender, target, rec)
	case op == request || op == reply:
		n.claim(sender, mac, rec, op == reply)
		if op == reply {
			var asker packet.MAC
			copy(asker[:], b[18:])
			n.answer(asker, sender, mac, rec)
		}
	}
}

// neighbourDiscovery reads a neighbour solicitation or advertisement (RFC 4861
// sections 4.3 and 4.4).
func (n *neighbours) neighbourDiscovery(s *segment, rec *capture.Record) {
	const solicitation, advertisement, length = 135, 136, 24
	b := s.icmp
	if len(b) < length || b[0] != solicitation && b[0] != advertisement || s.ttl != 255 {
		return
	}
	target := packet.AddrFrom16(b[8:])
	var mac packet.MAC
	for o := b[length:]; len(o) >= 8 && o[1] != 0 && len(o) >= int(o[1])*8; o = o[int(o[1])*8:] {
		if source, dest := byte(1), byte(2); o[0] == source && b[0] == solicitation || o[0] == dest && b[0] == advertisement {
			copy(mac[:], o[2:8])
		}
	}
	if mac.IsZero() && rec.HasSrc {
		mac = rec.SrcMAC
	}
	if b[0] == advertisement {
		n.claim(target, mac, rec, true)
		asker := rec.DstMAC
		if !rec.HasDst || asker.IsMulticast() {
			asker = packet.MAC{}
		}
		n.answer(asker, target, mac, rec)
		return
	}
	sender := s.flow.Src
	if sender == (packet.AddrFrom16(make([]byte, 16))) {
		return // duplicate address detection
	}
	n.claim(sender, mac, rec, false)
	n.question(mac, sender, target, rec)
}

func (n *neighbours) claim(a packet.Addr, mac packet.MAC, rec *capture.Record, replied bool) {
	if !a.IsValid() || mac.IsZero() || mac.IsMulticast() {
		return
	}
	list, known := n.claims[a]
	if !known && len(n.claims) >= maxNeighbours {
		return
	}
	i := slices.IndexFunc(list, func(c claim) bool { return c.mac == mac })
	switch {
	case i >= 0:
		list[i].n++
		list[i].first, list[i].last = min(list[i].first, rec.Time), max(list[i].last, rec.Time)
		if replied && !list[i].replied {
			list[i].replied, list[i].ref = true, Ref{rec.File, rec.Number}
		}
	case len(list) < maxClaims:
		n.claims[a] = append(list, claim{mac: mac, ref: Ref{rec.File, rec.Number}, n: 1, replied: replied, first: rec.Time, last: rec.Time})
		n.belongs(mac, a)
	}
}

// belongs notes that a MAC has an address.
func (n *neighbours) belongs(mac packet.MAC, a packet.Addr) {
	have, known := n.byMAC[mac]
	if (known || len(n.byMAC) < maxNeighbours) && len(have) < maxClaims && !slices.Contains(have, a) {
		n.byMAC[mac] = append(have, a)
	}
}

func (n *neighbours) question(from packet.MAC, sender, target packet.Addr, rec *capture.Record) {
	key := ask{from, target}
	q := n.asks[key]
	if q == nil {
		if len(n.asks) >= maxNeighbours {
			return
		}
		q = &asked{ask: key, sender: sender, first: Ref{rec.File, rec.Number}, firstAt: rec.Time}
		n.asks[key] = q
	} else if rec.Time-q.lastAt < askPause && q.open {
		return
	}
	n.lapse(q)
	q.n++
	q.streak++
	q.open = true
	// A question to one machine alone looks whether it is there still (RFC 4861 section
	// 7.3.3, RFC 1122 section 2.3.2.1), and one without an address whether another is
	// (RFC 5227): no packet waits for the answer.
	q.probe = rec.HasDst && !rec.DstMAC.IsMulticast() || rec.Kind == capture.ToUs || !sender.IsValid()
	q.last, q.lastAt = Ref{rec.File, rec.Number}, rec.Time
}

// lapse gives up waiting for what an answered question was asked for.
func (n *neighbours) lapse(q *asked) {
	if !q.waiting {
		return
	}
	q.lost++
	if len(q.refs) < maxRefs {
		q.refs = append(q.refs, q.last, q.reply)
	}
	n.done(q)
}

func (n *neighbours) done(q *asked) {
	q.waiting = false
	rest := slices.DeleteFunc(n.open[q.target], func(o *asked) bool { return o == q })
	if len(rest) == 0 {
		delete(n.open, q.target)
	} else {
		n.open[q.target] = rest
	}
}

// answer notes that a was answered for. A zero asker is whoever asked.
func (n *neighbours) answer(asker packet.MAC, a packet.Addr, mac packet.MAC, rec *capture.Record) {
	if asker.IsZero() {
		for k, q := range n.asks {
			if k.target == a && q.open {
				n.settle(q, mac, rec)
			}
		}
		return
	}
	if q := n.asks[ask{asker, a}]; q != nil {
		n.settle(q, mac, rec)
	}
}

func (n *neighbours) settle(q *asked, mac packet.MAC, rec *capture.Record) {
	if !q.open {
		return
	}
	q.open = false
	q.answered++
	q.streak = 0
	q.reply, q.replyMAC = Ref{rec.File, rec.Number}, mac
	if q.probe {
		return
	}
	if !q.waiting && len(n.open) < maxNeighbours {
		q.waiting = true
		n.open[q.target] = append(n.open[q.target], q)
	}
}

// packet notes that a packet went to an address that was asked for.
func (n *neighbours) packet(s *segment, rec *capture.Record) {
	if len(n.open) == 0 {
		return
	}
	target := s.flow.Dst
	if s.tunnel != notTunnelled {
		target = s.outerDst
	}
	list := n.open[target]
	for i := len(list) - 1; i >= 0; i-- {
		if !rec.HasSrc || list[i].from == rec.SrcMAC {
			n.done(list[i])
		}
	}
}

// owns reports whether a MAC was heard to claim an address.
func (n *neighbours) owns(mac packet.MAC, a packet.Addr) bool {
	return slices.Contains(n.byMAC[mac], a)
}
