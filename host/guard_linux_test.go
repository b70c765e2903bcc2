package host_test

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	afpacket "github.com/mdlayher/packet"
	"golang.org/x/sys/unix"

	"pktdirector/host"
	"pktdirector/testbed/nstest"
)

const syns = 50

// Field case 5: the host owns the VIP, and its kernel would answer each SYN
// with a reset. With the guard there are none, while the director's kind of
// socket still sees every SYN; without it they are back.
func TestGuardSilencesAHostThatOwnsTheVIP(t *testing.T) {
	nstest.Enter(t)
	client := newPeer(t)
	cable(t, client, "eth0", "c0",
		[]string{"203.0.113.1/24", "203.0.113.80/24", "2001:db8:0:80::1/64", "2001:db8:0:80::80/64"},
		[]string{"203.0.113.10/24", "2001:db8:0:80::10/64"})
	hw := mac(t, "eth0")
	client.do(func() { pin(t, "c0", hw, "203.0.113.80", "2001:db8:0:80::80") })
	refused := func(target string) (n int) {
		client.do(func() { n = connect(t, netip.MustParseAddrPort(target), syns) })
		return n
	}
	const v4, v6, other = "203.0.113.80:80", "[2001:db8:0:80::80]:80", "203.0.113.80:81"
	if n := refused(v4); n != syns {
		t.Fatalf("without a guard %d of %d connections were reset; the test needs all", n, syns)
	}

	for _, c := range []struct {
		name  string
		make  func() (*host.Guard, error)
		owned bool
	}{{"owned by the socket", host.NewGuard, true}, {"on a kernel without ownership", host.NewUnownedGuard, false}} {
		g, err := c.make()
		must(t, err)
		must(t, g.Apply(host.RulesFor([]host.Link{{Name: "eth0"}}, webRules())))
		if g.Owned() != c.owned {
			t.Errorf("%s: Owned() = %v", c.name, g.Owned())
		}
		seen := watchSYNs(t, "eth0")
		if a, b := refused(v4), refused(v6); a != 0 || b != 0 {
			t.Errorf("%s: %d resets over IPv4, %d over IPv6; want 0", c.name, a, b)
		}
		if n := seen(); n < 2*syns {
			t.Errorf("%s: a packet socket saw %d SYNs; want at least %d", c.name, n, 2*syns)
		}
		if n := refused(other); n != syns {
			t.Errorf("%s: on a port that is not served %d of %d were reset; the host keeps those", c.name, n, syns)
		}
		// Applying fewer rules takes the others back.
		fewer := webRules()
		fewer.Services = fewer.Services[1:]
		must(t, g.Apply(host.RulesFor([]host.Link{{Name: "eth0"}}, fewer)))
		if a, b := refused(v4), refused(v6); a != syns || b != 0 {
			t.Errorf("%s: after the IPv4 service went %d and %d were reset; want %d and 0", c.name, a, b, syns)
		}
		must(t, g.Close())
		nothing(t)
		if a, b := refused(v4), refused(v6); a != syns || b != syns {
			t.Errorf("%s: after Close %d and %d of %d were reset; want all", c.name, a, b, syns)
		}
	}
}

func TestGuardGoesWithAKilledDirector(t *testing.T) {
	nstest.Enter(t)
	client := newPeer(t)
	cable(t, client, "eth0", "c0", []string{"203.0.113.80/24"}, []string{"203.0.113.10/24"})
	hw := mac(t, "eth0")
	client.do(func() { pin(t, "c0", hw, "203.0.113.80") })
	refused := func() (n int) {
		client.do(func() { n = connect(t, netip.MustParseAddrPort("203.0.113.80:80"), syns) })
		return n
	}
	kill := startChild(t, "guard")
	if n := refused(); n != 0 {
		t.Errorf("with a guard %d were reset", n)
	}
	if _, err := host.NewGuard(); !errors.Is(err, host.ErrOtherDirector) {
		t.Errorf("a second director: %v, want ErrOtherDirector", err)
	}
	kill()
	if n := refused(); n != syns {
		t.Errorf("after kill -9 %d of %d were reset", n, syns)
	}

	// Without ownership the tables stay, and the next start or a cleanup
	// takes them away.
	kill = startChild(t, "unowned-guard")
	kill()
	if n := refused(); n != 0 {
		t.Fatalf("plain tables were removed with the process: %d resets", n)
	}
	if found, err := host.RemoveTables(); err != nil || !found {
		t.Errorf("cleanup: %v, %v", found, err)
	}
	if n := refused(); n != syns {
		t.Errorf("after cleanup %d of %d were reset", n, syns)
	}
	kill = startChild(t, "unowned-guard")
	kill()
	g, err := host.NewGuard()
	must(t, err)
	must(t, g.Close())
	if n := refused(); n != syns {
		t.Errorf("after the next start and stop %d of %d were reset", n, syns)
	}
}

