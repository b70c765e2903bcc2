package testbed

import (
	"fmt"
	"net/netip"
)

// Op is one step of configuring a machine.
type Op interface {
	// String returns the command a person would type.
	String() string
	// Apply does it in the calling thread's network namespace, without
	// running any command. Where it was done before, nothing changes.
	Apply() error
}

// RenameLink gives an interface another name.
type RenameLink struct{ From, To string }

func (o RenameLink) String() string {
	return fmt.Sprintf("ip link set dev %s down && ip link set dev %[1]s name %s", o.From, o.To)
}

// LinkUp brings an interface up.
type LinkUp struct{ Dev string }

func (o LinkUp) String() string { return "ip link set dev " + o.Dev + " up" }

// AddAddr gives an interface an address; on lo its scope is the host.
type AddAddr struct {
	Dev    string
	Prefix netip.Prefix
}

func (o AddAddr) String() string {
	s := fmt.Sprintf("ip addr add %s dev %s", o.Prefix, o.Dev)
	if o.hostScope() {
		s += " scope host"
	}
	return s
}

func (o AddAddr) hostScope() bool { return o.Dev == "lo" }

// AddRoute adds a route through a gateway, in place of another one to the
// same destination.
type AddRoute struct {
	To  netip.Prefix
	Via netip.Addr
}

func (o AddRoute) String() string {
	to := o.To.String()
	if o.To.Bits() == 0 {
		to = "default"
	}
	return fmt.Sprintf("ip route replace %s via %s", to, o.Via)
}

// Sysctl sets a kernel parameter. Dots separate the parts of the key, so an
// interface's name in it has none.
type Sysctl struct{ Key, Value string }

func (o Sysctl) String() string { return "sysctl -w " + o.Key + "=" + o.Value }

// AddIPIP makes the kernel's IPIP tunnel device. A device of that name which
// the ipip module brought along serves as well.
type AddIPIP struct {
	Dev   string
	Local netip.Addr
}

func (o AddIPIP) String() string {
	return fmt.Sprintf("ip link add %s type ipip local %s", o.Dev, o.Local)
}

// AddTundev makes a TUN device that stays when nobody has it open.
type AddTundev struct{ Dev string }

func (o AddTundev) String() string { return "ip tuntap add dev " + o.Dev + " mode tun" }

// AddVeth makes a pair of interfaces, both ends in this namespace.
type AddVeth struct {
	Dev, Peer string
	MTU       int // of both
}

func (o AddVeth) String() string {
	return fmt.Sprintf("ip link add %s mtu %d type veth peer name %s mtu %[2]d", o.Dev, o.MTU, o.Peer)
}

// ProxyNeighbour makes the kernel answer ARP for an address that it routes
// elsewhere.
type ProxyNeighbour struct {
	Dev  string
	Addr netip.Addr
}

func (o ProxyNeighbour) String() string {
	return fmt.Sprintf("ip neigh add proxy %s dev %s", o.Addr, o.Dev)
}

// AddBridge makes a bridge, up and silent: a segment of a lab.
type AddBridge struct{ Dev string }

func (o AddBridge) String() string {
	return fmt.Sprintf("ip link add %s type bridge mcast_snooping 0 && ip link set dev %[1]s up", o.Dev)
}

// PlugIn joins a host to a segment: a pair of interfaces, one end the host's
// NIC, the other, Port, in the bridge.
type PlugIn struct {
	Bridge string
	Port   string
	Host   string
	NIC    string
	MAC    MAC
	Into   int // file descriptor of the host's network namespace
}

func (o PlugIn) String() string {
	return fmt.Sprintf("ip link add %s master %s type veth peer name %s address %s netns %s && ip link set dev %[1]s up",
		o.Port, o.Bridge, o.NIC, o.MAC, o.Host)
}
