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
	dir, counted, v := w.connectionOf(p, &q, rules)
	if v != pending {
		return v
	}
	if dir == conntrack.Request && !w.d.dests.Load().all[w.conn.DestID].Available() {
		return DestinationGone
	}
	if w.conn.Flags&conntrack.TOA != 0 && dir == conntrack.Reply {
		w.learnPathMTU(p)
	}
	w.countError(p, dir, counted)
	return w.forward(p, &w.conn, dir)
}

// countError adds an error to the statistics of the connection's real server, as the
// kernel does: the connection itself counts its own packets only. counted is how many
// of its bytes are there already, 0: the packet is not, either. An error to a server
// that passes no router is none.
func (w *Worker) countError(p *packet.Packet, dir conntrack.Direction, counted int) {
	dest := w.d.dests.Load().all[w.conn.DestID]
	if !dest.Available() || dir == conntrack.Reply && !w.replyPasses(p, &w.conn) {
		return
	}
	packets := uint64(1)
	if counted > 0 {
		packets = 0
	}
	w.tally.count(dest, dir, packets, uint64(p.Len()-counted))
}

// connectionOf finds the connection that an ICMP error is about and copies it to
// w.conn. With schedule_icmp an error from the client side about an unknown one
// starts it, and so many of its bytes are counted.
func (w *Worker) connectionOf(p *packet.Packet, q *packet.Quote, rules *rules) (dir conntrack.Direction, counted int, v Verdict) {
	f := q.Flow.Reverse()
	if counted, v = w.requestOf(p, q, &f, rules); v != NotOurs {
		return conntrack.Request, counted, v
	}
	slot := w.lockReply(&f)
	defer slot.Unlock()
	c := slot.Reply(&f)
	switch {
	case c == nil:
		return conntrack.Reply, 0, NotOurs
	case !p.ICMPChecksumOK():
		return conntrack.Reply, 0, BadChecksum
	}
	w.conn = *c
	return conntrack.Reply, 0, pending
}

// requestOf is connectionOf for errors about replies.
func (w *Worker) requestOf(p *packet.Packet, q *packet.Quote, f *packet.Flow, rules *rules) (counted int, v Verdict) {
	slot := w.d.table.Lock(f.Proto, f.Src, f.SrcPort)
	defer slot.Unlock()
	c := slot.Request(f)
	var svc *service
	if c == nil && w.d.tunables.Load().ScheduleICMP != 0 {
		svc = rules.match(&packet.Packet{Flow: *f}, rules.mark(p))
	}
	switch {
	case c == nil && svc == nil:
		return 0, NotOurs
	case !p.ICMPChecksumOK():
		return 0, BadChecksum
	case c == nil:
		// What starts the connection is the quoted packet, turned round and cut
		// behind its ports: it says nothing about the connection's state.
		about := *p
		about.L3, about.L4, about.End, about.Flow = q.L3, q.L4, q.L4+4, *f
		return about.Len(), w.start(slot, svc, rules.mark(p), &about)
	}
	w.conn = *c
	return 0, pending
}
