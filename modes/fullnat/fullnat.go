// Package fullnat rewrites packets of connections whose both ends are replaced:
// the real server gets the director's address and a port of its pool for the
// client's, and answers there, whatever its gateway is.
package fullnat

import (
	"pktdirector/conntrack"
	"pktdirector/modes/nat"
	"pktdirector/packet"
)

// Both is the forwarder that replaces both ends.
type Both struct{}

// Overhead returns 0: the method adds no bytes. A TCP option about the client is
// the director's.
func (Both) Overhead(*conntrack.Conn) int { return 0 }

// Forward rewrites p, a parsed packet of c, in place. It reports false for a
// packet whose transport header is cut short. An ICMP packet is an error about c:
// the servers' side gets it from c's source address, the clients' side from the
// VIP.
func (Both) Forward(p *packet.Packet, c *conntrack.Conn, dir conntrack.Direction, _ packet.Addr) bool {
	if dir == conntrack.Request {
		return nat.Rewrite(p, nat.End{Addr: c.Source, Port: c.SourcePort}, nat.End{Addr: c.Dest, Port: c.DestPort})
	}
	return nat.Rewrite(p, nat.End{Addr: c.Virtual, Port: c.VirtualPort}, nat.End{Addr: c.Client, Port: c.ClientPort})
}
