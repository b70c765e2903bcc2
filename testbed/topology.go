package testbed

import (
	"embed"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"pktdirector/control"
	"pktdirector/lvs"
	"pktdirector/packet"
)

//go:embed topologies/*.yaml
var topologyFiles embed.FS

// demoOrder is the order in which people meet the topologies.
const demoOrder = "nat nat-onearm dr tun"

// Topology is one lab: segments, and hosts with their roles on them.
type Topology struct {
	Name      string     `yaml:"name"`
	Title     string     `yaml:"title"`
	Mode      Mode       `yaml:"mode"`
	VIP       netip.Addr `yaml:"vip"`
	Scheduler string     `yaml:"scheduler"`
	HTTP      Service    `yaml:"http"` // TCP
	Echo      Service    `yaml:"echo"` // UDP
	Picture   string     `yaml:"picture"`
	Segments  []Segment  `yaml:"segments"`
	Hosts     []Host     `yaml:"hosts"`
}

// Service is a port of the VIP and the port where the real servers listen.
type Service struct {
	Port       uint16 `yaml:"port"`
	ServerPort uint16 `yaml:"server_port"` // 0: the same as Port
}

// Segment is one Ethernet. NICs on it carry its name.
type Segment struct {
	Name   string       `yaml:"name"`
	Prefix netip.Prefix `yaml:"prefix"`
}

// Host is one machine of a topology.
type Host struct {
	Name    string     `yaml:"name"`
	Role    Role       `yaml:"role"`
	NICs    []NIC      `yaml:"nics"`
	Gateway netip.Addr `yaml:"gateway"` // of the default route; invalid: none
	Routes  []Route    `yaml:"routes"`
	Weight  int        `yaml:"weight"` // of a real server
}

// NIC is an interface of a host. It is named like its segment.
type NIC struct {
	Segment string       `yaml:"segment"`
	MAC     MAC          `yaml:"mac"`
	Address netip.Prefix `yaml:"address"`
}

// Route is a static route.
type Route struct {
	To  netip.Prefix `yaml:"to"`
	Via netip.Addr   `yaml:"via"`
}

// Mode is a forwarding method as topology files and flags write it.
type Mode struct{ lvs.Method }

// UnmarshalText reads nat, dr, tun or fullnat.
func (m *Mode) UnmarshalText(text []byte) (err error) {
	m.Method, err = lvs.ParseMethod(string(text))
	return err
}

// MAC is an Ethernet address as topology files and flags write it.
type MAC struct{ packet.MAC }

// UnmarshalText reads six hexadecimal bytes with colons.
func (m *MAC) UnmarshalText(text []byte) error {
	const form = "xx:xx:xx:xx:xx:xx"
	parts := strings.Split(string(text), ":")
	if len(parts) != len(m.MAC) {
		return fmt.Errorf("MAC %q: write six hexadecimal bytes, %s", text, form)
	}
	for i, p := range parts {
		if _, err := fmt.Sscanf(p, "%02x", &m.MAC[i]); err != nil || len(p) != 2 {
			return fmt.Errorf("MAC %q: byte %d is %q: write six hexadecimal bytes, %s", text, i+1, p, form)
		}
	}
	return nil
}

// Listen returns the port where the real servers listen.
func (s Service) Listen() uint16 {
	if s.ServerPort != 0 {
		return s.ServerPort
	}
	return s.Port
}

// Names lists the topologies in the order in which a demonstration shows them.
func Names() []string { return strings.Fields(demoOrder) }

// Load reads the topology of that name.
func Load(name string) (*Topology, error) {
	if !slices.Contains(Names(), name) {
		return nil, fmt.Errorf("lab %q is not known: one of %s is", name, strings.Join(Names(), ", "))
	}
	file := path.Join("topologies", name+".yaml")
	text, err := topologyFiles.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return parseTopology(file, text)
}

