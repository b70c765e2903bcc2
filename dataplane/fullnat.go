package dataplane

import (
	"fmt"
	"slices"

	"pktdirector/conntrack"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// fullNAT makes a new connection a FullNAT one: it gets a source towards its
// server. It reports false when none is left. A server on the director itself
// needs none: it is masqueraded.
func (w *Worker) fullNAT(slot conntrack.Slot, c *conntrack.Conn, src *lvs.Sources, p *packet.Packet) bool {
	if c.Flags&conntrack.Local != 0 {
		c.Method = lvs.Masq
		return true
	}
	if src.TOA && c.Proto == packet.TCP {
		c.Flags |= conntrack.TOA
	}
	return w.giveSource(slot, c, src, p)
}

// noteFirstAck keeps, of a server's SYN+ACK, the number by which its client will
// acknowledge it.
func noteFirstAck(p *packet.Packet, c *conntrack.Conn) {
	if p.TCPFlags&(packet.SYN|packet.ACK) == packet.SYN|packet.ACK && !p.ShortTransport() {
		c.SetFirstAck(tcpSeq(p) + 1)
	}
}

// tellClient tells, by a TCP option, a FullNAT server the client's address: in
// the segment that ends the handshake and in all before the server's first data
// are acknowledged, so that the loss of one does no harm. A segment without room
// for the option goes without; SYN+ACK makes clients leave room.
func (w *Worker) tellClient(p *packet.Packet, c *conntrack.Conn, dir conntrack.Direction, hop hop) {
	if p.Flow.Proto != packet.TCP || p.Frag != packet.Whole || p.Assembled != nil || p.ShortTransport() {
		return
	}
	size := packet.TOALen(c.Client)
	if dir == conntrack.Reply {
		w.clampMSS(p, c, dir, hop, size)
		return
	}
	first := p.TCPFlags&(packet.SYN|packet.RST|packet.ACK) == packet.ACK && tcpAck(p) == c.FirstAck()
	if first && p.WireLen()+size <= w.d.paths.limit(c.Dest, hop.mtu, w.now) {
		packet.PushTOA(p, c.Client, c.ClientPort)
	}
}

// learnPathMTU notes what a router on the way to the server of w.conn says of the
// path's MTU. The client is told, too, but not that its packets grow by an option.
func (w *Worker) learnPathMTU(p *packet.Packet) {
	said, tooBig := pathMTUOf(p.Buf[p.L4:], p.EtherType == packet.EtherIPv6)
	if h, ok := w.nextHop(w.conn.Dest, p); ok && tooBig {
		w.d.paths.learn(w.conn.Dest, said, w.d.paths.limit(w.conn.Dest, h.mtu, w.now), w.now)
	}
}

// refuseServerSources is refuseSources for a server that is added or edited.
func (d *Director) refuseServerSources(k lvs.ServiceKey, rs lvs.RealServer) error {
	more := lvs.VirtualService{ServiceKey: k, Servers: []lvs.RealServer{rs}}
	if svc := d.rules.Load().services[k]; svc != nil {
		more.Sources = svc.config.Sources
	}
	return d.refuseSources(more)
}

// refuseSources reports a source address that would be something else, too, with a
// service or server that is to be added. d.applying is held.
func (d *Director) refuseSources(more lvs.VirtualService) error {
	rules := d.rules.Load()
	own := slices.ContainsFunc(more.Servers, func(rs lvs.RealServer) bool { return rs.Method == lvs.FullNAT })
	if len(rules.sources) == 0 && len(more.Sources.Addrs) == 0 && !own {
		return nil // and restoring many servers takes no time that grows with their square
	}
	set := lvs.Ruleset{Marks: rules.marks, Services: []lvs.VirtualService{more}}
	for key, svc := range rules.services {
		s := lvs.VirtualService{ServiceKey: key, Sources: svc.config.Sources}
		for _, dest := range svc.dests {
			s.Servers = append(s.Servers, lvs.RealServer{ServerKey: dest.Server, Method: dest.Method()})
		}
		set.Services = append(set.Services, s)
	}
	if _, _, why := set.SourceFault(); why != "" {
		return fmt.Errorf("source address: %s", why)
	}
	return nil
}
