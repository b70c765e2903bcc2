package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"pktdirector/lvs"
	"pktdirector/testbed"
	"pktdirector/testbed/nstest"
	"pktdirector/testbed/traffic"
)

// tunnelLab is a client and a director at one router, and a real server with two
// cables: one to another side of the router, where tunnels end, and one to the
// director itself, for NAT and direct routing. Everything speaks IPv4 and IPv6.
//
//	client ── wan ── router ── front ── director
//	                   │                   │
//	                  core ──── rs1 ──── back
type tunnelLab struct {
	*testbed.Lab
	mtu int // of the ways to the real server and back; 0: 1500
}

// Addresses of the lab: the last byte tells the host.
const (
	labVIP4, labVIP6   = "203.0.113.80", "2001:db8:2::80"
	tunRIP4, tunRIP6   = "10.2.0.11", "2001:db8:3::b" // on core
	backRIP4, backRIP6 = "10.3.0.11", "2001:db8:4::b" // on back
)

func labNIC(segment string, host byte) testbed.NIC {
	number := map[string]byte{"wan": 1, "front": 2, "core": 3, "back": 4}[segment]
	prefix := map[string]string{"wan": "198.51.100.%d/24", "front": "203.0.113.%d/24", "core": "10.2.0.%d/24", "back": "10.3.0.%d/24"}[segment]
	n := testbed.NIC{Segment: segment, Address: netip.MustParsePrefix(fmt.Sprintf(prefix, host))}
	n.MAC.MAC = [6]byte{2, 0, 0, 0, number, host}
	return n
}

// labAddr6 returns a host's IPv6 address on a segment.
func labAddr6(segment string, host byte) string {
	return fmt.Sprintf("2001:db8:%d::%x", map[string]int{"wan": 1, "front": 2, "core": 3, "back": 4}[segment], host)
}

func newTunnelLab(t *testing.T) tunnelLab {
	t.Helper()
	addr := netip.MustParseAddr
	top := &testbed.Topology{Name: "tunnels", VIP: addr(labVIP4), Scheduler: "rr",
		HTTP: testbed.Service{Port: 80}, Echo: testbed.Service{Port: 7}}
	if err := top.Mode.UnmarshalText([]byte("nat")); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"wan", "front", "core", "back"} {
		top.Segments = append(top.Segments, testbed.Segment{Name: s, Prefix: labNIC(s, 1).Address.Masked()})
	}
	top.Hosts = []testbed.Host{
		{Name: "client", Role: testbed.Client, Gateway: addr("198.51.100.1"), NICs: []testbed.NIC{labNIC("wan", 10)}},
		{Name: "router", Role: testbed.Router, NICs: []testbed.NIC{labNIC("wan", 1), labNIC("front", 1), labNIC("core", 1)}},
		{Name: "director", Role: testbed.Director, Gateway: addr("203.0.113.1"), NICs: []testbed.NIC{labNIC("front", 2), labNIC("back", 2)}},
		{Name: "rs1", Role: testbed.RealServer, Weight: 1, Gateway: addr("10.2.0.1"), NICs: []testbed.NIC{labNIC("core", 11), labNIC("back", 11)}},
	}
	l := tunnelLab{Lab: lab(t, top, testbed.AFPacket, func(*testbed.Lab) bool { return false })}
	l.ipv6(t)
	l.realServer(t)
	return l
}

