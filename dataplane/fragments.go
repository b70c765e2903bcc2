package dataplane

import (
	"pktdirector/conntrack"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// fragment takes a piece of a packet: it waits until the others are there, and
// the packet that they make goes the way of all others. The pieces that waited
// count as reassembled, the last one has the packet's verdict.
func (w *Worker) fragment(p *packet.Packet) Verdict {
	res := w.d.fragments.Add(p, w.now)
	w.tally.settled(FragmentsFull, uint64(res.Evicted))
	switch res.Outcome {
	case packet.FragmentHeld:
		return pending
	case packet.FragmentDuplicate:
		return FragmentRepeated
	case packet.FragmentOverlaps:
		w.tally.settled(FragmentOverlap, uint64(res.Lost))
		return FragmentOverlap
	case packet.FragmentCompletes:
	default:
		w.tally.settled(FragmentBad, uint64(res.Lost))
		return FragmentBad
	}
	var q packet.Packet
	res.Datagram.Packet(&q)
	q.Link, q.SrcMAC, q.DstMAC, q.Class = p.Link, p.SrcMAC, p.DstMAC, p.Class
	var v Verdict
	if e := packet.Parse(&q); e != packet.ParseOK {
		v = parseVerdict(e)
	} else if q.Frag != packet.Whole {
		v = FragmentBad // a fragment within fragments, which no sender makes
	} else {
		v = w.whole(&q, &preview{})
	}
	others := Reassembled
	if v == NotOurs {
		others = NotOurs // the host has them all
	}
	w.tally.settled(others, uint64(res.Datagram.Count()-1))
	q.Verdict = uint8(v)
	return v
}

// expireFragments gives up packets whose pieces did not all come in time. When
// the first is there, the director tells the sender, as the kernel does for its
// own addresses.
func (w *Worker) expireFragments() {
	w.d.fragments.Expire(w.now, func(d *packet.Datagram) {
		w.tally.settled(FragmentTimeout, uint64(d.Count()))
		var p packet.Packet
		if d.First(&p) && w.d.serves(p.Flow.Dst) {
			w.icmpError(&p, p.Flow.Dst, p.Flow.Src, icmpExceeded, icmpReassembly, icmp6Exceeded, icmpReassembly, 0)
		}
	})
}

// icmpReassembly is the code of "time exceeded" for fragments, in both versions.
const icmpReassembly = 1

// exceeds reports whether p, which must reach its next hop in packets of limit
// bytes, is larger and must not be cut. What came in pieces whose largest said
// don't fragment counts as a whole in IPv4; in IPv6 only its pieces count. With
// pmtu_disc 0 packets to tunnels may always be cut.
func (w *Worker) exceeds(p *packet.Packet, m lvs.Method, limit int) bool {
	size := p.WireLen()
	switch {
	case p.EtherType == packet.EtherIPv6:
		if p.Assembled != nil && len(p.Assembled.Pieces) > 1 {
			size = p.Assembled.Largest
		}
		return size > limit
	case m == lvs.Tunnel && w.d.tunables.Load().PMTUDisc == 0:
		p.DF = false // nor does the outer header say so
		return false
	}
	return p.DF && size > limit
}

// replyExceeds reports whether a reply does not pass the MTU towards the client.
// The way is looked up only for packets that may be too large.
func (w *Worker) replyExceeds(p *packet.Packet, c *conntrack.Conn) bool {
	if p.WireLen() <= w.d.smallestMTU() {
		return false
	}
	h, ok := w.nextHop(c.Client, p)
	return ok && w.exceeds(p, c.Method, h.mtu)
}

// smallestMTU is the smallest of all links and routes.
func (d *Director) smallestMTU() int {
	mtu := d.host.Load().mtu
	for i, links := 0, *d.links.Load(); i < len(links); i++ {
		mtu = min(mtu, links[i].MTU)
	}
	return mtu
}

// emit sends p to the next hop: whole if it fits and came whole, else cut at the
// MTU or where it was cut before. A super-frame of packets that are too large is
// cut into these first.
func (w *Worker) emit(p *packet.Packet, h hop, done Verdict) Verdict {
	cut := p.Assembled != nil && len(p.Assembled.Pieces) > 1
	if !cut && p.WireLen() <= h.mtu {
		return w.send(p, h, done)
	}
	if p.GSO == packet.GSONone {
		return w.cut(p, h, done, true)
	}
	var seg packet.Segmenter
	if seg.Reset(p) != nil {
		return TooBig
	}
	var head [packet.MaxSegmentHeader]byte
	for n := seg.Len(); ; n-- {
		header, payload := seg.Next(head[:])
		if header == nil {
			return done // not reached: the last segment returns
		}
		q := ownPacket(p, header, payload)
		if v := w.cut(q, h, done, n == 1); n == 1 || v != pending {
			return v
		}
	}
}

// cut sends p in fragments. The last one carries the verdict of p, if p is the
// last of its kind; the others carry none.
func (w *Worker) cut(p *packet.Packet, h hop, done Verdict, last bool) Verdict {
	var f packet.Fragmenter
	if !packet.FinishChecksum(p) || f.Reset(p, h.mtu, w.fragmentID()) != nil {
		return TooBig
	}
	var head [packet.MaxSegmentHeader]byte
	for {
		header, payload := f.Next(head[:])
		if header == nil {
			return TooBig // an empty packet has no fragments
		}
		q, end := ownPacket(p, header, payload), f.Done()
		mine := pending
		if end && last {
			mine = done
			q.Verdict = uint8(done)
		}
		if v := w.send(q, h, mine); end || v != pending {
			return v
		}
	}
}

// answerInPieces sends a packet that answers p in p's own bytes: however that
// came, the answer is cut as the MTU has it.
func (w *Worker) answerInPieces(p *packet.Packet, h hop, done Verdict) Verdict {
	if p.Assembled != nil {
		p.Assembled, p.DF = nil, false
	}
	if p.DF && p.EtherType == packet.EtherIPv4 && p.Len() > h.mtu {
		p.DF = false
	}
	return w.emit(p, h, done)
}

// fragmentID returns an identification for IPv6 fragments.
func (w *Worker) fragmentID() uint32 {
	// Spread, so that one does not tell the next (RFC 7739).
	n := (uint64(w.d.ipID.Add(1)) ^ w.d.seed) * 0x9e3779b97f4a7c15
	return uint32(n >> 32)
}

// ownPacket returns a packet of its own memory with p's way out.
func ownPacket(p *packet.Packet, header, payload []byte) *packet.Packet {
	q := new(packet.Packet)
	n := len(header) + len(payload)
	q.Reset(make([]byte, packet.Headroom+n), packet.Headroom, n)
	copy(q.Bytes()[copy(q.Bytes(), header):], payload)
	q.EtherType, q.L3, q.L4 = p.EtherType, q.Start, q.Start
	q.Tagged, q.VLAN, q.VLANType = p.Tagged, p.VLAN, p.VLANType
	return q
}
