package testbed_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pktdirector/packet"
	"pktdirector/testbed"
)

func load(t *testing.T, name string) *testbed.Topology {
	t.Helper()
	top, err := testbed.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return top
}

func TestEveryTopologyLoads(t *testing.T) {
	files, err := filepath.Glob("topologies/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(f), ".yaml"))
	}
	want := slices.Sorted(slices.Values(testbed.Names()))
	if diff := cmp.Diff(want, slices.Sorted(slices.Values(names))); diff != "" {
		t.Errorf("topology files (-listed +there):\n%s", diff)
	}
	for _, name := range testbed.Names() {
		top := load(t, name)
		if n := len(top.With(testbed.RealServer)); n != 3 {
			t.Errorf("%s: %d real servers, want 3", name, n)
		}
		for i, h := range top.With(testbed.RealServer) {
			if h.Weight != i+1 {
				t.Errorf("%s: %s has weight %d, want %d", name, h.Name, h.Weight, i+1)
			}
		}
		if !strings.Contains(top.Picture, top.VIP.String()) {
			t.Errorf("%s: the picture does not show the VIP %s", name, top.VIP)
		}
		if top.VIPSegment() == "" {
			t.Errorf("%s: the VIP %s is in no segment", name, top.VIP)
		}
	}
}

// A topology that cannot be read is an error that names the file, also where the YAML
// library panics.
func TestParseTopologyRefuses(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", "lab.yaml: vip: the address is missing"},
		{"an unknown key", "vips: 192.0.2.10\n", `lab.yaml: [1:1] unknown field "vips"`},
		{"a word for a list", "hosts: a\n", "lab.yaml: [1:8] "},
		{"a tagged word for a list", "hosts: !!str a\n", "lab.yaml: the YAML library fails on this text"},
		{"a tag alone for a list", "segments: !x\n", "lab.yaml: the YAML library fails on this text"},
		{"a tagged mapping for an inner list", "hosts: [{nics: !x {}}]\n", "lab.yaml: the YAML library fails on this text"},
	} {
		top, err := testbed.ParseTopology("lab.yaml", []byte(c.text))
		if err == nil || !strings.HasPrefix(err.Error(), c.want) || top != nil {
			t.Errorf("%s: %v, %v; want %q", c.name, top, err, c.want)
		}
	}
}

// Labs use private addresses and those set aside for documentation (RFC 1918,
// RFC 5737), and MACs that no maker gave away.
func TestAddressesBelongToNobody(t *testing.T) {
	var free []netip.Prefix
	for _, s := range []string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"} {
		free = append(free, netip.MustParsePrefix(s))
	}
	for _, name := range testbed.Names() {
		for _, h := range load(t, name).Hosts {
			for _, n := range h.NICs {
				if !slices.ContainsFunc(free, func(p netip.Prefix) bool { return p.Contains(n.Address.Addr()) }) {
					t.Errorf("%s: %s has address %s", name, h.Name, n.Address)
				}
				if n.MAC.MAC[0]&3 != 2 {
					t.Errorf("%s: %s has MAC %s, want one that is locally administered and unicast", name, h.Name, n.MAC)
				}
			}
		}
	}
}