// parseTopology reads the text of a topology's file.
func parseTopology(file string, text []byte) (*Topology, error) {
	t := &Topology{}
	err := control.CallYAML(func() error { return yaml.UnmarshalWithOptions(text, t, yaml.Strict()) })
	if err == nil {
		err = t.Validate()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return t, nil
}

// Validate reports the first thing in t that no lab could be built from.
func (t *Topology) Validate() error {
	if !t.VIP.IsValid() {
		return fmt.Errorf("vip: the address is missing")
	}
	if !t.Mode.RewritesPorts() && (t.HTTP.Listen() != t.HTTP.Port || t.Echo.Listen() != t.Echo.Port) {
		return fmt.Errorf("server_port: %s rewrites no ports: leave it out", t.Mode.Short())
	}
	macs := map[MAC]string{}
	addrs := map[netip.Addr]string{t.VIP: "the VIP"}
	for i := range t.Hosts {
		h := &t.Hosts[i]
		if err := t.validateHost(h, macs, addrs); err != nil {
			return fmt.Errorf("hosts[%d] (%s): %w", i, h.Name, err)
		}
	}
	for _, role := range []Role{Client, Director, RealServer} {
		if len(t.With(role)) == 0 {
			return fmt.Errorf("hosts: none has the role %s", role)
		}
	}
	return nil
}

func (t *Topology) validateHost(h *Host, macs map[MAC]string, addrs map[netip.Addr]string) error {
	reachable := func(a netip.Addr) bool {
		return slices.ContainsFunc(h.NICs, func(n NIC) bool { return n.Address.Contains(a) })
	}
	if len(h.NICs) == 0 {
		return fmt.Errorf("nics: a host needs one at least")
	}
	for _, n := range h.NICs {
		seg, ok := t.Segment(n.Segment)
		switch {
		case !ok:
			return fmt.Errorf("NIC on segment %q, which does not exist", n.Segment)
		case len(n.Segment) > maxNICName:
			return fmt.Errorf("segment %q: an interface's name has at most %d letters", n.Segment, maxNICName)
		case macs[n.MAC] != "":
			return fmt.Errorf("MAC %s is that of %s already", n.MAC, macs[n.MAC])
		case addrs[n.Address.Addr()] != "":
			return fmt.Errorf("address %s is that of %s already", n.Address.Addr(), addrs[n.Address.Addr()])
		case n.Address.Masked() != seg.Prefix:
			return fmt.Errorf("address %s is not in segment %s's %s", n.Address, n.Segment, seg.Prefix)
		}
		macs[n.MAC], addrs[n.Address.Addr()] = h.Name, h.Name
	}
	if h.Gateway.IsValid() && !reachable(h.Gateway) {
		return fmt.Errorf("gateway %s is in the subnet of none of its NICs", h.Gateway)
	}
	for _, r := range h.Routes {
		if !reachable(r.Via) {
			return fmt.Errorf("route to %s: %s is in the subnet of none of its NICs", r.To, r.Via)
		}
	}
	if h.Role == RealServer && h.Weight < 1 {
		return fmt.Errorf("weight %d: a real server of a lab has at least 1", h.Weight)
	}
	return nil
}

// Segment returns the segment of that name.
func (t *Topology) Segment(name string) (Segment, bool) {
	i := slices.IndexFunc(t.Segments, func(s Segment) bool { return s.Name == name })
	if i < 0 {
		return Segment{}, false
	}
	return t.Segments[i], true
}

// Host returns the host of that name.
func (t *Topology) Host(name string) (*Host, error) {
	names := make([]string, len(t.Hosts))
	for i := range t.Hosts {
		if t.Hosts[i].Name == name {
			return &t.Hosts[i], nil
		}
		names[i] = t.Hosts[i].Name
	}
	return nil, fmt.Errorf("lab %s has no host %q: one of %s", t.Name, name, strings.Join(names, ", "))
}

// With returns the hosts that have the role.
func (t *Topology) With(r Role) []*Host {
	var hosts []*Host
	for i := range t.Hosts {
		if t.Hosts[i].Role == r {
			hosts = append(hosts, &t.Hosts[i])
		}
	}
	return hosts
}

// Addr returns the host's first address.
func (h *Host) Addr() netip.Addr { return h.NICs[0].Address.Addr() }

// VIPSegment returns the segment whose subnet the VIP is in: where ARP for it
// is asked.
func (t *Topology) VIPSegment() string {
	for _, s := range t.Segments {
		if s.Prefix.Contains(t.VIP) {
			return s.Name
		}
	}
	return ""
}