// A host that routes neither answers nor forwards for a VIP it does not own,
// and does not pass the servers' replies on beside the director.
func TestGuardKeepsARoutingHostFromForwarding(t *testing.T) {
	nstest.Enter(t)
	client, server := newPeer(t), newPeer(t)
	cable(t, client, "eth0", "c0", []string{"203.0.113.1/24"}, []string{"203.0.113.10/24"})
	cable(t, server, "eth1", "s0", []string{"192.0.2.1/24"}, []string{"192.0.2.11/24"})
	must(t, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0))
	client.do(func() { route(t, "192.0.2.0/24", "203.0.113.1"); route(t, "198.51.100.80/32", "203.0.113.1") })
	server.do(func() { route(t, "203.0.113.0/24", "192.0.2.1") })
	// The VIP 198.51.100.80 leads to the server by the host's routing.
	route(t, "198.51.100.80/32", "192.0.2.11")

	rules := webRules()
	rules.Services = rules.Services[:2]
	for i := range rules.Services {
		rules.Services[i].VIP = addr("198.51.100.80")
	}
	send := func(p *peer, from string, port int, to string) {
		p.do(func() {
			c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(from), Port: port})
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			if _, err := c.WriteToUDP([]byte("x"), net.UDPAddrFromAddrPort(netip.MustParseAddrPort(to))); err != nil {
				t.Error(err)
			}
		})
	}
	for _, guarded := range []bool{false, true} {
		if guarded {
			g, err := host.NewGuard()
			must(t, err)
			defer g.Close()
			must(t, g.Apply(host.RulesFor([]host.Link{{Name: "eth0"}, {Name: "eth1"}}, rules)))
		}
		var atServer, atClient func() int
		server.do(func() { atServer = watchUDP(t, "s0", 4000) })
		client.do(func() { atClient = watchUDP(t, "c0", 4000) })
		send(client, "203.0.113.10", 4000, "198.51.100.80:53") // request to the VIP
		send(server, "192.0.2.11", 53, "203.0.113.10:4000")    // a served port's reply
		send(server, "192.0.2.11", 54, "203.0.113.10:4000")    // something else
		a, b := atServer(), atClient()
		want := [2]int{1, 2}
		if guarded {
			want = [2]int{0, 1}
		}
		if (a != want[0]) || b != want[1] {
			t.Errorf("guarded %v: the server got %d, the client %d packets; want %v", guarded, a, b, want)
		}
	}
}

// The director answers ARP and ND for the VIP; a host that owns it must not.
func TestGuardSilencesTheHostsNeighbourAnswers(t *testing.T) {
	nstest.Enter(t)
	client := newPeer(t)
	cable(t, client, "eth0", "c0", []string{"203.0.113.80/24", "2001:db8:0:80::80/64", "203.0.113.1/24"}, []string{"203.0.113.10/24", "2001:db8:0:80::10/64"})
	ask := func(a string) (n int) {
		client.do(func() {
			macs, err := host.Ask(t.Context(), "c0", netip.MustParseAddr(a), 200*time.Millisecond)
			if err != nil {
				t.Error(err)
			}
			n = len(macs)
		})
		return n
	}
	for _, guarded := range []bool{false, true} {
		want := 1
		if guarded {
			want = 0
			g, err := host.NewGuard()
			must(t, err)
			defer g.Close()
			must(t, g.Apply(host.RulesFor([]host.Link{{Name: "eth0"}}, webRules())))
		}
		if a, b := ask("203.0.113.80"), ask("2001:db8:0:80::80"); a != want || b != want {
			t.Errorf("guarded %v: %d answered ARP, %d answered ND; want %d", guarded, a, b, want)
		}
		if n := ask("203.0.113.1"); n != 1 {
			t.Errorf("guarded %v: %d answered for the host's own address; want 1", guarded, n)
		}
	}
}

