package testbed

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"pktdirector/lvs"
	"pktdirector/packet"
)

// Role is what a host of a lab is for.
type Role string

// The four roles.
const (
	Client     Role = "client"
	Router     Role = "router"
	Director   Role = "director"
	RealServer Role = "realserver"
)

// maxNICName is the longest name an interface can have (IFNAMSIZ less the
// terminating zero).
const maxNICName = 15

// UnmarshalText reads a role's name.
func (r *Role) UnmarshalText(text []byte) error {
	switch got := Role(text); got {
	case Client, Router, Director, RealServer:
		*r = got
		return nil
	}
	return fmt.Errorf("role %q is not known: one of %s, %s, %s, %s is", text, Client, Router, Director, RealServer)
}

// HostConfig is everything that makes a bare machine a host of a lab, in the
// form the "lab role" command takes.
type HostConfig struct {
	Role    Role
	Mode    Mode
	VIP     netip.Addr
	NICs    []NIC
	Gateway netip.Addr
	Routes  []Route
	// Tundev is set on a director that works on a TUN device: its kernel then
	// takes the VIP's frames and routes them.
	Tundev bool
}

// Config returns the configuration of one of t's hosts.
func (t *Topology) Config(h *Host) HostConfig {
	return HostConfig{
		Role: h.Role, Mode: t.Mode, VIP: t.VIP,
		NICs: h.NICs, Gateway: h.Gateway, Routes: h.Routes,
	}
}

// Args returns c as the arguments of the "lab role" command.
func (c HostConfig) Args() []string {
	args := []string{string(c.Role), "--mode", c.Mode.Short(), "--vip", c.VIP.String()}
	for _, n := range c.NICs {
		args = append(args, "--nic", n.Flag())
	}
	if c.Gateway.IsValid() {
		args = append(args, "--gateway", c.Gateway.String())
	}
	for _, r := range c.Routes {
		args = append(args, "--route", r.Flag())
	}
	if c.Tundev {
		args = append(args, "--tundev")
	}
	return args
}

// Flag formats n as ParseNIC reads it.
func (n NIC) Flag() string { return n.Segment + "=" + n.MAC.String() + "," + n.Address.String() }

// ParseNIC reads a NIC written as name=MAC,address/prefix.
func ParseNIC(s string) (NIC, error) {
	const form = "write name=MAC,address/prefix, such as lan=02:00:00:00:06:0b,192.0.2.11/24"
	name, rest, ok := strings.Cut(s, "=")
	mac, addr, ok2 := strings.Cut(rest, ",")
	if !ok || !ok2 || name == "" || len(name) > maxNICName {
		return NIC{}, fmt.Errorf("NIC %q: %s", s, form)
	}
	n := NIC{Segment: name}
	if err := n.MAC.UnmarshalText([]byte(mac)); err != nil {
		return NIC{}, fmt.Errorf("NIC %q: %w", s, err)
	}
	p, err := netip.ParsePrefix(addr)
	if err != nil {
		return NIC{}, fmt.Errorf("NIC %q: address %q: %s", s, addr, form)
	}
	n.Address = p
	return n, nil
}

// Flag formats r as ParseRoute reads it.
func (r Route) Flag() string { return r.To.String() + "=" + r.Via.String() }

// ParseRoute reads a route written as prefix=gateway.
func ParseRoute(s string) (Route, error) {
	const form = "write prefix=gateway, such as 10.2.0.0/24=10.0.0.2"
	to, via, _ := strings.Cut(s, "=")
	p, err := netip.ParsePrefix(to)
	if err != nil {
		return Route{}, fmt.Errorf("route %q: %s", s, form)
	}
	gw, err := netip.ParseAddr(via)
	if err != nil {
		return Route{}, fmt.Errorf("route %q: %s", s, form)
	}
	return Route{To: p, Via: gw}, nil
}

// Facts are what a role must know of the machine it is applied to.
type Facts struct {
	// NICs has the present name of each interface by its MAC: a machine's
	// interfaces are called as its system pleases until the role has renamed
	// them.
	NICs map[packet.MAC]string
	// Decap is how a real server of the tunnelling method can unwrap IPIP.
	Decap Decap
}

// Decap is a way to unwrap IPIP packets.
type Decap string

// The ways to unwrap IPIP, best first.
const (
	DecapKernel Decap = "ipip"   // the kernel's own tunnel device
	DecapTundev Decap = "tundev" // the endpoint command writes into a TUN device
	DecapVeth   Decap = "veth"   // the endpoint command sends into a pair of interfaces
)

// The device that unwrapped packets come out of, and the end of the pair
// that the endpoint feeds when the device is a veth.
const (
	DecapDevice = "tunl0"
	DecapFeed   = "tunl0-feed"

	// maxPacket is the largest IP packet in bytes.
	maxPacket = 65535
)

// decapsulates reports whether c's host unwraps IPIP.
func (c HostConfig) decapsulates() bool {
	return c.Role == RealServer && c.Mode.Method == lvs.Tunnel
}

