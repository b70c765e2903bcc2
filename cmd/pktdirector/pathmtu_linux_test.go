package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"pktdirector/testbed"
	"pktdirector/testbed/traffic"
)

// behindRouters puts two routers with a segment between them between the NAT
// lab's director and its servers.
func behindRouters(t *testing.T) *testbed.Topology {
	t.Helper()
	top := topology(t, "nat")
	prefix, address := netip.MustParsePrefix, netip.MustParseAddr
	top.Segments = append(top.Segments, testbed.Segment{Name: "near", Prefix: prefix("10.1.0.0/24")}, testbed.Segment{Name: "far", Prefix: prefix("10.2.0.0/24")})
	director := top.With(testbed.Director)[0]
	inside := director.NICs[1]
	director.NICs[1] = testbed.NIC{Segment: "near", MAC: inside.MAC, Address: prefix("10.1.0.1/24")}
	director.Routes = []testbed.Route{{To: prefix("10.0.0.0/24"), Via: address("10.1.0.9")}}
	core := testbed.Host{Name: "core", Role: testbed.Router, Gateway: address("10.1.0.1"),
		Routes: []testbed.Route{{To: prefix("10.0.0.0/24"), Via: address("10.2.0.2")}},
		NICs:   []testbed.NIC{{Segment: "near", Address: prefix("10.1.0.9/24")}, {Segment: "far", Address: prefix("10.2.0.1/24")}}}
	edge := testbed.Host{Name: "edge", Role: testbed.Router, Gateway: address("10.2.0.1"),
		NICs: []testbed.NIC{{Segment: "far", Address: prefix("10.2.0.2/24")}, {Segment: inside.Segment, Address: inside.Address}}}
	for i, nic := range []*testbed.NIC{&core.NICs[0], &core.NICs[1], &edge.NICs[0], &edge.NICs[1]} {
		if err := nic.MAC.UnmarshalText(fmt.Appendf(nil, "02:00:00:00:03:%02x", i+1)); err != nil {
			t.Fatal(err)
		}
	}
	top.Hosts = append(top.Hosts, core, edge)
	if err := top.Validate(); err != nil {
		t.Fatal(err)
	}
	return top
}

// narrow lowers the MTU of a host's interface.
func narrow(t *testing.T, l *testbed.Lab, host, nic string, mtu int) {
	t.Helper()
	if err := l.Do(host, func() error {
		link, err := netlink.LinkByName(nic)
		if err != nil {
			return err
		}
		return netlink.LinkSetMTU(link, mtu)
	}); err != nil {
		t.Fatal(err)
	}
}

