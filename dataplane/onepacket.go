package dataplane

import (
	"pktdirector/conntrack"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// onePacketReply is a packet that no connection claims. A datagram that comes
// from where a masqueraded server of a one-packet service answers from is taken
// for an answer, which clients expect from the VIP: such a service leaves no
// entries by which answers could be found. What the server itself began from that
// port cannot be told from them. What is for the host stays the host's.
//
// The kernel translates no such packet: docs/limits.md.
func (w *Worker) onePacketReply(p *packet.Packet) Verdict {
	f := &p.Flow
	if f.Proto != packet.UDP || p.ShortTransport() || w.d.host.Load().owns(f.Dst) {
		return NotOurs
	}
	dest := w.d.onePacketServer(f)
	if dest == nil {
		return NotOurs
	}
	c := conntrack.Conn{
		Proto: f.Proto, Client: f.Dst, ClientPort: f.DstPort, Virtual: dest.Service.VIP, VirtualPort: dest.Service.Port,
		Dest: f.Src, DestPort: f.SrcPort, Method: lvs.Masq, DestID: dest.ID,
	}
	if v := w.replyOptions(p, &c); v != pending {
		return v
	}
	if w.replyPasses(p, &c) {
		n, bytes := onWire(p)
		w.tally.count(dest, conntrack.Reply, n, bytes)
	}
	w.conn = c
	return pending
}

// onePacketServer returns the masqueraded server of a one-packet service that
// answers from f's source. Of two services with one and the same server it is the
// first by VIP and port. A service by firewall mark has no VIP that answers could
// come from.
func (d *Director) onePacketServer(f *packet.Flow) (first *lvs.Destination) {
	services := d.rules.Load().services
	d.servers.mu.RLock()
	defer d.servers.mu.RUnlock()
	for _, port := range [2]uint16{f.SrcPort, 0} {
		for _, dest := range d.servers.dests[endpoint{f.Proto, f.Src, port}] {
			svc := services[dest.Service]
			if svc == nil || dest.Method() != lvs.Masq || port == 0 && svc.key.Port != f.SrcPort {
				continue // a server of port 0 keeps the packet's
			}
			if (first == nil || compareKeys(dest.Service, first.Service) < 0) && svc.onePacket.Load() {
				first = dest
			}
		}
	}
	return first
}

// configure replaces a service's configuration. s.mu is held, or nobody has s yet.
func (s *service) configure(c lvs.VirtualService) {
	s.config = c
	s.onePacket.Store(c.OnePacket)
}