func TestTopologiesThatMakeNoSense(t *testing.T) {
	tests := map[string]struct {
		change func(*testbed.Topology)
		want   string
	}{
		"segment that is not there":   {func(t *testbed.Topology) { t.Hosts[0].NICs[0].Segment = "moon" }, `hosts[0] (client): NIC on segment "moon", which does not exist`},
		"address outside its segment": {func(t *testbed.Topology) { t.Hosts[0].NICs[0].Address = netip.MustParsePrefix("10.9.9.9/24") }, "address 10.9.9.9/24 is not in segment wan"},
		"an address twice":            {func(t *testbed.Topology) { t.Hosts[4].NICs = t.Hosts[3].NICs }, "is that of rs1 already"},
		"the VIP on a host":           {func(t *testbed.Topology) { t.VIP = t.Hosts[2].Addr() }, "is that of the VIP already"},
		"gateway out of reach":        {func(t *testbed.Topology) { t.Hosts[0].Gateway = netip.MustParseAddr("10.0.0.1") }, "gateway 10.0.0.1"},
		"no director":                 {func(t *testbed.Topology) { t.Hosts[2].Role = testbed.Router }, "none has the role director"},
		"server without weight":       {func(t *testbed.Topology) { t.Hosts[3].Weight = 0 }, "weight 0"},
		"another port in DR":          {func(t *testbed.Topology) { t.HTTP.ServerPort = 8080 }, "dr rewrites no ports"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			top := load(t, "dr")
			tt.change(top)
			if err := top.Validate(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

func TestUnknownNames(t *testing.T) {
	if _, err := testbed.Load("moon"); err == nil || !strings.Contains(err.Error(), "nat, nat-onearm, dr, tun") {
		t.Errorf("error %v, want one that lists the labs", err)
	}
	if _, err := load(t, "dr").Host("rs9"); err == nil || !strings.Contains(err.Error(), "client, router, director, rs1, rs2, rs3") {
		t.Errorf("error %v, want one that lists the hosts", err)
	}
}

func TestFlagsReadWhatTheyWrite(t *testing.T) {
	for _, name := range testbed.Names() {
		for _, h := range load(t, name).Hosts {
			for _, n := range h.NICs {
				if got, err := testbed.ParseNIC(n.Flag()); err != nil || got != n {
					t.Errorf("NIC %s reads as %v, error %v", n.Flag(), got, err)
				}
			}
			for _, r := range h.Routes {
				if got, err := testbed.ParseRoute(r.Flag()); err != nil || got != r {
					t.Errorf("route %s reads as %v, error %v", r.Flag(), got, err)
				}
			}
		}
	}
	for _, s := range []string{"", "lan", "lan=02:00:00:00:00:01", "=02:00:00:00:00:01,10.0.0.1/24",
		"lan=02:00:00:00:01,10.0.0.1/24", "lan=02:00:00:00:00:01,10.0.0.1", "lan=02:00:00:00:00:g1,10.0.0.1/24",
		"a-name-that-is-too-long=02:00:00:00:00:01,10.0.0.1/24"} {
		if n, err := testbed.ParseNIC(s); err == nil || !strings.Contains(err.Error(), "write") {
			t.Errorf("NIC %q reads as %v, error %v; want an error that says what to write", s, n, err)
		}
	}
}

// TestUnwrappedPacketsPassWhole: what came in fragments around it may have any size
// when it is unwrapped, and the pair of interfaces that stands for a tunnel's device
// must take it.
func TestUnwrappedPacketsPassWhole(t *testing.T) {
	const pair = "ip link add tunl0 mtu 65535 type veth peer name tunl0-feed mtu 65535\n"
	if got := plan(t, "tun", "rs3", testbed.DecapVeth, false); !strings.Contains(got, pair) {
		t.Errorf("want %q in\n%s", pair, got)
	}
}

// plan returns a host's plan as commands, its interfaces called eth1, eth2 ...
// as on a fresh machine when renamed is set.
func plan(t *testing.T, lab, host string, decap testbed.Decap, renamed bool) string {
	t.Helper()
	top := load(t, lab)
	h, err := top.Host(host)
	if err != nil {
		t.Fatal(err)
	}
	f := testbed.Facts{NICs: map[packet.MAC]string{}, Decap: decap}
	for i, n := range h.NICs {
		f.NICs[n.MAC.MAC] = n.Segment
		if renamed {
			f.NICs[n.MAC.MAC] = "eth" + string(rune('1'+i))
		}
	}
	ops, err := top.Config(h).Plan(f)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, op := range ops {
		b.WriteString(op.String() + "\n")
	}
	return b.String()
}

// TestAFullNATServerNeedsNothing: it has no VIP to keep quiet about.
func TestAFullNATServerNeedsNothing(t *testing.T) {
	top := load(t, "nat")
	h := top.With(testbed.RealServer)[0]
	c := top.Config(h)
	facts := testbed.Facts{NICs: map[packet.MAC]string{}}
	for _, n := range c.NICs {
		facts.NICs[n.MAC.MAC] = n.Segment
	}
	nat, err := c.Plan(facts)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Mode.UnmarshalText([]byte("fullnat")); err != nil {
		t.Fatal(err)
	}
	full, err := c.Plan(facts)
	if diff := cmp.Diff(fmt.Sprint(nat), fmt.Sprint(full)); err != nil || diff != "" {
		t.Errorf("%v (-nat +fullnat):\n%s", err, diff)
	}
}

func TestPlansReadLikeAnOperatorsNotes(t *testing.T) {
	tests := map[string]struct {
		got, want string
	}{
		"real server of NAT, on a fresh machine": {plan(t, "nat", "rs1", "", true), `
ip link set dev eth1 down && ip link set dev eth1 name back
ip addr add 10.0.0.11/24 dev back
ip link set dev back up
ip route replace default via 10.0.0.1
`},
		"real server of DR: quiet before it has the VIP": {plan(t, "dr", "rs2", "", false), `
sysctl -w net.ipv4.conf.all.arp_ignore=1
sysctl -w net.ipv4.conf.all.arp_announce=2
ip addr add 192.0.2.12/24 dev lan
ip link set dev lan up
ip addr add 192.0.2.80/32 dev lo scope host
ip route replace default via 192.0.2.1
`},
		"real server of TUN, kernel with ipip": {plan(t, "tun", "rs3", testbed.DecapKernel, false), `
sysctl -w net.ipv4.conf.all.arp_ignore=1
sysctl -w net.ipv4.conf.all.arp_announce=2
ip addr add 10.3.0.13/24 dev site3
ip link set dev site3 up
ip link add tunl0 type ipip local 10.3.0.13
sysctl -w net.ipv4.conf.all.rp_filter=0
sysctl -w net.ipv4.conf.site3.rp_filter=0
sysctl -w net.ipv4.conf.tunl0.rp_filter=0
ip addr add 203.0.113.80/32 dev tunl0
ip link set dev tunl0 up
ip route replace default via 10.3.0.1
`},
		"router with static routes": {plan(t, "tun", "router", "", false), `
sysctl -w net.ipv4.ip_forward=1
sysctl -w net.ipv4.conf.all.rp_filter=0
sysctl -w net.ipv4.conf.wan.rp_filter=0
sysctl -w net.ipv4.conf.front.rp_filter=0
sysctl -w net.ipv4.conf.core.rp_filter=0
ip addr add 198.51.100.1/24 dev wan
ip link set dev wan up
ip addr add 203.0.113.1/24 dev front
ip link set dev front up
ip addr add 10.0.0.1/24 dev core
ip link set dev core up
ip route replace 10.2.0.0/24 via 10.0.0.2
ip route replace 10.3.0.0/24 via 10.0.0.3
`},
		"director: no forwarding, no VIP": {plan(t, "nat", "director", "", false), `
sysctl -w net.ipv4.ip_forward=0
sysctl -w net.ipv4.conf.all.rp_filter=0
sysctl -w net.ipv4.conf.front.rp_filter=0
sysctl -w net.ipv4.conf.back.rp_filter=0
ip addr add 203.0.113.2/24 dev front
ip link set dev front up
ip addr add 10.0.0.1/24 dev back
ip link set dev back up
`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(strings.TrimPrefix(tt.want, "\n"), tt.got); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPlanNamesTheMissingNIC(t *testing.T) {
	top := load(t, "dr")
	_, err := top.Config(top.With(testbed.Director)[0]).Plan(testbed.Facts{})
	if err == nil || !strings.Contains(err.Error(), "NIC lan: this host has no interface with MAC 02:00:00:00:06:02") {
		t.Errorf("error %v, want one that names the NIC and its MAC", err)
	}
}

func TestDirectorYAML(t *testing.T) {
	want, err := os.ReadFile("testdata/director-nat.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), load(t, "nat").DirectorYAML(testbed.AFPacket)); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}
