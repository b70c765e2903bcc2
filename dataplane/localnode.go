package dataplane

import (
	"pktdirector/conntrack"
	"pktdirector/packet"
)

// localServer reports whether a real server is the director's own host: one of
// its addresses, or the loopback address, which stands for it whatever the
// method.
func (w *Worker) localServer(a packet.Addr) bool {
	return a.Netip().IsLoopback() || w.d.host.Load().owns(a)
}

// localNode is the way of a request whose real server is the director's own
// host, which the kernel hands to its own sockets. A host that was described as
// having no listeners answers here, as the VIP; any other is left the packet.
func (w *Worker) localNode(p *packet.Packet, c *conntrack.Conn) Verdict {
	if !w.local(c.Virtual) || isICMP(p) || p.ShortTransport() {
		return LocalNode
	}
	switch p.Flow.Proto {
	case packet.TCP:
		if p.TCPFlags&packet.RST == 0 {
			w.reset(p)
			w.localReset(c)
		}
	case packet.SCTP:
		w.refuseProtocol(p)
	default:
		w.refuse(p)
	}
	return LocalNode
}

// localReset moves a connection on for the reset that the host answered with.
func (w *Worker) localReset(c *conntrack.Conn) {
	f := requestFlow(c)
	slot := w.d.table.Lock(f.Proto, f.Src, f.SrcPort)
	defer slot.Unlock()
	entry := slot.Request(&f)
	if entry == nil {
		return
	}
	// A reply was seen, so replies pass.
	entry.Flags &^= conntrack.NoOutput
	dest := w.d.dests.Load().all[entry.DestID]
	if slot.Step(entry, conntrack.Reply, packet.RST|packet.ACK, w.now) {
		dest.Move(entry.Active())
	}
	size := uint64(packet.IPv4HeaderLen + packet.TCPHeaderLen)
	if !f.Dst.Is4() {
		size = packet.IPv6HeaderLen + packet.TCPHeaderLen
	}
	dest.Stats.Out(1, size)
	if svc := w.d.rules.Load().services[dest.Service]; svc != nil {
		svc.stats.Out(1, size)
	}
}

// markLocal notes of a new connection that its real server is the director's
// own host.
func (w *Worker) markLocal(c *conntrack.Conn) {
	if w.localServer(c.Dest) {
		c.Flags |= conntrack.Local
	}
}