// on does something on a host.
func (l tunnelLab) on(t *testing.T, host string, ops ...testbed.Op) {
	t.Helper()
	if err := l.Do(host, func() error {
		for _, op := range ops {
			if err := op.Apply(); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatalf("%s: %v", host, err)
	}
}

// ipv6 gives every host its IPv6 addresses, at once: nobody else is there whose
// they could be.
func (l tunnelLab) ipv6(t *testing.T) {
	t.Helper()
	for i := range l.Topology.Hosts {
		h := &l.Topology.Hosts[i]
		for _, n := range h.NICs {
			l.on(t, h.Name, testbed.Sysctl{Key: "net.ipv6.conf." + n.Segment + ".accept_dad", Value: "0"},
				testbed.AddAddr{Dev: n.Segment, Prefix: netip.PrefixFrom(netip.MustParseAddr(labAddr6(n.Segment, n.Address.Addr().As4()[3])), 64)})
		}
	}
	l.on(t, "router", testbed.Sysctl{Key: "net.ipv6.conf.all.forwarding", Value: "1"})
	for host, gateway := range map[string]string{"client": labAddr6("wan", 1), "director": labAddr6("front", 1), "rs1": labAddr6("core", 1)} {
		l.on(t, host, testbed.AddRoute{To: netip.MustParsePrefix("::/0"), Via: netip.MustParseAddr(gateway)})
	}
}

// realServer gives the real server the VIPs and starts its end of the tunnels.
func (l tunnelLab) realServer(t *testing.T) {
	t.Helper()
	args := []string{"lab", "endpoint", "--nic", "core", "--decap", string(testbed.DecapTundev)}
	ops := []testbed.Op{testbed.AddTundev{Dev: testbed.DecapDevice}}
	if testbed.TundevUsable() != nil {
		args[len(args)-1] = string(testbed.DecapVeth)
		ops = []testbed.Op{testbed.AddVeth{Dev: testbed.DecapDevice, Peer: testbed.DecapFeed},
			testbed.Sysctl{Key: "net.ipv6.conf." + testbed.DecapFeed + ".disable_ipv6", Value: "1"}, testbed.LinkUp{Dev: testbed.DecapFeed}}
	}
	for _, dev := range []string{"all", "core", "back", testbed.DecapDevice} {
		ops = append(ops, testbed.Sysctl{Key: "net.ipv4.conf." + dev + ".rp_filter", Value: "0"})
	}
	ops = append(ops, testbed.LinkUp{Dev: testbed.DecapDevice},
		testbed.Sysctl{Key: "net.ipv4.conf.all.arp_ignore", Value: "1"}, testbed.Sysctl{Key: "net.ipv4.conf.all.arp_announce", Value: "2"},
		testbed.AddAddr{Dev: "lo", Prefix: netip.MustParsePrefix(labVIP4 + "/32")}, testbed.AddAddr{Dev: "lo", Prefix: netip.MustParsePrefix(labVIP6 + "/128")})
	l.on(t, "rs1", ops...)
	cmd := exec.Command(program(t), args...)
	out := &strings.Builder{}
	cmd.Stderr = out
	if err := l.Start("rs1", cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("endpoint: %v\n%s", err, out)
		}
	})
}

// forwarding is one way to the real server.
type forwarding struct {
	name   string
	vip    string
	server string // its keys in the configuration
}

func (f forwarding) v6() bool { return f.vip == labVIP6 }

// forwardings are each kind of tunnel between each pair of IP versions, and NAT
// and direct routing over both.
func forwardings() []forwarding {
	var all []forwarding
	for _, vip := range []string{labVIP4, labVIP6} {
		version, back := 4, backRIP4
		if vip == labVIP6 {
			version, back = 6, backRIP6
		}
		for _, m := range []lvs.Method{lvs.Masq, lvs.Route} {
			all = append(all, forwarding{fmt.Sprintf("%s, IPv%d", m.Short(), version), vip, fmt.Sprintf("address: %q, method: %s", back, m.Short())})
		}
		for outer, rip := range map[int]string{4: tunRIP4, 6: tunRIP6} {
			for _, kind := range []string{"type: ipip", "type: gre", "type: gre, checksum: csum",
				"type: gue, port: 6080", "type: gue, port: 6080, checksum: csum", "type: gue, port: 6080, checksum: remcsum"} {
				all = append(all, forwarding{fmt.Sprintf("%s, %din%d", kind, version, outer), vip, fmt.Sprintf("address: %q, method: tun, tunnel: {%s}", rip, kind)})
			}
		}
	}
	return all
}

