package host

import (
	"fmt"
	"net/netip"
	"os"
	"slices"

	"pktdirector/lvs"
	"pktdirector/packet"
)

// owner returns the interface and prefix of an address that the host has; ok is
// false for others.
func (c *checker) owner(a packet.Addr) (dev string, p netip.Prefix, ok bool) {
	for _, have := range c.addrs {
		p, ok := prefixOf(have.IPNet)
		if i := c.all.index(have.LinkIndex); ok && i != nil && packet.AddrFrom(p.Addr()) == a {
			return i.Attrs().Name, p, true
		}
	}
	return "", netip.Prefix{}, false
}

// sources tells of FullNAT's source addresses that answers would not come back
// to, and of ports that the host's own connections use, too.
func (c *checker) sources() {
	for _, a := range c.Rules.SourceAddrs() {
		dev, p, own := c.owner(a)
		switch {
		case own && c.hasTundev():
			c.find(Fault, fmt.Sprintf("ip addr del %s dev %s, or name another under sources", p, dev),
				"source address %s is configured on %s, so the host would not route it into the tundev", a, dev)
		case !own && !c.onSubnet(a):
			c.find(Note, "give them a route to it by way of this host, or name one of a subnet under sources",
				"source address %s lies in no subnet of this host: FullNAT servers do not find it by themselves", a)
		}
	}
	c.sourcePorts()
}

// onSubnet reports whether an address lies in a subnet of the host's.
func (c *checker) onSubnet(a packet.Addr) bool {
	for _, have := range c.addrs {
		if p, ok := prefixOf(have.IPNet); ok && p.Contains(a.Netip()) && p.Bits() < p.Addr().BitLen() {
			return true
		}
	}
	return false
}

// sourcePorts tells of services that send from the host's own address by ports
// that its kernel gives to other connections.
func (c *checker) sourcePorts() {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	var low, high uint16
	if _, bad := fmt.Sscan(string(text), &low, &high); err != nil || bad != nil {
		return
	}
	for _, s := range c.Rules.Services {
		full := slices.ContainsFunc(s.Servers, func(rs lvs.RealServer) bool { return rs.Method == lvs.FullNAT })
		own := len(s.Sources.Addrs) == 0 || slices.ContainsFunc(s.Sources.Addrs, func(a packet.Addr) bool {
			_, _, has := c.owner(a)
			return has
		})
		r := s.Sources.Ports
		if r == (lvs.PortRange{}) {
			r = lvs.HostSourcePorts()
		}
		if full && own && r.From <= high && low <= r.To {
			c.find(Warning, fmt.Sprintf("write source_ports below %d, or name an address under sources that the host does not have", low),
				"service %s: source ports %s of this host's address are among those of its own connections (ip_local_port_range %d-%d): those to the real servers may fail",
				s.ServiceKey, r, low, high)
		}
	}
}

// localServer tells of a real server that is this host, and cannot be handed
// what comes for the service.
func (c *checker) localServer(s lvs.VirtualService, rs lvs.RealServer) {
	dev, _, own := c.owner(rs.RIP)
	switch hasLocal := slices.ContainsFunc(c.Links, func(l Link) bool { return l.Local }); {
	case !own:
	case !hasLocal:
		c.find(Warning, "add a link of type local, or let the server run in a network namespace of its own, with an address of its own",
			"real server %s: is an address of this host, on %s, to which the director hands nothing (local_node)", rs.RIP, dev)
	case rs.Port != 0 && s.Mark == 0 && rs.Port != s.Port:
		c.find(Warning, fmt.Sprintf("let it listen on the service's port %d", s.Port),
			"real server %s: is an address of this host, on %s, whose port %d nobody translates (local_node)", rs.RIP, dev, rs.Port)
	case s.Mark == 0:
		if _, _, has := c.owner(s.VIP); !has {
			c.find(Warning, fmt.Sprintf("ip addr add %s dev lo", hostPrefix(s.VIP)),
				"real server %s: is an address of this host, which has not the VIP %s and so takes none of its packets", rs.RIP, s.VIP)
		}
	}
}
