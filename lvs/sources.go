package lvs

import (
	"fmt"
	"slices"

	"pktdirector/packet"
)

// Sources are what clients' addresses and ports are replaced by on the way to
// servers with the method FullNAT, and what is said of the clients instead.
type Sources struct {
	// Addrs are the director's addresses that servers answer to; empty: the
	// one it has on the link towards the server. Those that the host does not
	// have are the director's alone.
	Addrs []packet.Addr
	// Ports are the ports of each that are used for each real server; zero:
	// DefaultSourcePorts or, on the host's own address, HostSourcePorts.
	Ports PortRange
	// TOA tells servers the client's address and port by a TCP option.
	TOA bool
}

// DefaultSourcePorts are used of an address that is the director's alone.
func DefaultSourcePorts() PortRange { return PortRange{1024, 65535} }

// HostSourcePorts are used of an address that the host has: below what Linux
// gives to the host's own connections.
func HostSourcePorts() PortRange { return PortRange{1024, 32767} }

// MaxSources is how many source addresses a service may have.
const MaxSources = 256

func (s *VirtualService) validateSources() error {
	src := &s.Sources
	if len(src.Addrs) > MaxSources {
		return fmt.Errorf("sources: there are %d: at most %d can be there", len(src.Addrs), MaxSources)
	}
	for i, a := range src.Addrs {
		switch {
		case !a.IsValid():
			return fmt.Errorf("sources[%d]: the address is missing", i)
		case a.Is4() != s.Is4():
			return fmt.Errorf("sources[%d]: %s is of another IP version than the service", i, a)
		case slices.Contains(src.Addrs[:i], a):
			return fmt.Errorf("sources[%d]: %s stands there already", i, a)
		}
	}
	if src.Ports != (PortRange{}) && (src.Ports.From == 0 || src.Ports.To < src.Ports.From) {
		return fmt.Errorf("source ports %s: write a range from 1 to 65535, the smaller first", src.Ports)
	}
	return nil
}

func (r *Ruleset) validateSources() error {
	if i, j, why := r.SourceFault(); why != "" {
		if j < 0 {
			return fmt.Errorf("services[%d]: source ports: %s", i, why)
		}
		return fmt.Errorf("services[%d]: sources[%d]: %s", i, j, why)
	}
	return nil
}

// SourceFault finds the first source address that is also something else, or that
// two services have with different ports; the director's own, which services
// without a list have towards the same server, is such an address. It returns the service's and the
// address's index, -1 for the director's own, and what is wrong; "" where nothing
// is.
func (r *Ruleset) SourceFault() (service, source int, why string) {
	vips := r.VIPs()
	ports := map[packet.Addr]PortRange{}
	type towards struct {
		proto packet.Proto
		rip   packet.Addr
	}
	own := map[towards]PortRange{} // of the director's own address
	servers := map[packet.Addr]bool{}
	for i := range r.Services {
		for _, rs := range r.Services[i].Servers {
			servers[rs.RIP] = true
		}
	}
	for i := range r.Services {
		s := &r.Services[i]
		src := &s.Sources
		for _, rs := range s.Servers {
			if len(src.Addrs) > 0 || rs.Method != FullNAT {
				continue
			}
			for _, proto := range s.protocols() {
				way := towards{proto, rs.RIP}
				if first, seen := own[way]; seen && first != src.Ports {
					return i, -1, fmt.Sprintf("the director's own address towards %s is used by another service with other source ports: an address has one range: write the same source_ports at both, or give one of them sources", rs.RIP)
				}
				own[way] = src.Ports
			}
		}
		for j, a := range src.Addrs {
			first, seen := ports[a]
			switch {
			case slices.Contains(vips, a):
				return i, j, fmt.Sprintf("%s is a VIP: clients' packets could not be told from servers' answers; name another address", a)
			case servers[a]:
				return i, j, fmt.Sprintf("%s is a real server's: name an address that no server has", a)
			case seen && first != src.Ports:
				return i, j, fmt.Sprintf("%s is used by another service with other source ports: an address has one range: write the same source_ports at both, or name another address", a)
			}
			ports[a] = src.Ports
		}
	}
	return 0, 0, ""
}

// protocols are those that a service balances: of a firewall mark, all.
func (s *VirtualService) protocols() []packet.Proto {
	if s.Mark != 0 {
		return []packet.Proto{packet.TCP, packet.UDP, packet.SCTP}
	}
	return []packet.Proto{s.Proto}
}

// SourceAddrs lists the distinct source addresses of all services.
func (r *Ruleset) SourceAddrs() []packet.Addr {
	var all []packet.Addr
	seen := map[packet.Addr]bool{}
	for i := range r.Services {
		for _, a := range r.Services[i].Sources.Addrs {
			if !seen[a] {
				seen[a] = true
				all = append(all, a)
			}
		}
	}
	return all
}
