package host_test

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"pktdirector/dataplane"
	"pktdirector/host"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/testbed/nstest"
)

// ipv4Rules is webRules without the IPv6 service.
func ipv4Rules() lvs.Ruleset {
	r := webRules()
	r.Services = r.Services[:2]
	return r
}

// fullNAT makes the servers of the plan's first service FullNAT ones.
func fullNAT(p *host.Plan, src lvs.Sources) {
	s := &p.Rules.Services[0]
	s.Sources = src
	for i := range s.Servers {
		s.Servers[i].Method = lvs.FullNAT
	}
}

// Each case breaks one thing on a host where all is well and names the line
// that must come of it.
func TestCheckFindsWhatWouldBreakForwarding(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(t *testing.T, p *host.Plan, client *peer)
		want  []string // parts of one line; empty: no finding at all
	}{
		{"nothing", func(*testing.T, *host.Plan, *peer) {}, nil},
		{"no such interface", func(_ *testing.T, p *host.Plan, _ *peer) { p.Links[0].Name = "eth9" },
			[]string{"error: link eth9: there is no such interface", "ip link"}},
		{"an interface that is down", func(t *testing.T, _ *host.Plan, _ *peer) {
			l, err := netlink.LinkByName("eth1")
			must(t, err)
			must(t, netlink.LinkSetDown(l))
		}, []string{"warning: link eth1: is down", "ip link set eth1 up"}},
		{"no carrier", func(_ *testing.T, _ *host.Plan, client *peer) {
			client.do(func() {
				if l, err := netlink.LinkByName("c0"); err == nil {
					_ = netlink.LinkSetDown(l)
				}
			})
		}, []string{"warning: link eth0: has no carrier"}},
		{"a firewall mark that no rule gives", func(_ *testing.T, p *host.Plan, _ *peer) {
			p.Rules.Services = append(p.Rules.Services, lvs.VirtualService{ServiceKey: lvs.ServiceKey{Mark: 9}})
			p.Rules.Marks = []lvs.MarkRule{{Mark: 8, Link: -1}}
		}, []string{"warning: service FWM 9: no rule under marks gives its mark", "write one with fwmark: 9"}},
		{"a link without Ethernet", func(_ *testing.T, p *host.Plan, _ *peer) { p.Links[0].Name = "lo" },
			[]string{`error: link lo: is of type "loopback"`}},
		{"no address", func(t *testing.T, p *host.Plan, _ *peer) {
			cable(t, newPeer(t), "eth2", "x", nil, nil)
			p.Links = append(p.Links, host.Link{Name: "eth2"})
		}, []string{"warning: link eth2: has no IPv4 address", "ip addr add", "links[2].addresses"}},
		{"strict reverse path filter by all", func(t *testing.T, _ *host.Plan, _ *peer) {
			sysctl(t, "ipv4/conf/all/rp_filter", "1")
		}, []string{"note: link eth0: reverse path filter is strict (all=1, eth0=0: the larger counts)", "sysctl -w"}},
		{"strict reverse path filter by the interface", func(t *testing.T, _ *host.Plan, _ *peer) {
			sysctl(t, "ipv4/conf/eth1/rp_filter", "1")
		}, []string{"note: link eth1: reverse path filter is strict (all=0, eth1=1"}},
		{"MTUs that differ", func(t *testing.T, _ *host.Plan, _ *peer) { mtu(t, "eth1", 1400) },
			[]string{"warning: MTU of link eth1 is 1400, of link eth0 1500"}},
		{"an MTU too small for IP", func(t *testing.T, _ *host.Plan, _ *peer) { mtu(t, "eth1", 500) },
			[]string{"error: link eth1: MTU 500 is below the 576", "ip link set eth1 mtu 1500"}},
		{"an MTU too small for tunnels", func(_ *testing.T, p *host.Plan, _ *peer) {
			p.Rules.Services[1].Servers[0].Method = lvs.Tunnel
		}, []string{"note: tunnels put up to 20 bytes in front of a packet", "1500", "use MTU 1520", "by 20"}},
		{"an MTU too small for the largest of some tunnels", func(_ *testing.T, p *host.Plan, _ *peer) {
			for i, tunnel := range []lvs.TunnelInfo{{Type: lvs.GUE, Port: 6080}, {Type: lvs.GRE, Checksum: lvs.Checksum}} {
				p.Rules.Services[i].Servers[0].Method = lvs.Tunnel
				p.Rules.Services[i].Servers[0].Tunnel = tunnel
			}
		}, []string{"note: tunnels put up to 32 bytes in front of a packet", "1500", "use MTU 1532", "by 32"}},
		{"an MTU too small for IPv6 in GRE over IPv4", func(t *testing.T, p *host.Plan, _ *peer) {
			tunnelIPv6(t, p)
			s := &p.Rules.Services[0].Servers[0]
			s.RIP, s.Tunnel = addr("192.0.2.11"), lvs.TunnelInfo{Type: lvs.GRE, Checksum: lvs.Checksum}
			mtu(t, "eth1", 1307)
		}, []string{"warning: real server 192.0.2.11: MTU 1307 towards it leaves 1279 beside the tunnel's headers of 28 bytes", "1280", "ip link set eth1 mtu 1308"}},
		{"an MTU too small for IPv6 in IPv6", func(t *testing.T, p *host.Plan, _ *peer) {
			tunnelIPv6(t, p)
			mtu(t, "eth1", 1319)
		}, []string{"warning: real server 2001:db8:2::11: MTU 1319 towards it leaves 1279", "1280", "ip link set eth1 mtu 1320"}},
		{"a route's MTU too small for IPv6 in IPv6", func(t *testing.T, p *host.Plan, _ *peer) {
			tunnelIPv6(t, p)
			l, err := netlink.LinkByName("eth1")
			must(t, err)
			must(t, netlink.RouteAdd(&netlink.Route{Dst: ipNet(t, "2001:db8:2::11/128"), LinkIndex: l.Attrs().Index, MTU: 1300}))
		}, []string{"warning: real server 2001:db8:2::11: MTU 1300 towards it leaves 1260", "the route to 2001:db8:2::11/128 an mtu of 1320"}},
		{"the VIP on the host", func(t *testing.T, _ *host.Plan, _ *peer) { up(t, "lo", []string{"203.0.113.80/32"}) },
			[]string{"note: VIP 203.0.113.80 is configured on lo", "ip addr del 203.0.113.80/32 dev lo"}},
		{"another machine with the VIP", func(t *testing.T, _ *host.Plan, client *peer) {
			client.do(func() { up(t, "c0", []string{"203.0.113.80/32"}) })
		}, []string{"error: VIP 203.0.113.80: another machine on eth0 answers for it (", "arp_ignore=1"}},
		{"a server no route leads to", func(_ *testing.T, p *host.Plan, _ *peer) {
			p.Rules.Services[0].Servers[0].RIP = addr("198.51.100.7")
			route := netip.MustParsePrefix("198.51.100.0/24")
			p.Static.Routes = []host.StaticRoute{{To: route, Link: -1}}
		}, []string{"error: real server 198.51.100.7: the route to 198.51.100.0/24 leaves by no link", "add a route"}},
		{"a DR server behind a gateway", func(_ *testing.T, p *host.Plan, _ *peer) {
			p.Rules.Services[0].Servers[0].RIP = addr("198.51.100.7")
			p.Rules.Services[0].Servers[0].Method = lvs.Route
		}, []string{"error: real server 198.51.100.7: is behind the gateway 203.0.113.10, and dr reaches only", "use tun"}},
		{"no default route", func(t *testing.T, _ *host.Plan, _ *peer) {
			must(t, netlink.RouteDel(&netlink.Route{Dst: ipNet(t, "0.0.0.0/0")}))
		}, []string{"warning: there is no default route by a link"}},
		{"receive offload that loses segment sizes", func(t *testing.T, p *host.Plan, _ *peer) {
			must(t, netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}})) // merges by default
			up(t, "br0", []string{"10.9.9.1/24"})
			p.Links = append(p.Links, host.Link{Name: "br0"})
			p.Merged = []string{"br0"}
		}, []string{"error: link br0: GRO merges received segments", "ethtool -K br0 gro off"}},
		{"a real server that is this host", func(_ *testing.T, p *host.Plan, _ *peer) {
			p.Rules.Services[0].Servers[0].RIP = addr("192.0.2.1")
		}, []string{"warning: real server 192.0.2.1: is an address of this host, on eth1, to which the director hands nothing", "a network namespace of its own"}},
		{"a real server that is this host, without the VIP", func(_ *testing.T, p *host.Plan, _ *peer) {
			p.Links = append(p.Links, host.Link{Name: "self0", Local: true})
			s := &p.Rules.Services[0]
			s.Servers[0].RIP, s.Servers[0].Port = addr("192.0.2.1"), s.Port
		}, []string{"warning: real server 192.0.2.1: is an address of this host, which has not the VIP 203.0.113.80", "ip addr add 203.0.113.80/32 dev lo"}},
		{"a real server that is this host, on another port", func(_ *testing.T, p *host.Plan, _ *peer) {
			p.Links = append(p.Links, host.Link{Name: "self0", Local: true})
			s := &p.Rules.Services[0]
			s.Servers[0].RIP, s.Servers[0].Port = addr("192.0.2.1"), s.Port+1
		}, []string{"whose port 81 nobody translates (local_node)", "let it listen on the service's port 80"}},
		{"FullNAT from an address of the director's alone", func(_ *testing.T, p *host.Plan, _ *peer) {
			fullNAT(p, lvs.Sources{Addrs: []packet.Addr{addr("192.0.2.200")}})
		}, nil},
		{"FullNAT from the host's address", func(_ *testing.T, p *host.Plan, _ *peer) { fullNAT(p, lvs.Sources{}) }, nil},
		{"FullNAT by ports of the host's own connections", func(_ *testing.T, p *host.Plan, _ *peer) {
			fullNAT(p, lvs.Sources{Ports: lvs.PortRange{From: 60000, To: 61000}})
		}, []string{"warning: service ", "source ports 60000-61000 of this host's address are among those of its own connections (ip_local_port_range 32768-60999)", "write source_ports below 32768"}},
		{"FullNAT from an address in no subnet", func(_ *testing.T, p *host.Plan, _ *peer) {
			fullNAT(p, lvs.Sources{Addrs: []packet.Addr{addr("10.77.0.1")}})
		}, []string{"note: source address 10.77.0.1 lies in no subnet of this host", "give them a route"}},
		{"FullNAT from an address that another machine has", func(_ *testing.T, p *host.Plan, _ *peer) {
			fullNAT(p, lvs.Sources{Addrs: []packet.Addr{addr("192.0.2.11")}})
			p.Rules.Services[0].Servers[0].RIP = addr("192.0.2.12")
		}, []string{"error: source address 192.0.2.11: another machine on eth1 answers for it"}},
		{"an address from the configuration", func(t *testing.T, p *host.Plan, _ *peer) {
			cable(t, newPeer(t), "eth2", "x", nil, nil)
			p.Links = append(p.Links, host.Link{Name: "eth2"})
			p.Static.Addrs = []dataplane.LinkAddr{{Link: 2, Prefix: netip.MustParsePrefix("10.9.9.1/24")}}
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			nstest.Enter(t)
			client, server := newPeer(t), newPeer(t)
			cable(t, client, "eth0", "c0", []string{"203.0.113.1/24"}, []string{"203.0.113.10/24"})
			cable(t, server, "eth1", "s0", []string{"192.0.2.1/24"}, []string{"192.0.2.11/24"})
			route(t, "0.0.0.0/0", "203.0.113.10")
			for _, name := range []string{"all", "default", "eth0", "eth1"} {
				sysctl(t, "ipv4/conf/"+name+"/rp_filter", "0")
			}
			p := host.Plan{Links: []host.Link{{Name: "eth0"}, {Name: "eth1"}}, Rules: ipv4Rules()}
			c.spoil(t, &p, client)
			findings, err := host.Check(t.Context(), p)
			must(t, err)
			var lines []string
			for _, f := range findings {
				lines = append(lines, f.String())
			}
			all := strings.Join(lines, "\n")
			if len(c.want) == 0 && len(lines) != 0 {
				t.Errorf("all is well, and check says\n%s", all)
			}
			for _, line := range lines {
				if strings.Contains(line, first(c.want)) {
					all = line
				}
			}
			for _, w := range c.want {
				if !strings.Contains(all, w) {
					t.Errorf("%q is not in\n%s", w, all)
				}
			}
		})
	}
}