// learned returns the path MTU to the VIP that the client's kernel believes in.
func learned(t *testing.T, l *testbed.Lab, vip netip.Addr) (mtu int) {
	t.Helper()
	if err := l.Do(l.Topology.With(testbed.Client)[0].Name, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.Connect(fd, &unix.SockaddrInet4{Port: 9, Addr: vip.As4()}); err != nil {
			return err
		}
		mtu, err = unix.GetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return mtu
}

// narrowRoutes gives a host's routes out of an interface an MTU, those of IPv6 to
// addresses of the link alone apart.
func narrowRoutes(t *testing.T, l *testbed.Lab, host, nic string, mtu int) {
	t.Helper()
	if err := l.Do(host, func() error {
		link, err := netlink.LinkByName(nic)
		if err != nil {
			return err
		}
		routes, err := netlink.RouteList(link, netlink.FAMILY_ALL)
		if err != nil || len(routes) == 0 {
			return fmt.Errorf("%d routes out of %s of %s (%w)", len(routes), nic, host, err)
		}
		for _, r := range routes {
			if r.Dst != nil && (r.Dst.IP.IsLinkLocalUnicast() || r.Dst.IP.IsMulticast()) {
				continue
			}
			r.MTU = mtu
			if err := netlink.RouteReplace(&r); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// The way behind the director takes 1,400 bytes: a link between two routers, the
// director's own route to the servers, or the routers that lead to them. The
// client's TCP must hear of it, in its own terms, and an upload of full segments
// must arrive whole and without waiting for a timeout. A datagram of 4,000 bytes,
// which comes and goes in fragments, must arrive whole, too, and so must its
// answer.
func TestANarrowPathBehindTheDirector(t *testing.T) {
	const size, pathMTU = 200_000, 1400
	for _, c := range []struct {
		name    string
		top     func(*testing.T) *testbed.Topology
		narrow  func(*testing.T, *testbed.Lab)
		want    int    // the path MTU that the client learns
		verdict string // counted when the client was told
	}{
		{"nat", behindRouters, func(t *testing.T, l *testbed.Lab) {
			narrow(t, l, "core", "far", pathMTU)
			narrow(t, l, "edge", "far", pathMTU)
		}, 1400, "error_forwarded"},
		{"dr", func(t *testing.T) *testbed.Topology { return topology(t, "dr") }, func(t *testing.T, l *testbed.Lab) {
			narrowRoutes(t, l, "director", "lan", pathMTU)
		}, 1400, "too_big"},
		{"tun", func(t *testing.T) *testbed.Topology { return topology(t, "tun") }, func(t *testing.T, l *testbed.Lab) {
			narrow(t, l, "site2", "site2", pathMTU)
			narrow(t, l, "site3", "site3", pathMTU)
			for _, rs := range l.Topology.With(testbed.RealServer) {
				narrowRoutes(t, l, rs.Name, rs.NICs[0].Segment, pathMTU) // a narrow interface takes nothing larger in, either
			}
		}, 1380, "tunnel_error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			top := c.top(t)
			l := lab(t, top, testbed.AFPacket, func(l *testbed.Lab) bool { c.narrow(t, l); return true })
			if got := learned(t, l, top.VIP); got != 1500 {
				t.Fatalf("before, the client's path MTU is %d, want 1500", got)
			}
			servers := len(top.With(testbed.RealServer))
			for i := range servers {
				bigDatagram(t, l, 4000, uint64(i))
			}
			for i := range servers {
				upload(t, l, size, i+1)
			}
			if got := learned(t, l, top.VIP); got != c.want {
				t.Errorf("the client learned a path MTU of %d, want %d", got, c.want)
			}
			for i := range servers {
				bigDatagram(t, l, 4000, uint64(10+i)) // now cut at the path MTU by the client itself
			}
			out, _ := exitCode(t, l, top.With(testbed.Director)[0].Name, "list", "--verdicts")
			for _, verdict := range []string{c.verdict, "reassembled"} {
				if !strings.Contains(out, verdict) {
					t.Errorf("no %s is counted:\n%s", verdict, out)
				}
			}
		})
	}
}

// upload sends a seeded stream to the web service, and compares. A busy machine may
// hold it up, so the quickest of a few attempts counts.
func upload(t *testing.T, l *testbed.Lab, size int64, seed int) {
	t.Helper()
	const stall = 3 * time.Second // a lost path MTU costs at least a few retransmission timeouts
	for attempt := 1; ; attempt++ {
		began := time.Now()
		out, err := l.Output(t.Context(), l.Topology.With(testbed.Client)[0].Name, "lab", "client", "upload",
			l.Topology.Target(l.Topology.HTTP), "--bytes", fmt.Sprint(size), "--seed", fmt.Sprint(seed), "--timeout", "30s")
		if err != nil {
			t.Fatalf("upload %d: %v\n%s", seed, err, out)
		}
		var got []traffic.Transfer
		if err := json.Unmarshal([]byte(out), &got); err != nil || len(got) != 1 || !got[0].Equal(size) {
			t.Errorf("upload %d: %v\n%s", seed, err, out)
		}
		took := time.Since(began)
		if took <= stall {
			return
		}
		if attempt == stallAttempts {
			t.Fatalf("upload %d took %v, and as long %d times before", seed, took, attempt-1)
		}
	}
}

// bigDatagram sends size random bytes to the echo service in one datagram, and
// compares what comes back.
func bigDatagram(t *testing.T, l *testbed.Lab, size int, seed uint64) {
	t.Helper()
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	sent := make([]byte, size)
	rand.NewChaCha8(key).Read(sent)
	if err := l.Do(l.Topology.With(testbed.Client)[0].Name, func() error {
		conn, err := net.DialUDP("udp4", nil, &net.UDPAddr{IP: l.Topology.VIP.AsSlice(), Port: int(l.Topology.Echo.Port)})
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
			return err
		}
		if _, err := conn.Write(sent); err != nil {
			return err
		}
		got := make([]byte, size+100)
		n, err := conn.Read(got)
		if err != nil {
			return err
		}
		if _, back, ok := bytes.Cut(got[:n], []byte(": ")); !ok || !bytes.Equal(back, sent) {
			return fmt.Errorf("%d bytes came back, and are not those that were sent", n)
		}
		return nil
	}); err != nil {
		t.Errorf("a datagram of %d bytes: %v", size, err)
	}
}

// A client that looks for the way to the VIP, as traceroute does, sees nothing
// but the VIP: the director, the routers behind it and the server all speak as it.
func TestTracerouteSeesTheVIPOnly(t *testing.T) {
	top := behindRouters(t)
	l := lab(t, top, testbed.AFPacket, nil)
	port := int(top.Echo.Port)
	if err := l.Do(top.With(testbed.Client)[0].Name, func() error {
		replies, err := net.ListenPacket("ip4:icmp", "0.0.0.0")
		if err != nil {
			return err
		}
		defer replies.Close()
		conn, err := net.DialUDP("udp4", nil, &net.UDPAddr{IP: top.VIP.AsSlice(), Port: port})
		if err != nil {
			return err
		}
		defer conn.Close()
		raw, err := conn.SyscallConn()
		if err != nil {
			return err
		}
		own := uint16(conn.LocalAddr().(*net.UDPAddr).Port)
		for ttl := 1; ttl <= 3; ttl++ {
			var sockErr error
			if err := raw.Control(func(fd uintptr) { sockErr = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TTL, ttl) }); err != nil || sockErr != nil {
				return errors.Join(err, sockErr)
			}
			if _, err := conn.Write([]byte("where?")); err != nil {
				return err
			}
			replies.SetReadDeadline(time.Now().Add(30 * time.Second))
			b := make([]byte, 1500)
			n, from, err := replies.ReadFrom(b)
			if err != nil {
				return fmt.Errorf("TTL %d: %w", ttl, err)
			}
			if b = b[:n]; len(b) < 36 || b[0] != 11 || from.String() != top.VIP.String() {
				t.Errorf("TTL %d: ICMP %d/%d, %d bytes from %v; want time exceeded from %v", ttl, b[0], b[1], n, from, top.VIP)
				continue
			}
			quoted, _ := netip.AddrFromSlice(b[8+16 : 8+20])
			ports := [2]uint16{uint16(b[28])<<8 | uint16(b[29]), uint16(b[30])<<8 | uint16(b[31])}
			if quoted != top.VIP || ports != [2]uint16{own, uint16(port)} {
				t.Errorf("TTL %d: about a packet to %v with ports %v; want %v and %d to %d", ttl, quoted, ports, top.VIP, own, port)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	client := top.With(testbed.Client)[0].Name
	if out, err := l.Output(t.Context(), client, "lab", "client", "echo", top.Target(top.Echo), "-n", "3"); err != nil {
		t.Errorf("the servers do not answer: %v\n%s", err, out)
	}
}