// connect starts n TCP connections to target and returns how many were reset
// within a moment.
func connect(t *testing.T, target netip.AddrPort, n int) (refused int) {
	family, sa := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Port: int(target.Port())})
	if target.Addr().Is4() {
		sa.(*unix.SockaddrInet4).Addr = target.Addr().As4()
	} else {
		family, sa = unix.AF_INET6, &unix.SockaddrInet6{Port: int(target.Port()), Addr: target.Addr().As16()}
	}
	var fds []unix.PollFd
	for range n {
		fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Error(err)
			return 0
		}
		defer unix.Close(fd)
		if err := unix.Connect(fd, sa); errors.Is(err, unix.ECONNREFUSED) {
			refused++
			continue
		} else if err != nil && !errors.Is(err, unix.EINPROGRESS) {
			t.Error(err)
			return refused
		}
		fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLOUT})
	}
	time.Sleep(150 * time.Millisecond)
	if _, err := unix.Poll(fds, 0); err != nil {
		t.Error(err)
	}
	for _, f := range fds {
		if f.Revents == 0 {
			continue
		}
		if e, err := unix.GetsockoptInt(int(f.Fd), unix.SOL_SOCKET, unix.SO_ERROR); err == nil && unix.Errno(e) == unix.ECONNREFUSED {
			refused++
		}
	}
	return refused
}

// watchSYNs counts the TCP SYNs that a packet socket sees from now on.
func watchSYNs(t *testing.T, dev string) func() int {
	return watch(t, dev, func(p gopacket.Packet) bool {
		tcp, ok := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
		return ok && tcp.SYN && !tcp.ACK
	})
}

// watchUDP counts the UDP packets from or to port that arrive from now on.
func watchUDP(t *testing.T, dev string, port layers.UDPPort) func() int {
	return watch(t, dev, func(p gopacket.Packet) bool {
		udp, ok := p.Layer(layers.LayerTypeUDP).(*layers.UDP)
		return ok && (udp.SrcPort == port || udp.DstPort == port)
	})
}

// watch counts the arriving packets that match, until the returned function is
// called; that one waits a moment first.
func watch(t *testing.T, dev string, match func(gopacket.Packet) bool) func() int {
	t.Helper()
	ifi, err := net.InterfaceByName(dev)
	if err != nil {
		t.Error(err)
		return func() int { return 0 }
	}
	c, err := afpacket.Listen(ifi, afpacket.Raw, unix.ETH_P_ALL, nil)
	if err != nil {
		t.Error(err)
		return func() int { return 0 }
	}
	own := ifi.HardwareAddr.String()
	count := make(chan int)
	go func() {
		n, buf := 0, make([]byte, 2048)
		for {
			size, _, err := c.ReadFrom(buf)
			if err != nil {
				count <- n
				return
			}
			p := gopacket.NewPacket(buf[:size], layers.LayerTypeEthernet, gopacket.Default)
			if eth, ok := p.Layer(layers.LayerTypeEthernet).(*layers.Ethernet); ok && eth.SrcMAC.String() != own && match(p) {
				n++
			}
		}
	}()
	return func() int {
		_ = c.SetReadDeadline(time.Now().Add(150 * time.Millisecond))
		n := <-count
		c.Close()
		return n
	}
}

// nothing checks that no table of the director's is left, as nft sees it.
func nothing(t *testing.T) {
	t.Helper()
	out, err := exec.Command("nft", "list", "tables").Output()
	if errors.Is(err, exec.ErrNotFound) {
		return
	}
	if len(out) != 0 {
		t.Errorf("nft lists %s", out)
	}
}
