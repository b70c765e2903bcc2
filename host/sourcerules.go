package host

import (
	"slices"

	"pktdirector/lvs"
	"pktdirector/packet"
)

// Sourced are the answers of a FullNAT server to the director's own source
// addresses.
type Sourced struct {
	Reply
	To      []packet.Addr // the source addresses; none: the host's own
	ToPorts lvs.PortRange // of a source address that the host has
}

// sourcedOf returns the answers of a service's FullNAT servers.
func sourcedOf(s *lvs.VirtualService, marks []lvs.MarkRule) []Sourced {
	ports := s.Sources.Ports
	if ports == (lvs.PortRange{}) {
		ports = lvs.HostSourcePorts()
	}
	var all []Sourced
	for _, rs := range s.Servers {
		if rs.Method != lvs.FullNAT {
			continue
		}
		for _, r := range repliesOf(s.ServiceKey, rs.ServerKey, marks) {
			all = append(all, Sourced{r, s.Sources.Addrs, ports})
		}
	}
	return all
}

// addSourced appends what is not there yet.
func addSourced(to, more []Sourced) []Sourced {
	for _, m := range more {
		if !slices.ContainsFunc(to, func(x Sourced) bool {
			return x.Reply == m.Reply && x.ToPorts == m.ToPorts && slices.Equal(x.To, m.To)
		}) {
			to = append(to, m)
		}
	}
	return to
}
