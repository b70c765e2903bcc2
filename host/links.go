package host

import (
	"errors"
	"net/netip"

	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// Link names one of the director's links as the host knows it. Its place in a
// list is the link's index in the director.
type Link struct {
	Name   string // the interface's name
	VLAN   uint16 // the VLAN id the link is bound to; 0: the interface itself
	Tundev bool   // a TUN device that the director made, not a network card
}

// Reply is the source of what a real server answers under NAT.
type Reply struct {
	Proto packet.Proto
	lvs.ServerKey
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

// GuardRules are the packets that the director handles and the host must not.
type GuardRules struct {
	Links   []Link           // where they arrive
	Served  []lvs.ServiceKey // requests
	Replies []Reply          // replies of NAT servers
}

// RulesFor derives what must be guarded from what is balanced.
func RulesFor(links []Link, rules lvs.Ruleset) GuardRules {
	g := GuardRules{Links: links}
	seen := map[Reply]bool{}
	for _, s := range rules.Services {
		g.Served = append(g.Served, s.ServiceKey)
		for _, rs := range s.Servers {
			r := Reply{s.Proto, rs.ServerKey}
			if rs.Method == lvs.Masq && !seen[r] {
				seen[r] = true
				g.Replies = append(g.Replies, r)
			}
		}
	}
	return g
}

// VIPs lists the distinct addresses of the services, in their order.
func VIPs(rules lvs.Ruleset) []packet.Addr {
	var vips []packet.Addr
	seen := map[packet.Addr]bool{}
	for _, s := range rules.Services {
		if !seen[s.VIP] {
			seen[s.VIP] = true
			vips = append(vips, s.VIP)
		}
	}
	return vips
}

// ErrOtherDirector says that another director is at work in this network
// namespace. Two would take turns at the same packets, so the second must not
// start.
var ErrOtherDirector = errors.New("another director runs in this network namespace: stop it first")