// balance starts a director that forwards TCP port 80, UDP port 7 and SCTP port
// 9 so, until the test ends. service has more settings for TCP.
func (l tunnelLab) balance(t *testing.T, f forwarding, service string) {
	t.Helper()
	// Each director begins anew: ports of clients come again, with other services.
	text := "links: [{name: front}, {name: back}]\nsnapshot: {every: 0}\nservices:\n"
	for _, p := range []struct{ protocol, port, more string }{{"tcp", "80", service}, {"udp", "7", ""}, {"sctp", "9", ""}} {
		text += fmt.Sprintf("  - vip: %q\n    protocol: %s\n    port: %s\n    scheduler: rr\n%s    servers:\n      - {%s}\n", f.vip, p.protocol, p.port, p.more, f.server)
	}
	// NAT's replies must come back to the director.
	gateway4, gateway6 := "10.2.0.1", labAddr6("core", 1)
	if strings.Contains(f.server, "method: nat") {
		gateway4, gateway6 = "10.3.0.2", labAddr6("back", 2)
	}
	l.replyBy(t, "0.0.0.0/0", gateway4, 1500-40)
	l.replyBy(t, "::/0", gateway6, 1500-60)
	l.forget(t)
	s := startConfigured(t, l.Lab, "director", text)
	t.Cleanup(func() { s.cmd.Process.Signal(syscall.SIGTERM); s.cmd.Wait() })
}

// replyBy sets the real server's way back. Where that is narrow, the server
// knows: a veth drops what its other end cannot take, and nobody is told. It
// announces an MSS as if it did not know, because the client must not learn
// from that.
func (l tunnelLab) replyBy(t *testing.T, to, gateway string, mss int) {
	t.Helper()
	prefix := netip.MustParsePrefix(to)
	r := netlink.Route{Dst: &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(0, prefix.Addr().BitLen())},
		Gw: net.ParseIP(gateway), MTU: l.mtu, AdvMSS: mss}
	if err := l.Do("rs1", func() error { return netlink.RouteReplace(&r) }); err != nil {
		t.Fatalf("route to %s by %s: %v", to, gateway, err)
	}
}

// forget makes the client forget what it was told of paths: that must not help
// the next one. IPv6 keeps it with the route.
func (l tunnelLab) forget(t *testing.T) {
	t.Helper()
	l.on(t, "client", testbed.Sysctl{Key: "net.ipv4.route.flush", Value: "1"},
		testbed.AddRoute{To: netip.MustParsePrefix("::/0"), Via: netip.MustParseAddr(labAddr6("wan", 1))})
}

// move makes an upload or a download and compares the hashes of both ends.
func (l tunnelLab) move(t *testing.T, f forwarding, kind string, bytes int) traffic.Transfer {
	t.Helper()
	target := f.vip + ":80"
	if f.v6() {
		target = "[" + f.vip + "]:80"
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute) // a transfer has no timeout of its own
	defer stop()
	out, err := l.Output(ctx, "client", "lab", "client", kind, target, "--bytes", fmt.Sprint(bytes), "--timeout", "30s")
	if err != nil {
		list, _ := l.Output(t.Context(), "director", "list", "--verdicts")
		t.Fatalf("%s: %v\n%s\n%s", kind, err, out, list)
	}
	var all []traffic.Transfer
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) != 1 || !all[0].Equal(int64(bytes)) || all[0].Server != "rs1" {
		t.Fatalf("%s: %v\n%s", kind, err, out)
	}
	return all[0]
}

