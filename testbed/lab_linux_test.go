package testbed_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"pktdirector/testbed"
	"pktdirector/testbed/nstest"
	"pktdirector/testbed/traffic"
)

func TestMain(m *testing.M) { nstest.Main(m) }

// build builds a lab; nothing runs on its hosts.
func build(t *testing.T, name string) *testbed.Lab {
	t.Helper()
	nstest.New(t) // ends the test where there can be no namespaces
	l, err := testbed.Build(load(t, name), testbed.Options{Link: testbed.AFPacket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// on runs a command on a host and returns what it printed.
func on(t *testing.T, l *testbed.Lab, host string, command ...string) string {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := l.Start(host, cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%s: %q: %v\n%s", host, command, err, out.String())
	}
	return out.String()
}

func TestHostsAreMachines(t *testing.T) {
	l := build(t, "dr")
	if got := strings.TrimSpace(on(t, l, "rs1", "cat", "/proc/sys/kernel/hostname")); got != "rs1" {
		t.Errorf("rs1 calls itself %q", got)
	}
	on(t, l, "rs1", "sh", "-c", "echo mine > /run/mark")
	if got := on(t, l, "rs2", "ls", "/run"); got != "" {
		t.Errorf("/run of rs2 has %q, want its own, empty", got)
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(on(t, l, "rs1", "pwd")); got != dir {
		t.Errorf("a command works in %q, want %q", got, dir)
	}
	if err := l.Start("rs9", exec.Command("true")); err == nil || !strings.Contains(err.Error(), `has no host "rs9"`) {
		t.Errorf("error %v, want one that names the host", err)
	}
}

// Where no director is needed the client reaches each server directly, which
// shows that segments, addresses and routes are right.
func TestClientReachesEveryServer(t *testing.T) {
	for _, name := range []string{"dr", "tun"} {
		t.Run(name, func(t *testing.T) {
			l := build(t, name)
			for _, h := range l.Topology.With(testbed.RealServer) {
				target := serve(t, l, h)
				got, err := upload(t, l, target)
				if err != nil {
					t.Fatalf("client to %s: %v", target, err)
				}
				if got.Server != h.Name || !got.Equal(1_000_000) {
					t.Errorf("client to %s: %+v, want 1 MB on %s", target, got, h.Name)
				}
			}
		})
	}
}

// serve runs a server on the host until the test ends and returns its address.
func serve(t *testing.T, l *testbed.Lab, h *testbed.Host) string {
	t.Helper()
	s := &traffic.Server{Name: h.Name, Log: slog.New(slog.DiscardHandler)}
	if err := l.Do(h.Name, func() (err error) {
		s.HTTP, err = net.Listen("tcp4", ":80")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return net.JoinHostPort(h.Addr().String(), "80")
}

// upload sends a megabyte from the client. The connection is made in the
// client's namespace by relaying through a pipe, since a goroutine that the
// HTTP client starts would dial from the run's own.
func upload(t *testing.T, l *testbed.Lab, target string) (traffic.Transfer, error) {
	t.Helper()
	var far net.Conn
	if err := l.Do("client", func() (err error) {
		far, err = net.DialTimeout("tcp4", target, 5*time.Second)
		return err
	}); err != nil {
		return traffic.Transfer{}, err
	}
	near, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer far.Close()
		c, err := near.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		go io.Copy(far, c)
		io.Copy(c, far)
	}()
	defer func() { near.Close(); far.Close(); <-done }()
	c := traffic.Client{Target: near.Addr().String(), Timeout: 5 * time.Second}
	return c.Upload(t.Context(), 1, 1_000_000)
}

// A real server of DR that boots, and then speaks as one that has the VIP,
// never claims it by ARP.
func TestRealServerKeepsQuietAboutTheVIP(t *testing.T) {
	nstest.New(t)
	top := load(t, "dr")
	l, err := testbed.Wire(top)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	router, rs := top.Hosts[1], top.With(testbed.RealServer)[0]
	if err := l.Configure(&router); err != nil {
		t.Fatal(err)
	}
	claims, err := l.Tap(rs.Name, rs.NICs[0].Segment, testbed.ARPFrom(top.VIP))
	if err != nil {
		t.Fatal(err)
	}
	defer claims.Close()
	own, err := l.Tap(rs.Name, rs.NICs[0].Segment, testbed.ARPFrom(rs.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	count := func(tap *testbed.Tap) uint64 {
		n, err := tap.Count()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}

	if err := l.Configure(rs); err != nil {
		t.Fatal(err)
	}
	sayFromVIP(t, l, rs, top)
	askForVIP(t, l, top)
	if n := count(claims); n != 0 {
		t.Errorf("%d ARP frames with sender %s, want none", n, top.VIP)
	}
	if count(own) == 0 {
		t.Errorf("no ARP frame with sender %s: the server did not speak, and the test shows nothing", rs.Addr())
	}

	// The same with ARP open, to see that the tap would have seen it.
	if err := l.Do(rs.Name, func() error {
		return testbed.Sysctl{Key: "net.ipv4.conf.all.arp_ignore", Value: "0"}.Apply()
	}); err != nil {
		t.Fatal(err)
	}
	for range 50 { // the router repeats its question once a second
		askForVIP(t, l, top)
		if count(claims) > 0 {
			return
		}
	}
	t.Error("no ARP frame with the VIP as sender though ARP is open")
}

// sayFromVIP makes the server send a datagram that has the VIP as source.
func sayFromVIP(t *testing.T, l *testbed.Lab, rs *testbed.Host, top *testbed.Topology) {
	t.Helper()
	send(t, l, rs.Name, &net.UDPAddr{IP: top.VIP.AsSlice()}, rs.Gateway.String()+":9")
}

// askForVIP makes the router ask who has the VIP.
func askForVIP(t *testing.T, l *testbed.Lab, top *testbed.Topology) {
	t.Helper()
	send(t, l, "router", nil, top.VIP.String()+":9")
}

func send(t *testing.T, l *testbed.Lab, host string, from *net.UDPAddr, to string) {
	t.Helper()
	if err := l.Do(host, func() error {
		addr, err := net.ResolveUDPAddr("udp4", to)
		if err != nil {
			return err
		}
		c, err := net.DialUDP("udp4", from, addr)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte("x"))
		return err
	}); err != nil {
		t.Fatalf("%s to %s: %v", host, to, err)
	}
	time.Sleep(100 * time.Millisecond) // for the answers, which nothing announces
}

func TestTundevLinkRefusesDR(t *testing.T) {
	err := testbed.Tundev.Check(load(t, "dr"))
	if err == nil || !strings.Contains(err.Error(), "a TUN device has none") {
		t.Errorf("error %v, want one that says why", err)
	}
}
