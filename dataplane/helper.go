package dataplane

import (
	"pktdirector/conntrack"
	"pktdirector/packet"
)

// helpable reports whether a packet of a control connection can be read: a whole
// TCP segment, and no error about one.
func helpable(p *packet.Packet) bool {
	return p.Flow.Proto == packet.TCP && p.Frag == packet.Whole && !p.ShortTransport()
}

// help reads a packet of a control connection of FTP before it is forwarded,
// and returns by how many bytes it will grow.
func (w *Worker) help(p *packet.Packet, c *conntrack.Conn, dir conntrack.Direction) int {
	if dir == conntrack.Request {
		w.ftpRequest(p, c)
		return 0
	}
	growth := w.ftpReply(p, c)
	if p.GSO != packet.GSONone {
		return 0 // each segment is cut to its size
	}
	return growth
}

// helpEnd rewrites the packet once it is clear that it can leave. It reports
// false when it would be too large.
func (w *Worker) helpEnd(p *packet.Packet, c *conntrack.Conn, dir conntrack.Direction) bool {
	return dir == conntrack.Request || w.ftpRewrite(p, c)
}