// narrowed gives both ways to the real server, and its ways back, a smaller MTU.
func (l tunnelLab) narrowed(t *testing.T, mtu int) tunnelLab {
	t.Helper()
	narrow(t, l.Lab, "router", "core", mtu)
	narrow(t, l.Lab, "director", "back", mtu)
	narrowRoutes(t, l.Lab, "rs1", "back", mtu) // where it answers the director itself
	l.mtu = mtu
	return l
}

// TestTunnelsCarryTCP: with all offloads on, 100 kB each way arrive as they were
// sent, in each kind of tunnel between each pair of IP versions, NAT and direct
// routing.
func TestTunnelsCarryTCP(t *testing.T) {
	nstest.New(t)
	l := newTunnelLab(t)
	for _, f := range forwardings() {
		t.Run(f.name, func(t *testing.T) {
			l.balance(t, f, "")
			l.move(t, f, "upload", 100_000)
			l.move(t, f, "download", 100_000)
		})
	}
}

// stall is longer than what a few round trips take here, and shorter than a
// sender's second attempt after its first timed out. A machine that is busy may hold
// a transfer up for as long, so the quickest of a few attempts counts: a path MTU that
// the sender is not told stalls each.
const (
	stall         = 800 * time.Millisecond
	stallAttempts = 5
)

// upload makes an upload that must not stall, and has the client forget what it was
// told of the path before each attempt.
func (l tunnelLab) upload(t *testing.T, f forwarding, bytes int) {
	t.Helper()
	for attempt := 1; ; attempt++ {
		got := l.move(t, f, "upload", bytes)
		if got.Seconds <= stall.Seconds() {
			return
		}
		if attempt == stallAttempts {
			t.Fatalf("%d bytes took %.2f s, %d segments sent again, and as long %d times before", bytes, got.Seconds, got.Retrans, attempt-1)
		}
		l.forget(t)
	}
}

// tooBig returns how many ICMP errors about packets that are too large the
// client has got, of both IP versions.
func (l tunnelLab) tooBig(t *testing.T) (n int) {
	t.Helper()
	if err := l.Do("client", func() error {
		for file, name := range map[string]string{"snmp": "InDestUnreachs", "snmp6": "Icmp6InPktTooBigs"} {
			text, err := os.ReadFile("/proc/thread-self/net/" + file)
			if err != nil {
				return err
			}
			n += counter(string(text), name)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// counter finds a counter in /proc/net/snmp, which has names in one line and
// values in the next, or in snmp6, which has both in one.
func counter(text, name string) (n int) {
	var names []string
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		for i := range f {
			switch {
			case f[i] == name && len(f) == 2 && i == 0:
				fmt.Sscan(f[1], &n)
			case i < len(names) && names[i] == name && names[0] == f[0]:
				fmt.Sscan(f[i], &n)
			}
		}
		names = f
	}
	return n
}

// TestPathMTUBehindTheDirector: the way from the director to the real server
// takes 1400 bytes, while the client believes in 1500. Only ICMP errors can tell
// it, and a 200 kB upload does not stall; a download arrives, too. With NAT and clamp_mss, where the
// server's SYN+ACK passes the director, nobody has to be told.
func TestPathMTUBehindTheDirector(t *testing.T) {
	if testing.Short() {
		return // TestTunnelsCarryTCP goes the same ways
	}
	nstest.New(t)
	l := newTunnelLab(t).narrowed(t, 1400)
	check := func(name string, f forwarding, service string, told bool) {
		t.Run(name, func(t *testing.T) {
			l.balance(t, f, service)
			before := l.tooBig(t)
			l.upload(t, f, 200_000)
			if n := l.tooBig(t) - before; (n > 0) != told {
				t.Errorf("the client got %d ICMP errors about its packets' size; want some: %v", n, told)
			}
			l.move(t, f, "download", 60_000)
		})
	}
	for _, f := range forwardings() {
		check(f.name, f, "", true)
		if strings.Contains(f.server, "method: nat") {
			check(f.name+", clamp_mss", f, "    clamp_mss: true\n", false)
		}
	}
}
