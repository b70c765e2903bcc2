package host

import (
	"net/netip"

	"pktdirector/lvs"
	"pktdirector/packet"
)

// GuardRules are the packets that the director handles and the host must not.
type GuardRules struct {
	Links   []Link           // where they arrive
	VIPs    []packet.Addr    // the director answers for
	Served  []lvs.ServiceKey // requests to one port
	Marked  []Match          // other requests, in order; the first that matches counts
	Replies []Reply          // replies of NAT servers
	Sources []packet.Addr    // of FullNAT
	Sourced []Sourced        // answers of FullNAT servers to them
}

// Match tells packets that a firewall mark or a service for every port takes.
type Match struct {
	Src, Dst netip.Prefix // invalid: every address
	V6       bool         // IP version
	Proto    packet.Proto
	Ports    lvs.PortRange // destination ports; zero: every port
	Keep     bool          // the host's: no service takes these
}

// Reply is the source of what a real server answers under NAT.
type Reply struct {
	Proto packet.Proto
	RIP   packet.Addr
	Ports lvs.PortRange // zero: every port
}

// RulesFor derives what must be guarded from what is balanced.
func RulesFor(links []Link, rules lvs.Ruleset) GuardRules {
	g := GuardRules{Links: links, VIPs: rules.VIPs(), Sources: rules.SourceAddrs()}
	for i := range rules.Marks {
		g.Marked = append(g.Marked, matchesOf(&rules.Marks[i], rules.Services)...)
	}
	seen := map[Reply]bool{}
	for i, s := range rules.Services {
		g.Sourced = addSourced(g.Sourced, sourcedOf(&rules.Services[i], rules.Marks))
		switch {
		case s.Mark != 0:
		case s.Port != 0:
			g.Served = append(g.Served, s.ServiceKey)
		default:
			g.Marked = append(g.Marked, Match{Dst: hostPrefix(s.VIP), V6: !s.VIP.Is4(), Proto: s.Proto})
		}
		for _, rs := range s.Servers {
			if rs.Method != lvs.Masq {
				continue
			}
			for _, r := range repliesOf(s.ServiceKey, rs.ServerKey, rules.Marks) {
				if !seen[r] {
					seen[r] = true
					g.Replies = append(g.Replies, r)
				}
			}
		}
	}
	return g
}

// balanced are the protocols that a rule for any stands for.
func balanced(p packet.Proto) []packet.Proto {
	if p != 0 {
		return []packet.Proto{p}
	}
	return []packet.Proto{packet.TCP, packet.UDP, packet.SCTP}
}

// matchesOf takes a rule apart into what one rule of nftables can say. VLANs
// are left out: interfaces of VLANs are guarded as what they stand on.
func matchesOf(r *lvs.MarkRule, services []lvs.VirtualService) []Match {
	var all []Match
	for _, v6 := range []bool{false, true} {
		keep := true
		for i := range services {
			if services[i].Mark == r.Mark && services[i].V6 == v6 {
				keep = false
			}
		}
		for _, src := range ofVersion(r.Src, v6) {
			for _, dst := range ofVersion(r.Dst, v6) {
				for _, proto := range balanced(r.Proto) {
					for _, ports := range orEvery(r.Ports) {
						all = append(all, Match{Src: src, Dst: dst, V6: v6, Proto: proto, Ports: ports, Keep: keep})
					}
				}
			}
		}
	}
	return all
}

// ofVersion returns the prefixes of an IP version; one for every address where
// none are given.
func ofVersion(all []netip.Prefix, v6 bool) []netip.Prefix {
	if len(all) == 0 {
		return []netip.Prefix{{}}
	}
	var some []netip.Prefix
	for _, p := range all {
		if p.Addr().Is6() == v6 {
			some = append(some, p)
		}
	}
	return some
}

func orEvery(ports []lvs.PortRange) []lvs.PortRange {
	if len(ports) == 0 {
		return []lvs.PortRange{{}}
	}
	return ports
}

// repliesOf returns where a server's replies come from: its port, or, where it
// keeps the packet's, the ports that its service takes.
func repliesOf(service lvs.ServiceKey, rs lvs.ServerKey, marks []lvs.MarkRule) []Reply {
	own := lvs.PortRange{From: rs.Port, To: rs.Port}
	if service.Mark == 0 {
		return []Reply{{service.Proto, rs.RIP, own}}
	}
	var all []Reply
	for i := range marks {
		if marks[i].Mark != service.Mark {
			continue
		}
		ports := orEvery(marks[i].Ports)
		if rs.Port != 0 {
			ports = []lvs.PortRange{own}
		}
		for _, proto := range balanced(marks[i].Proto) {
			for _, p := range ports {
				all = append(all, Reply{proto, rs.RIP, p})
			}
		}
	}
	return all
}

// VIPs lists the distinct addresses that the director answers for.
func VIPs(rules lvs.Ruleset) []packet.Addr { return rules.VIPs() }

// routedPrefixes lists the networks whose packets are marked for a service: they
// are routed to the director, which answers for none of their addresses.
func routedPrefixes(rules lvs.Ruleset) []netip.Prefix {
	var all []netip.Prefix
	for _, m := range RulesFor(nil, rules).Marked {
		if !m.Keep && m.Dst.IsValid() && !m.Dst.IsSingleIP() {
			all = append(all, m.Dst)
		}
	}
	return all
}
