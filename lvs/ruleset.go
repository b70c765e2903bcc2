package lvs

import (
	"errors"
	"fmt"
	"slices"
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
	Port uint16 // 0: each packet's own, also of a masquerading server
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
	Persist  time.Duration
	MaskBits int
	// Netmask takes the place of MaskBits where an IPv4 mask is no prefix:
	// 255.0.255.0, or 0.0.0.0, under which all clients count as one.
	Netmask packet.Addr
	// Engine is the persistence engine's name (ipvsadm --pe), "" or sip. It is
	// kept for listings; clients stay by their addresses all the same.
	Engine    string
	OnePacket bool // each UDP datagram is scheduled on its own (ipvsadm -o)
	// ClampMSS lowers the maximum segment size that SYN and SYN+ACK announce to
	// what the way to the real server takes. The kernel's IPVS has nothing like
	// it.
	ClampMSS bool
	Sources  Sources      // of servers with the method FullNAT
	Servers  []RealServer // in the order in which they were added
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

// Ruleset is everything an operator configures about balancing: all virtual
// services, and the rules that mark packets for services by firewall mark, in
// order. It is a plain value: copy, edit, Validate, then apply.
type Ruleset struct {
	Services []VirtualService
	Marks    []MarkRule // the first that matches a packet counts
}

// VIPs lists the distinct addresses that the director answers for: those of
// the services, then single addresses that are marked for one.
func (r *Ruleset) VIPs() []packet.Addr {
	var vips []packet.Addr
	seen := map[packet.Addr]bool{}
	add := func(a packet.Addr) {
		if !seen[a] {
			seen[a] = true
			vips = append(vips, a)
		}
	}
	for i := range r.Services {
		if r.Services[i].Mark == 0 {
			add(r.Services[i].VIP)
		}
	}
	for i := range r.Marks {
		for _, p := range r.Marks[i].Dst {
			if p.IsSingleIP() && r.serves(r.Marks[i].Mark, p.Addr().Is6()) {
				add(packet.AddrFrom(p.Addr()))
			}
		}
	}
	return vips
}

// serves reports whether there is a service for the mark and IP version.
func (r *Ruleset) serves(mark uint32, v6 bool) bool {
	return slices.ContainsFunc(r.Services, func(s VirtualService) bool { return s.Mark == mark && mark != 0 && s.V6 == v6 })
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
	if err := r.validateSources(); err != nil {
		return err
	}
	for i := range r.Marks {
		if err := r.Marks[i].validate(); err != nil {
			return fmt.Errorf("marks[%d]: %w", i, err)
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
	if s.Netmask.IsValid() && (!s.Is4() || !s.Netmask.Is4()) {
		return fmt.Errorf("persistence netmask %v: only IPv4 has netmasks, IPv6 has prefix lengths", s.Netmask)
	}
	if !knownScheduler(s.Scheduler) {
		return fmt.Errorf("scheduler %q is not known", s.Scheduler)
	}
	if err := s.validateSources(); err != nil {
		return err
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
	case rs.Method == FullNAT && s.OnePacket:
		return fmt.Errorf("one-packet scheduling keeps no entry by which fullnat could find the replies: use another method")
	case rs.Lower > rs.Upper:
		return fmt.Errorf("lower threshold %d is above the upper threshold %d", rs.Lower, rs.Upper)
	case !rs.Method.RewritesPorts() && rs.Port != s.Port:
		return fmt.Errorf("port %d differs from the service's port %d, and %s rewrites no ports: write %d",
			rs.Port, s.Port, rs.Method.Short(), s.Port)
	case rs.Method != Tunnel && rs.Tunnel != TunnelInfo{}:
		return fmt.Errorf("a %s tunnel, but the method is %s: only tun has tunnels", rs.Tunnel.Type, rs.Method.Short())
	}
	return rs.Tunnel.Validate()
}