func first(s []string) string {
	if len(s) == 0 {
		return "\x00"
	}
	return s[0]
}

func TestCheckOfATundev(t *testing.T) {
	nstest.Enter(t)
	p := newPeer(t)
	cable(t, p, "eth0", "p0", []string{"192.0.2.1/24", "203.0.113.80/24"}, nil)
	sysctl(t, "ipv4/conf/all/rp_filter", "1")
	sysctl(t, "ipv4/ip_forward", "0")
	findings, err := host.Check(t.Context(), host.Plan{Links: []host.Link{{Name: "lb0", Tundev: true}}, Rules: ipv4Rules()})
	must(t, err)
	var lines []string
	for _, f := range findings {
		lines = append(lines, f.String())
	}
	all := strings.Join(lines, "\n")
	for _, want := range []string{
		"net.ipv4.ip_forward is 0, and the tundev lb0 needs 1", "net.ipv4.conf.all.rp_filter is 1, and the tundev lb0 needs 0",
		"error: VIP 203.0.113.80 is configured on eth0, so the host would not route it into the tundev",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not in\n%s", want, all)
		}
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil && !strings.Contains(all, "error: tundev lb0: ") {
		t.Errorf("a missing /dev/net/tun was not found:\n%s", all)
	}
}

// tunnelIPv6 makes the plan's only service one over IPv6 by tunnelling.
func tunnelIPv6(t *testing.T, p *host.Plan) {
	t.Helper()
	up(t, "eth1", []string{"2001:db8:2::1/64"})
	p.Rules.Services = webRules().Services[2:]
	p.Rules.Services[0].Servers[0].Method = lvs.Tunnel
}

