package lvs

import (
	"fmt"

	"pktdirector/packet"
)

// ServiceKey identifies a virtual service: protocol, VIP and port.
type ServiceKey struct {
	Proto packet.Proto
	VIP   packet.Addr
	Port  uint16
}

// String formats k as "TCP 192.0.2.10:80".
func (k ServiceKey) String() string {
	return k.Proto.String() + " " + packet.Endpoint(k.VIP, k.Port)
}

// ServerKey identifies a real server inside its virtual service.
type ServerKey struct {
	RIP  packet.Addr
	Port uint16
}

// String formats k as "10.2.0.1:80".
func (k ServerKey) String() string { return packet.Endpoint(k.RIP, k.Port) }

// MaxWeight is the largest weight a real server can have; the kernel keeps it
// in an int and ipvsadm refuses more.
const MaxWeight = 1<<31 - 1

// RealServer is a server as the operator wrote it.
type RealServer struct {
	ServerKey
	Method Method
	Weight int // 0 (quiesced) to MaxWeight
}

// VirtualService is a VIP, protocol and port balanced over real servers.
type VirtualService struct {
	ServiceKey
	Scheduler string       // a name that package sched knows
	Servers   []RealServer // in the order in which they were added
}

// Ruleset is everything an operator configures about balancing: all virtual
// services. It is a plain value: copy, edit, Validate, then apply.
type Ruleset struct {
	Services []VirtualService
}

// Validate reports the first rule that the kernel's IPVS would refuse, naming
// its place, the value and what would be right. knownScheduler tells which
// scheduler names exist.
func (r *Ruleset) Validate(knownScheduler func(string) bool) error {
	seen := map[ServiceKey]int{}
	for i := range r.Services {
		s := &r.Services[i]
		if first, dup := seen[s.ServiceKey]; dup {
			return fmt.Errorf("services[%d]: %s stands already in services[%d]", i, s.ServiceKey, first)
		}
		seen[s.ServiceKey] = i
		if err := s.validate(knownScheduler); err != nil {
			return fmt.Errorf("services[%d] (%s): %w", i, s.ServiceKey, err)
		}
	}
	return nil
}

func (s *VirtualService) validate(knownScheduler func(string) bool) error {
	if s.Proto != packet.TCP && s.Proto != packet.UDP {
		return fmt.Errorf("protocol %s cannot be balanced: tcp and udp can", s.Proto)
	}
	if !s.VIP.IsValid() {
		return fmt.Errorf("the VIP is missing")
	}
	if s.Port == 0 {
		return fmt.Errorf("port 0 needs a persistent service")
	}
	if !knownScheduler(s.Scheduler) {
		return fmt.Errorf("scheduler %q is not known", s.Scheduler)
	}
	seen := map[ServerKey]int{}
	for j := range s.Servers {
		rs := &s.Servers[j]
		if first, dup := seen[rs.ServerKey]; dup {
			return fmt.Errorf("servers[%d]: %s stands already in servers[%d]", j, rs.ServerKey, first)
		}
		seen[rs.ServerKey] = j
		if err := rs.validate(s); err != nil {
			return fmt.Errorf("servers[%d] (%s): %w", j, rs.ServerKey, err)
		}
	}
	return nil
}

func (rs *RealServer) validate(s *VirtualService) error {
	switch {
	case !rs.RIP.IsValid():
		return fmt.Errorf("the address is missing")
	case rs.Weight < 0 || rs.Weight > MaxWeight:
		return fmt.Errorf("weight %d is out of range: 0 to %d", rs.Weight, MaxWeight)
	case rs.RIP.Is4() != s.VIP.Is4():
		return fmt.Errorf("its address family differs from the VIP's %s", s.VIP)
	case rs.Method == Masq && rs.Port == 0:
		return fmt.Errorf("the port is missing")
	case rs.Method != Masq && rs.Port != s.Port:
		return fmt.Errorf("port %d differs from the service's port %d, and %s rewrites no ports: write %d",
			rs.Port, s.Port, rs.Method.Short(), s.Port)
	}
	return nil
}
