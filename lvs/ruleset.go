package lvs

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"pktdirector/packet"
)

// ServiceKey identifies a virtual service: protocol, VIP and port, or a
// firewall mark and an IP version. A service with a mark has no protocol, VIP and
// port.
type ServiceKey struct {
	Proto packet.Proto
	VIP   packet.Addr
	Port  uint16 // 0: every port; needs persistence
	Mark  uint32 // firewall mark; 0: none
	V6    bool   // of a mark: the service is for IPv6
}

// Is4 reports whether the service is for IPv4.
func (k ServiceKey) Is4() bool {
	if k.Mark != 0 {
		return !k.V6
	}
	return k.VIP.Is4()
}

// String formats k as "TCP 192.0.2.10:80" or "FWM 1".
func (k ServiceKey) String() string {
	if k.Mark != 0 {
		if k.V6 {
			return fmt.Sprintf("FWM %d IPv6", k.Mark)
		}
		return fmt.Sprintf("FWM %d", k.Mark)
	}
	return k.Proto.String() + " " + packet.Endpoint(k.VIP, k.Port)
}

// ServerKey identifies a real server inside its virtual service.
type ServerKey struct {
	RIP  packet.Addr
	Port uint16
}

// String formats k as "10.2.0.1:80".
func (k ServerKey) String() string { return packet.Endpoint(k.RIP, k.Port) }

// MaxPersist is the longest persistence timeout that ipvsadm takes.
const MaxPersist = 31 * 24 * time.Hour

// MaxWeight is the largest weight a real server can have; the kernel keeps it
// in an int and ipvsadm refuses more.
const MaxWeight = 1<<31 - 1

// RealServer is a server as the operator wrote it.
type RealServer struct {
	ServerKey
	Method Method
	Tunnel TunnelInfo // of the tunnelling method
	Weight int        // 0 (quiesced) to MaxWeight
	// Upper and Lower are connection thresholds (ipvsadm -x and -y): with
	// Upper connections the server is overloaded and gets no new ones until
	// it has fewer than Lower, or than three quarters of Upper where Lower
	// is 0. Upper 0 means no threshold.
	Upper, Lower uint32
}

// VirtualService is a VIP, protocol and port balanced over real servers.
type VirtualService struct {
	ServiceKey
	Scheduler string // a name that package sched knows
	Flags     SchedFlags
	// Persist is how long a client stays with its real server after its
	// last new connection (ipvsadm -p); 0: no persistence. Clients that share
	// the first MaskBits bits of their address count as one (ipvsadm -M); 0
	// means all bits.
	Persist   time.Duration
	MaskBits  int
	OnePacket bool         // each UDP datagram is scheduled on its own (ipvsadm -o)
	Servers   []RealServer // in the order in which they were added
}

// SchedFlags are the flags of a scheduler (ipvsadm -b): sh-fallback or
// mh-fallback is the first, sh-port or mh-port the second.
type SchedFlags uint8

// The flags that sh and mh know.
const (
	FlagFallback SchedFlags = 1 << iota // flag-1
	FlagPort                            // flag-2
	Flag3                               // flag-3, of no meaning yet
)

// What an edit of a running ruleset can meet; the words are the kernel's, as
// ipvsadm prints them.
var (
	ErrServiceExists = errors.New("service already exists")
	ErrNoService     = errors.New("no such service")
	ErrServerExists  = errors.New("destination already exists")
	ErrNoServer      = errors.New("no such destination")
)

// MarkRule gives packets a firewall mark, which a director in user space
// cannot see on them. All that is set must match; the first rule that matches
// wins.
type MarkRule struct {
	Src, Dst []netip.Prefix // any of them
	Proto    packet.Proto   // 0: any
	DstPort  uint16         // 0: any
	Link     int            // index of the link it came in by; -1: any
	VLAN     uint16         // VLAN id; 0: any
	Mark     uint32
}

// Matches reports whether the rule matches a packet.
func (r *MarkRule) Matches(p *packet.Packet) bool {
	f := &p.Flow
	switch {
	case r.Proto != 0 && r.Proto != f.Proto,
		r.DstPort != 0 && r.DstPort != f.DstPort,
		r.Link >= 0 && r.Link != p.Link,
		r.VLAN != 0 && (!p.Tagged || p.VLAN&0x0fff != r.VLAN):
		return false
	}
	return within(r.Src, f.Src) && within(r.Dst, f.Dst)
}

func within(prefixes []netip.Prefix, a packet.Addr) bool {
	if len(prefixes) == 0 {
		return true
	}
	ip := a.Netip()
	for _, p := range prefixes {
		if p.Contains(ip) {
			return true
		}
	}
	return false
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
	switch {
	case s.Mark != 0:
		if s.Proto != 0 || s.VIP.IsValid() || s.Port != 0 {
			return fmt.Errorf("a service with a firewall mark has no protocol, VIP and port")
		}
	case s.Proto != packet.TCP && s.Proto != packet.UDP && s.Proto != packet.SCTP:
		return fmt.Errorf("protocol %s cannot be balanced: tcp, udp and sctp can", s.Proto)
	case !s.VIP.IsValid():
		return fmt.Errorf("the VIP is missing")
	case s.Port == 0 && s.Persist == 0:
		return fmt.Errorf("port 0 needs a persistent service")
	}
	if s.Persist < 0 || s.Persist > MaxPersist {
		return fmt.Errorf("persistence of %v is out of range: 0 to %v", s.Persist, MaxPersist)
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
	case rs.RIP.Is4() != s.Is4() && rs.Method != Tunnel:
		return fmt.Errorf("its address family differs from the service's, which only tun allows")
	case rs.Lower > rs.Upper:
		return fmt.Errorf("lower threshold %d is above the upper threshold %d", rs.Lower, rs.Upper)
	case rs.Method == Masq && rs.Port == 0 && s.Port != 0:
		return fmt.Errorf("the port is missing")
	case rs.Method != Masq && rs.Port != s.Port:
		return fmt.Errorf("port %d differs from the service's port %d, and %s rewrites no ports: write %d",
			rs.Port, s.Port, rs.Method.Short(), s.Port)
	case rs.Method != Tunnel && rs.Tunnel != TunnelInfo{}:
		return fmt.Errorf("a %s tunnel, but the method is %s: only tun has tunnels", rs.Tunnel.Type, rs.Method.Short())
	}
	return rs.Tunnel.Validate()
}