// Plan returns the operations that make a machine with those facts what c
// says, in order. Applying them twice changes nothing the second time.
func (c HostConfig) Plan(f Facts) ([]Op, error) {
	var ops []Op
	if c.Role == RealServer && !c.Mode.RewritesPorts() { // it has the VIP
		ops = append(ops, quiet()...)
	}
	for _, n := range c.NICs {
		now, ok := f.NICs[n.MAC.MAC]
		if !ok {
			return nil, fmt.Errorf("NIC %s: this host has no interface with MAC %s", n.Segment, n.MAC)
		}
		if now != n.Segment {
			ops = append(ops, RenameLink{From: now, To: n.Segment})
		}
	}
	switch c.Role {
	case Router:
		ops = append(ops, Sysctl{"net.ipv4.ip_forward", "1"})
		ops = append(ops, c.looseFilter()...)
	case Director:
		ops = append(ops, Sysctl{"net.ipv4.ip_forward", "0"})
		ops = append(ops, c.looseFilter()...)
	}
	for _, n := range c.NICs {
		ops = append(ops, AddAddr{Dev: n.Segment, Prefix: n.Address}, LinkUp{n.Segment})
	}
	switch {
	case c.Role == RealServer && c.Mode.Method == lvs.Route:
		ops = append(ops, AddAddr{Dev: "lo", Prefix: netip.PrefixFrom(c.VIP, c.VIP.BitLen())})
	case c.decapsulates():
		ops = append(ops, c.decapsulate(f.Decap)...)
	case c.Role == Director && c.Tundev:
		ops = append(ops, c.proxyARP()...)
	}
	if c.Gateway.IsValid() {
		ops = append(ops, AddRoute{To: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Via: c.Gateway})
	}
	for _, r := range c.Routes {
		ops = append(ops, AddRoute(r))
	}
	return ops, nil
}

// quiet keeps a real server from answering ARP for a VIP it has on another
// interface (arp_ignore) and from naming it as sender of its own requests
// (arp_announce). It comes before the address: once the address is there, the
// harm may be done.
func quiet() []Op {
	return []Op{
		Sysctl{"net.ipv4.conf.all.arp_ignore", "1"},
		Sysctl{"net.ipv4.conf.all.arp_announce", "2"},
	}
}

// looseFilter switches reverse path filtering off. The kernel uses the
// larger of "all" and the interface's own value, so each one is set.
func (c HostConfig) looseFilter() []Op {
	ops := []Op{Sysctl{"net.ipv4.conf.all.rp_filter", "0"}}
	for _, n := range c.NICs {
		ops = append(ops, Sysctl{"net.ipv4.conf." + n.Segment + ".rp_filter", "0"})
	}
	return ops
}

// decapsulate makes the device that unwrapped packets come out of. The client's
// address does not lie behind it, so reverse path filtering would drop them.
func (c HostConfig) decapsulate(d Decap) []Op {
	var ops []Op
	switch d {
	case DecapKernel:
		ops = append(ops, AddIPIP{Dev: DecapDevice, Local: c.NICs[0].Address.Addr()})
	case DecapTundev:
		ops = append(ops, AddTundev{DecapDevice})
	case DecapVeth:
		ops = append(ops,
			// What came in fragments around it may be larger than any segment's MTU.
			AddVeth{Dev: DecapDevice, Peer: DecapFeed, MTU: maxPacket},
			// The feeding end is no interface of the host: it must neither
			// speak nor answer.
			Sysctl{"net.ipv6.conf." + DecapFeed + ".disable_ipv6", "1"},
			LinkUp{DecapFeed})
	}
	ops = append(ops, c.looseFilter()...)
	return append(ops,
		Sysctl{"net.ipv4.conf." + DecapDevice + ".rp_filter", "0"},
		AddAddr{Dev: DecapDevice, Prefix: netip.PrefixFrom(c.VIP, c.VIP.BitLen())},
		LinkUp{DecapDevice})
}

// proxyARP makes a director's kernel answer ARP for the VIP, which is routed
// into the TUN device and no address of the host.
func (c HostConfig) proxyARP() []Op {
	var ops []Op
	for _, n := range c.NICs {
		if n.Address.Masked().Contains(c.VIP) {
			ops = append(ops, ProxyNeighbour{Dev: n.Segment, Addr: c.VIP})
		}
	}
	return ops
}

// ServeArgs returns the arguments with which a real server of t runs the
// "lab serve" command.
func (t *Topology) ServeArgs(h *Host) []string {
	return []string{"lab", "serve", "--name", h.Name,
		"--http", ":" + strconv.Itoa(int(t.HTTP.Listen())),
		"--echo", ":" + strconv.Itoa(int(t.Echo.Listen()))}
}

// EndpointArgs returns the arguments with which a real server of t runs the
// "lab endpoint" command, nil when d needs none.
func (t *Topology) EndpointArgs(h *Host, d Decap) []string {
	if t.Mode.Method != lvs.Tunnel || d == DecapKernel {
		return nil
	}
	return []string{"lab", "endpoint", "--nic", h.NICs[0].Segment, "--decap", string(d)}
}
