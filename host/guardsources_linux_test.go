package host_test

import (
	"net"
	"os"
	"testing"
	"time"

	"github.com/google/gopacket/layers"

	"pktdirector/host"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/testbed/nstest"
)

// The host leaves the answers of FullNAT servers to the director: all that is for
// a source address which the host does not have, and, on one that it has, what
// comes from a server's port to the director's range of ports. Its own sockets
// keep the rest.
func TestGuardLeavesAnswersOfFullNATServersToTheDirector(t *testing.T) {
	nstest.Enter(t)
	client, server := newPeer(t), newPeer(t)
	cable(t, client, "eth0", "c0", []string{"203.0.113.1/24"}, []string{"203.0.113.10/24"})
	cable(t, server, "eth1", "s0", []string{"192.0.2.1/24", "192.0.2.2/24"}, []string{"192.0.2.11/24"})
	must(t, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0))
	route(t, "192.0.2.200/32", "203.0.113.10")
	hw := mac(t, "eth1")
	server.do(func() { pin(t, "s0", hw, "192.0.2.200") })

	service := func(port uint16, src lvs.Sources) lvs.VirtualService {
		return lvs.VirtualService{ServiceKey: lvs.ServiceKey{Proto: packet.UDP, VIP: addr("203.0.113.80"), Port: port}, Scheduler: "rr", Sources: src,
			Servers: []lvs.RealServer{{ServerKey: lvs.ServerKey{RIP: addr("192.0.2.11"), Port: 8000 + port}, Method: lvs.FullNAT, Weight: 1}}}
	}
	rules := lvs.Ruleset{Services: []lvs.VirtualService{
		service(1, lvs.Sources{Addrs: []packet.Addr{addr("192.0.2.200")}}),
		service(2, lvs.Sources{}),
		service(3, lvs.Sources{Addrs: []packet.Addr{addr("192.0.2.2")}, Ports: lvs.PortRange{From: 3000, To: 3999}}),
	}}
	must(t, rules.Validate(func(string) bool { return true }))
	for _, c := range []struct {
		name    string
		from    int
		to      string
		port    int
		guarded bool // whether the host gets it all the same
	}{
		{"from a server to an address of the director's alone", 8001, "192.0.2.200", 5000, false},
		{"from anywhere to an address of the director's alone", 9999, "192.0.2.200", 5000, false},
		{"from a server to the director's range of the host's address", 8002, "192.0.2.1", 5000, false},
		{"to the last port of that range", 8002, "192.0.2.1", 32767, false},
		{"to a port above that range", 8002, "192.0.2.1", 32768, true},
		{"to a range that was given", 8003, "192.0.2.2", 3000, false},
		{"beside a range that was given", 8003, "192.0.2.2", 4000, true},
		{"from another port of the server", 8004, "192.0.2.1", 5000, true},
		{"to an address of the host's that a service does not name", 8003, "192.0.2.1", 3000, true},
	} {
		for _, on := range []bool{false, true} {
			if on {
				g, err := host.NewGuard()
				must(t, err)
				must(t, g.Apply(host.RulesFor([]host.Link{{Name: "eth0"}, {Name: "eth1"}}, rules)))
				must(t, g.Apply(host.RulesFor([]host.Link{{Name: "eth0"}, {Name: "eth1"}}, rules)))
				got := arrives(t, client, server, c.from, c.to, c.port)
				must(t, g.Close())
				if got != c.guarded {
					t.Errorf("%s, guarded: the host took it: %v, want %v", c.name, got, c.guarded)
				}
				continue
			}
			if !arrives(t, client, server, c.from, c.to, c.port) {
				t.Errorf("%s, without a guard: the host did not take it", c.name)
			}
		}
	}
}

// arrives sends a datagram from the server and reports whether it reached a socket
// of the host's, or, for an address that is not the host's, was forwarded.
func arrives(t *testing.T, client, server *peer, from int, to string, port int) bool {
	t.Helper()
	forwarded := func() int { return 0 }
	l, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(to), Port: port})
	if err != nil {
		client.do(func() { forwarded = watchUDP(t, "c0", layers.UDPPort(port)) })
	} else {
		defer l.Close()
	}
	server.do(func() {
		conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP("192.0.2.11"), Port: from})
		must(t, err)
		defer conn.Close()
		_, err = conn.WriteToUDP([]byte("x"), &net.UDPAddr{IP: net.ParseIP(to), Port: port})
		must(t, err)
	})
	if l == nil {
		return forwarded() > 0
	}
	must(t, l.SetReadDeadline(time.Now().Add(300*time.Millisecond)))
	_, err = l.Read(make([]byte, 1))
	return err == nil
}
