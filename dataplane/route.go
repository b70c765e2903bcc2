package dataplane

import (
	"net/netip"

	"pktdirector/packet"
)

// Route is one entry of the routing table that the director follows, taken
// from the host's main table or from the configuration. Routes out of
// interfaces that are no link of the director carry Link -1: a packet that
// would follow one is dropped as NoRoute instead of leaving by a wrong link.
type Route struct {
	Dst     netip.Prefix
	Gateway packet.Addr // zero: on-link
	Link    int         // index of the link, or -1
	Source  packet.Addr // preferred source address; zero: the link's first
	MTU     int         // path MTU set on the route; 0: the link's
	Metric  int
}

// LinkAddr is an address of the host on one of the director's links.
type LinkAddr struct {
	Link   int
	Prefix netip.Prefix
}

// HostTable is what the director knows of the host's network layer. It is
// replaced as a whole whenever the host's tables change.
type HostTable struct {
	Routes []Route
	Addrs  []LinkAddr
	// Local lists every address of the host, on whatever interface. A port
	// of a VIP that the host owns and that no service uses is the host's to
	// answer.
	Local []packet.Addr
}

// Neighbour is a hint from the host's neighbour table: Addr has MAC on Link.
// A zero MAC withdraws the hint.
type Neighbour struct {
	Link int
	VLAN uint16 // VLAN id; 0 untagged
	Addr packet.Addr
	MAC  packet.MAC
	// Permanent: the operator set it (nud permanent). It is neither asked for
	// nor overridden, as in the kernel.
	Permanent bool
}
