package dataplane

import (
	"slices"

	"pktdirector/conntrack"
	"pktdirector/packet"
)

// localServer reports whether a real server is the director's own host: one of
// its addresses, or the loopback address, which stands for it whatever the
// method.
func (w *Worker) localServer(a packet.Addr) bool {
	return a.Netip().IsLoopback() || w.d.host.Load().owns(a)
}

// hostLink returns the link by which the host gets packets for its own sockets, or
// -1.
func (w *Worker) hostLink() int {
	return slices.IndexFunc(*w.d.links.Load(), func(l LinkInfo) bool { return l.Host })
}

// localNode is the way of a request whose real server is the director's own
// host, which the kernel hands to its own sockets. Where a link leads there, the
// host gets the packet as it came, for the VIP, and answers the client itself. A host that was described as
// having no listeners answers here, as the VIP; any other is left the packet.
func (w *Worker) localNode(p *packet.Packet, c *conntrack.Conn) Verdict {
	if at := w.hostLink(); at >= 0 {
		if c.DestPort != c.VirtualPort {
			return LocalNode // nobody would translate the answers
		}
		return w.emit(p, hop{link: at, layer3: true, mtu: (*w.d.links.Load())[at].MTU}, Delivered)
	}
	if !w.d.isLocal(c.Virtual) || isICMP(p) || p.ShortTransport() {
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
	dest, was := w.d.dests.Load().all[entry.DestID], entry.State
	if slot.Step(entry, conntrack.Reply, packet.RST|packet.ACK, w.now) {
		dest.Move(entry.Active())
	}
	if entry.State != was {
		w.observeState(entry, dest, was, conntrack.Reply)
	}
	size := uint64(packet.IPv4HeaderLen + packet.TCPHeaderLen)
	if !f.Dst.Is4() {
		size = packet.IPv6HeaderLen + packet.TCPHeaderLen
	}
	entry.Count(conntrack.Reply, 1, size)
	w.tally.count(dest, conntrack.Reply, 1, size)
}

// markLocal notes of a new connection that its real server is the director's
// own host.
func (w *Worker) markLocal(c *conntrack.Conn) {
	if w.localServer(c.Dest) {
		c.Flags |= conntrack.Local
		if w.hostLink() >= 0 {
			c.Flags |= conntrack.NoOutput // the host answers by itself
		}
	}
}
