package host_test

import (
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/google/gopacket/layers"

	"pktdirector/host"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/testbed/nstest"
)

// A host that routes leaves what a firewall mark or a service for every port
// takes to the director, and keeps everything beside it.
func TestGuardTakesWhatIsMarked(t *testing.T) {
	nstest.Enter(t)
	client, server := newPeer(t), newPeer(t)
	cable(t, client, "eth0", "c0", []string{"203.0.113.1/24"}, []string{"203.0.113.10/24", "203.0.113.11/24"})
	cable(t, server, "eth1", "s0", []string{"192.0.2.1/24"}, []string{"192.0.2.11/24"})
	must(t, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0))
	client.do(func() { route(t, "192.0.2.0/24", "203.0.113.1"); route(t, "198.51.100.0/24", "203.0.113.1") })
	server.do(func() { route(t, "203.0.113.0/24", "192.0.2.1") })
	route(t, "198.51.100.0/24", "192.0.2.11")

	prefix := netip.MustParsePrefix
	rules := lvs.Ruleset{
		Marks: []lvs.MarkRule{
			{Mark: 9, Link: -1, Dst: []netip.Prefix{prefix("198.51.100.66/32")}}, // no service has the mark
			{Mark: 1, Link: -1, Src: []netip.Prefix{prefix("203.0.113.10/32")}, Dst: []netip.Prefix{prefix("198.51.100.0/24")},
				Proto: packet.UDP, Ports: []lvs.PortRange{{From: 53, To: 60}, {From: 90, To: 90}}},
		},
		Services: []lvs.VirtualService{
			{ServiceKey: lvs.ServiceKey{Mark: 1}, Scheduler: "rr",
				Servers: []lvs.RealServer{{ServerKey: lvs.ServerKey{RIP: addr("192.0.2.11")}, Method: lvs.Masq, Weight: 1}}},
			{ServiceKey: lvs.ServiceKey{Proto: packet.UDP, VIP: addr("198.51.100.80")}, Scheduler: "rr", Persist: 300e9,
				Servers: []lvs.RealServer{{ServerKey: lvs.ServerKey{RIP: addr("192.0.2.11")}, Method: lvs.Route, Weight: 1}}},
		},
	}
	must(t, rules.Validate(func(string) bool { return true }))
	for _, c := range []struct {
		name             string
		p                *peer
		from             string
		sport            int
		to               string
		dport            int
		forwardedGuarded bool
	}{
		{"a marked port of a marked network", client, "203.0.113.10", 4000, "198.51.100.7", 53, false},
		{"the last port of the range", client, "203.0.113.10", 4000, "198.51.100.7", 60, false},
		{"a single port", client, "203.0.113.10", 4000, "198.51.100.7", 90, false},
		{"a port between", client, "203.0.113.10", 4000, "198.51.100.7", 61, true},
		{"another client", client, "203.0.113.11", 4000, "198.51.100.7", 53, true},
		{"an address that an earlier rule marks for nobody", client, "203.0.113.10", 4000, "198.51.100.66", 53, true},
		{"any port of a service for every port", client, "203.0.113.11", 4000, "198.51.100.80", 7777, false},
		{"a reply from a marked port", server, "192.0.2.11", 55, "203.0.113.10", 4000, false},
		{"a reply from the single port", server, "192.0.2.11", 90, "203.0.113.10", 4000, false},
		{"the server's own traffic", server, "192.0.2.11", 61, "203.0.113.10", 4000, true},
	} {
		for _, guarded := range []bool{false, true} {
			var g *host.Guard
			if guarded {
				var err error
				g, err = host.NewGuard()
				must(t, err)
				must(t, g.Apply(host.RulesFor([]host.Link{{Name: "eth0"}, {Name: "eth1"}}, rules)))
				must(t, g.Apply(host.RulesFor([]host.Link{{Name: "eth0"}, {Name: "eth1"}}, rules))) // again changes nothing
			}
			far, dev := server, "s0"
			if c.p == server {
				far, dev = client, "c0"
			}
			var arrived func() int
			far.do(func() { arrived = watchUDP(t, dev, layers.UDPPort(4000)) })
			c.p.do(func() {
				conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(c.from), Port: c.sport})
				must(t, err)
				defer conn.Close()
				_, err = conn.WriteToUDP([]byte("x"), &net.UDPAddr{IP: net.ParseIP(c.to), Port: c.dport})
				must(t, err)
			})
			n, want := arrived(), 1
			if guarded && !c.forwardedGuarded {
				want = 0
			}
			if n != want {
				t.Errorf("%s, guarded %v: %d packets passed the host; want %d", c.name, guarded, n, want)
			}
			if g != nil {
				must(t, g.Close())
			}
		}
	}
}
