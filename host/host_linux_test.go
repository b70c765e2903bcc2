package host_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"pktdirector/host"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/testbed/nstest"
)

// childEnv makes the test binary a director that is going to be killed: it
// takes the host's settings, says so, and waits.
const childEnv = "PKTDIRECTOR_HOST_TEST_CHILD"

// stateEnv tells such a child where to keep its state.
const stateEnv = "PKTDIRECTOR_HOST_TEST_STATE"

func TestMain(m *testing.M) {
	if what := os.Getenv(childEnv); what != "" {
		child(what)
	}
	nstest.Main(m)
}

// startChild runs the test binary as a child in the calling test's network
// namespace and returns once it holds what it should hold.
func startChild(t *testing.T, what string) (kill func()) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childEnv+"="+what)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	killed := false
	kill = func() {
		if !killed {
			killed = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	t.Cleanup(kill)
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("the child said %q, %v", line, err)
	}
	return kill
}

// peer is a machine at the other end of a cable: a network namespace of its
// own with a thread in it.
type peer struct {
	work chan func()
	fd   int
}

// newPeer makes a machine that ends with the test.
func newPeer(t *testing.T) *peer {
	t.Helper()
	p := &peer{work: make(chan func())}
	ready := make(chan error)
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			p.fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		ready <- err
		for f := range p.work {
			f()
		}
	}()
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		close(p.work)
		<-done
		unix.Close(p.fd)
	})
	return p
}

// do runs f on the machine.
func (p *peer) do(f func()) {
	done := make(chan struct{})
	p.work <- func() { defer close(done); f() }
	<-done
}

// cable joins interface here of the test's namespace with interface there of
// the peer; each gets its addresses.
func cable(t *testing.T, p *peer, here, there string, hereAddrs, thereAddrs []string) {
	t.Helper()
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: here}, PeerName: there}))
	l, err := netlink.LinkByName(there)
	must(t, err)
	must(t, netlink.LinkSetNsFd(l, p.fd))
	up(t, here, hereAddrs)
	p.do(func() { up(t, there, thereAddrs) })
	carrier(t, here)
	p.do(func() { carrier(t, there) })
}

// carrier waits until the kernel has noticed that the cable is plugged in;
// before that it sends nothing.
func carrier(t *testing.T, name string) {
	for range 500 {
		l, err := netlink.LinkByName(name)
		if err != nil {
			t.Error(err)
			return
		}
		if l.Attrs().OperState == netlink.OperUp {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%s has no carrier", name)
}

func up(t *testing.T, name string, addrs []string) {
	t.Helper()
	noDAD(t, name)
	l, err := netlink.LinkByName(name)
	must(t, err)
	for _, a := range addrs {
		addr, err := netlink.ParseAddr(a)
		must(t, err)
		must(t, netlink.AddrAdd(l, addr))
	}
	must(t, netlink.LinkSetUp(l))
}

// noDAD lets IPv6 addresses work at once.
func noDAD(t *testing.T, name string) {
	t.Helper()
	_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/accept_dad", []byte("0"), 0)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mac(t *testing.T, name string) packet.MAC {
	t.Helper()
	i, err := net.InterfaceByName(name)
	must(t, err)
	return packet.MAC(i.HardwareAddr)
}

func child(what string) {
	var err error
	switch what {
	case "guard", "unowned-guard":
		make := host.NewGuard
		if what == "unowned-guard" {
			make = host.NewUnownedGuard
		}
		var g *host.Guard
		if g, err = make(); err == nil {
			err = g.Apply(host.RulesFor([]host.Link{{Name: "eth0"}}, webRules()))
		}
	case "steer":
		var c *host.Claim
		if c, _, err = host.TakeClaim(os.Getenv(stateEnv)); err == nil {
			err = c.Steer("lb0", webRules())
		}
	case "steer-changes":
		var c *host.Claim
		if c, _, err = host.TakeClaim(os.Getenv(stateEnv)); err == nil {
			err = steerChanges(c)
		}
	default:
		err = fmt.Errorf("unknown child %q", what)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ready")
	select {}
}

// webRules is one NAT service for TCP and UDP each and an IPv6 one.
func webRules() lvs.Ruleset {
	server := func(a string, port uint16) []lvs.RealServer {
		return []lvs.RealServer{{ServerKey: lvs.ServerKey{RIP: packet.MustParseAddr(a), Port: port}, Method: lvs.Masq, Weight: 1}}
	}
	service := func(p packet.Proto, vip string, port uint16, servers []lvs.RealServer) lvs.VirtualService {
		return lvs.VirtualService{ServiceKey: lvs.ServiceKey{Proto: p, VIP: packet.MustParseAddr(vip), Port: port}, Scheduler: "rr", Servers: servers}
	}
	return lvs.Ruleset{Services: []lvs.VirtualService{
		service(packet.TCP, "203.0.113.80", 80, server("192.0.2.11", 8080)),
		service(packet.UDP, "203.0.113.80", 53, server("192.0.2.11", 53)),
		service(packet.TCP, "2001:db8:0:80::80", 80, server("2001:db8:2::11", 80)),
	}}
}

func addr(s string) packet.Addr { return packet.MustParseAddr(s) }

// route adds a route by a gateway in the calling thread's namespace.
func route(t *testing.T, to, via string) {
	t.Helper()
	_, dst, err := net.ParseCIDR(to)
	if err == nil {
		err = netlink.RouteAdd(&netlink.Route{Dst: dst, Gw: net.ParseIP(via)})
	}
	if err != nil {
		t.Errorf("route %s via %s: %v", to, via, err)
	}
}

// pin gives the calling thread's namespace fixed neighbour entries for hw on
// dev: with a guard and no director, nobody answers for the VIPs.
func pin(t *testing.T, dev string, hw packet.MAC, addrs ...string) {
	t.Helper()
	l, err := netlink.LinkByName(dev)
	for _, a := range addrs {
		if err == nil {
			err = netlink.NeighSet(&netlink.Neigh{LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT, IP: net.ParseIP(a), HardwareAddr: hw[:]})
		}
	}
	if err != nil {
		t.Errorf("neighbours on %s: %v", dev, err)
	}
}
