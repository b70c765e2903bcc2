package dataplane

import (
	"pktdirector/conntrack"
	"pktdirector/packet"
)

// isICMPError reports whether an ICMP type is an error about a packet that the
// director may have forwarded. Of IPv4's only destination unreachable, source
// quench and time exceeded are related to connections, as the kernel does it;
// ICMPv6's errors are all types below 128 (RFC 4443 section 2.1).
func isICMPError(kind byte, v6 bool) bool {
	if v6 {
		return kind != 0 && kind < icmp6Echo
	}
	return kind == icmpUnreachable || kind == icmpSourceQuench || kind == icmpExceeded
}

// isICMP reports whether a packet is ICMP of either version.
func isICMP(p *packet.Packet) bool {
	return p.Flow.Proto == packet.ICMP || p.Flow.Proto == packet.ICMPv6
}

// related takes an ICMP error to the other end of the connection that it is
// about. What it quotes was sent by whom the error is for, so the connection is
// found by the answer to the quoted packet:
//
//	from        for     quotes          answer is
//	client side VIP     VIP -> client   a request (found in every mode)
//	server side client  client -> RIP   a reply (found in NAT only)
//
// The error changes neither state nor timers. In DR and TUN the servers' side
// writes to the client about the VIP itself, which needs no help. NotOurs means
// that no connection has to do with it.
func (w *Worker) related(p *packet.Packet) Verdict {
	rules := w.d.rules.Load()
	q, ok := p.Quote()
	if !ok || q.Flow.Src != p.Flow.Dst || len(rules.services) == 0 {
		return NotOurs
	}
	if w.d.host.Load().owns(p.Flow.Dst) {
		if v := w.tunnelError(p, &q); v != NotOurs {
			return v
		}
	}
	switch q.Flow.Proto {
	case packet.TCP, packet.UDP, packet.SCTP:
	default:
		return NotOurs
	}
	dir, v := w.connectionOf(p, &q, rules)
	if v != pending {
		return v
	}
	if dir == conntrack.Request && !w.d.dests.Load().all[w.conn.DestID].Available() {
		return DestinationGone
	}
	return w.forward(p, &w.conn, dir)
}

// connectionOf finds the connection that an ICMP error is about and copies it to
// w.conn. With schedule_icmp an error from the client side about an unknown one
// starts it.
func (w *Worker) connectionOf(p *packet.Packet, q *packet.Quote, rules *rules) (conntrack.Direction, Verdict) {
	f := q.Flow.Reverse()
	if v := w.requestOf(p, q, &f, rules); v != NotOurs {
		return conntrack.Request, v
	}
	slot := w.d.table.Lock(f.Proto, f.Dst, f.DstPort)
	defer slot.Unlock()
	c := slot.Reply(&f)
	switch {
	case c == nil:
		return conntrack.Reply, NotOurs
	case !p.ICMPChecksumOK():
		return conntrack.Reply, BadChecksum
	}
	w.conn = *c
	return conntrack.Reply, pending
}

// requestOf is connectionOf for errors about replies.
func (w *Worker) requestOf(p *packet.Packet, q *packet.Quote, f *packet.Flow, rules *rules) Verdict {
	slot := w.d.table.Lock(f.Proto, f.Src, f.SrcPort)
	defer slot.Unlock()
	c := slot.Request(f)
	var svc *service
	if c == nil && w.d.tunables.Load().ScheduleICMP != 0 {
		svc = rules.match(&packet.Packet{Flow: *f}, rules.mark(p))
	}
	switch {
	case c == nil && svc == nil:
		return NotOurs
	case !p.ICMPChecksumOK():
		return BadChecksum
	case c == nil:
		// What starts the connection is the quoted packet, turned round and cut
		// behind its ports: it says nothing about the connection's state.
		about := *p
		about.L3, about.L4, about.End, about.Flow = q.L3, q.L4, q.L4+4, *f
		return w.start(slot, svc, rules.mark(p), &about)
	}
	w.conn = *c
	return pending
}
