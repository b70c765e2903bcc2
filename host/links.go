package host

import (
	"errors"
	"net/netip"

	"pktdirector/dataplane"
	"pktdirector/packet"
)

// Link names one of the director's links as the host knows it. Its place in a
// list is the link's index in the director.
type Link struct {
	Name   string // the interface's name
	VLAN   uint16 // the VLAN id the link is bound to; 0: the interface itself
	Tundev bool   // a TUN device that the director made, not a network card
	Local  bool   // a TUN device that the director made to hand packets to the host's own sockets
}

// StaticRoute is a route from the configuration.
type StaticRoute struct {
	To   netip.Prefix
	Via  packet.Addr // zero: on the link itself
	Link int         // index of the link
}

// Static is what the configuration says about routes and addresses; it wins
// over what the host has.
type Static struct {
	Routes []StaticRoute
	Addrs  []dataplane.LinkAddr // of a link named here, the host's addresses do not count
}

// Table is what a Watcher keeps up to date: the director.
type Table interface {
	SetHost(dataplane.HostTable)
	Learn(dataplane.Neighbour)
}

// ErrOtherDirector says that another director is at work in this network
// namespace. Two would take turns at the same packets, so the second must not
// start.
var ErrOtherDirector = errors.New("another director runs in this network namespace: stop it first")
