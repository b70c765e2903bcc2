package dataplane

import (
	"encoding/binary"

	"pktdirector/conntrack"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// TunnelReader is a Forwarder that puts packets into others and can find them
// there again.
type TunnelReader interface {
	// Inner returns where in the payload of an outer packet of the given
	// protocol the inner packet begins, and what it is. The payload may be cut
	// short anywhere, as an ICMP error quotes it.
	Inner(proto packet.Proto, payload []byte) (skip int, kind packet.EtherType, ok bool)
}

// tunnelError takes an ICMP error about a tunnel packet of the director's, which
// quotes the outer header. Whoever sent the inner packet cannot do anything with
// that, so it is told the same about its own packet, by the VIP (RFC 2003
// section 4). A path MTU is remembered: the next packet that is too big is
// answered here.
func (w *Worker) tunnelError(p *packet.Packet, outer *packet.Quote) Verdict {
	tunnel, ok := w.d.forwarders[lvs.Tunnel].(TunnelReader)
	if !ok {
		return NotOurs
	}
	skip, kind, ok := tunnel.Inner(outer.Flow.Proto, p.Buf[outer.L4:outer.End])
	if !ok {
		return NotOurs
	}
	far := outer.Flow.Dst
	inner, quoted := packet.ParseQuote(p.Buf[:outer.End], outer.L4+skip, kind)
	known := quoted && w.tunnelled(&inner, far)
	switch {
	case !known && !w.tunnelsTo(far):
		return NotOurs // perhaps a tunnel of the host's own
	case !p.ICMPChecksumOK():
		return BadChecksum
	}
	h, ok := w.nextHop(far, p)
	if !ok {
		return NoRoute
	}
	mtu := w.d.paths.limit(far, h.mtu, w.now)
	v6 := p.EtherType == packet.EtherIPv6
	if said, tooBig := pathMTUOf(p.Buf[p.L4:], v6); tooBig {
		w.d.paths.learn(far, said, mtu, w.now)
	}
	if known {
		w.tellTunnelled(p, &inner, mtu)
	}
	return TunnelError
}

// tunnelled finds the connection whose request q was tunnelled to a real server,
// and copies it to w.conn.
func (w *Worker) tunnelled(q *packet.Quote, to packet.Addr) bool {
	slot := w.d.table.Lock(q.Flow.Proto, q.Flow.Src, q.Flow.SrcPort)
	defer slot.Unlock()
	c := slot.Request(&q.Flow)
	if c == nil || c.Method != lvs.Tunnel || c.Dest != to {
		return false
	}
	w.conn = *c
	return true
}

// tunnelsTo reports whether a real server is reached by a tunnel.
func (w *Worker) tunnelsTo(rip packet.Addr) bool {
	for _, dest := range w.d.dests.Load().all {
		if dest.Server.RIP == rip && dest.Method() == lvs.Tunnel && dest.Available() {
			return true
		}
	}
	return false
}

// pathMTUOf returns the MTU that an ICMP error speaks of (RFC 1191 section 4,
// RFC 4443 section 3.2).
func pathMTUOf(icmp []byte, v6 bool) (mtu int, ok bool) {
	switch {
	case v6 && icmp[0] == icmp6TooBig:
		return int(min(binary.BigEndian.Uint32(icmp[4:]), 1<<16)), true
	case !v6 && icmp[0] == icmpUnreachable && icmp[1] == icmpFragNeeded:
		return int(binary.BigEndian.Uint16(icmp[6:])), true
	}
	return 0, false
}

// tellTunnelled tells the client of w.conn what befell the tunnel packet around
// its own. mtu is what held for the tunnel until now: as the kernel does it, the
// first error speaks of that, and the answer to the next packet that does not
// pass of what the router said.
func (w *Worker) tellTunnelled(p *packet.Packet, inner *packet.Quote, mtu int) {
	kind, code, ok := innerError(p.Buf[p.L4], p.Buf[p.L4+1], p.EtherType, inner.Kind)
	if !ok {
		return
	}
	// From here on p is the quoted packet.
	p.EtherType, p.L3, p.End, p.Flow = inner.Kind, inner.L3, inner.End, inner.Flow
	tooBig := kind == icmpUnreachable && code == icmpFragNeeded
	if inner.Kind == packet.EtherIPv6 {
		tooBig = kind == icmp6TooBig
	}
	if tooBig {
		if inner.DF { // else the client does not want to know
			w.tooBig(p, &w.conn, conntrack.Request, mtu-w.d.forwarders[lvs.Tunnel].Overhead(&w.conn))
		}
		return
	}
	w.icmpError(p, w.conn.Virtual, w.conn.Client, kind, code, kind, code, 0)
}

// innerError translates an error about a tunnel packet into one about the packet
// inside. Within one IP version it stays what it is, except that a header field
// of the outer packet is none of the inner one's (RFC 2473 section 8.2); between
// the two it becomes what comes closest (RFC 7915 sections 4.2 and 5.2).
func innerError(kind, code byte, outer, inner packet.EtherType) (byte, byte, bool) {
	switch {
	case outer == inner && outer == packet.EtherIPv4:
		return kind, code, true
	case outer == inner:
		switch kind {
		case icmp6Unreachable, icmp6TooBig, icmp6Exceeded:
			return kind, code, true
		case icmp6Parameter:
			return icmp6Unreachable, icmp6Address, true
		}
	case outer == packet.EtherIPv4:
		switch {
		case kind == icmpUnreachable && code == icmpFragNeeded:
			return icmp6TooBig, 0, true
		case kind == icmpUnreachable:
			return icmp6Unreachable, icmp6Address, true
		case kind == icmpExceeded:
			return icmp6Exceeded, code, true
		}
	default:
		switch kind {
		case icmp6TooBig:
			return icmpUnreachable, icmpFragNeeded, true
		case icmp6Unreachable, icmp6Parameter:
			return icmpUnreachable, icmpHost, true
		case icmp6Exceeded:
			return icmpExceeded, code, true
		}
	}
	return 0, 0, false
}