// Every tunnel needs room for its headers and the smallest MTU of IPv6, but only
// where it carries IPv6.
func TestCheckIsContentWithAnMTUThatTunnelsFit(t *testing.T) {
	gue := lvs.TunnelInfo{Type: lvs.GUE, Port: 6080}
	for _, c := range []struct {
		name   string
		rip    string
		tunnel lvs.TunnelInfo
		v4     bool // the service
		mtu    int
		warns  bool
	}{
		{"IPv6 in IPv6", "2001:db8:2::11", lvs.TunnelInfo{}, false, 1320, false},
		{"IPv6 in IPv6, a byte less", "2001:db8:2::11", lvs.TunnelInfo{}, false, 1319, true},
		{"IPv6 in IPv4", "192.0.2.11", lvs.TunnelInfo{}, false, 1300, false},
		{"IPv6 in IPv4, a byte less", "192.0.2.11", lvs.TunnelInfo{}, false, 1299, true},
		{"IPv6 in GUE over IPv6", "2001:db8:2::11", gue, false, 1332, false},
		{"IPv6 in GUE over IPv6, a byte less", "2001:db8:2::11", gue, false, 1331, true},
		{"IPv4 in GUE over IPv6", "2001:db8:2::11", gue, true, 1300, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			nstest.Enter(t)
			cable(t, newPeer(t), "eth1", "s0", []string{"192.0.2.1/24"}, nil)
			p := host.Plan{Links: []host.Link{{Name: "eth1"}}}
			tunnelIPv6(t, &p)
			s := &p.Rules.Services[0]
			s.Servers[0].RIP, s.Servers[0].Tunnel = addr(c.rip), c.tunnel
			if c.v4 {
				s.VIP = addr("203.0.113.80")
			}
			mtu(t, "eth1", c.mtu)
			findings, err := host.Check(t.Context(), p)
			must(t, err)
			warned := false
			for _, f := range findings {
				warned = warned || strings.Contains(f.What, "towards it leaves")
			}
			if warned != c.warns {
				t.Errorf("MTU %d: %v", c.mtu, findings)
			}
		})
	}
}

func mtu(t *testing.T, name string, bytes int) {
	t.Helper()
	l, err := netlink.LinkByName(name)
	must(t, err)
	must(t, netlink.LinkSetMTU(l, bytes))
}
