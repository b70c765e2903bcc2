// Package dr forwards by direct routing (ipvsadm -g): the frame goes to the
// real server's hardware address and the packet stays as it is. Choosing the
// next hop is the director's work, so there is nothing left to do here, which
// is what direct routing means.
package dr

import (
	"pktdirector/conntrack"
	"pktdirector/packet"
)

// Gateway is the direct-routing forwarder.
type Gateway struct{}

// Overhead returns 0: direct routing adds no bytes.
func (Gateway) Overhead(*conntrack.Conn) int { return 0 }

// Forward leaves p as it is and reports true.
func (Gateway) Forward(*packet.Packet, *conntrack.Conn, conntrack.Direction, packet.Addr) bool {
	return true
}
