package host_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"pktdirector/host"
	"pktdirector/lvs"
	"pktdirector/testbed/nstest"
)

// tundevHost makes a host with a card in the VIP's subnet, a strict reverse
// path filter, and an interface that plays the tundev.
func tundevHost(t *testing.T) {
	t.Helper()
	nstest.Enter(t)
	p := newPeer(t)
	cable(t, p, "eth0", "p0", []string{"203.0.113.1/24", "192.0.2.1/24", "2001:db8:0:80::1/64"}, []string{"203.0.113.10/24"})
	sysctl(t, "ipv4/conf/all/rp_filter", "1")
	sysctl(t, "ipv4/conf/eth0/rp_filter", "0")
	cable(t, p, "lb0", "p1", nil, nil)
}

func sysctl(t *testing.T, name, value string) {
	t.Helper()
	must(t, os.WriteFile("/proc/sys/net/"+name, []byte(value), 0))
}

// hostState lists all that steering may change on a host, but for what
// belongs to the tundev itself.
func hostState(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"ipv4/ip_forward", "ipv4/conf/*/rp_filter", "ipv4/conf/*/accept_local", "ipv4/neigh/*/proxy_delay",
		"ipv6/neigh/*/proxy_delay", "ipv6/conf/all/forwarding", "ipv6/conf/*/proxy_ndp"} {
		files, err := filepath.Glob("/proc/sys/net/" + pattern)
		must(t, err)
		for _, f := range files {
			if strings.Contains(f, "/lb0/") {
				continue
			}
			b, err := os.ReadFile(f)
			must(t, err)
			all = append(all, f+" "+strings.TrimSpace(string(b)))
		}
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		rules, err := netlink.RuleList(family)
		must(t, err)
		for _, r := range rules {
			all = append(all, fmt.Sprintf("rule %d %v iif %s sport %v table %d", r.Priority, r.Src, r.IifName, r.Sport, r.Table))
		}
		proxies, err := netlink.NeighProxyList(0, family)
		must(t, err)
		for _, p := range proxies {
			all = append(all, "proxy "+p.IP.String())
		}
	}
	return all
}

func TestSteeringIsTakenBackWhole(t *testing.T) {
	tundevHost(t)
	dir := t.TempDir()
	before := hostState(t)
	claim, done, err := host.TakeClaim(dir)
	must(t, err)
	if len(done) != 0 {
		t.Errorf("a fresh host needed cleaning: %v", done)
	}
	must(t, claim.Steer("lb0", webRules()))
	during := hostState(t)
	for _, want := range []string{
		"/proc/sys/net/ipv4/ip_forward 1", "/proc/sys/net/ipv4/conf/all/rp_filter 0",
		"/proc/sys/net/ipv4/conf/eth0/rp_filter 1", // what "all" demanded before
		"/proc/sys/net/ipv6/conf/all/forwarding 1",
		"proxy 203.0.113.80", "proxy 2001:db8:0:80::80",
		"rule 11281 192.0.2.11/32 iif  sport &{8080 8080} table 11280",
	} {
		if !slices.ContainsFunc(during, func(s string) bool { return strings.HasPrefix(s, want) || s == want }) {
			t.Errorf("steering did not bring %q; there is\n%s", want, strings.Join(during, "\n"))
		}
	}
	if _, _, err := host.TakeClaim(dir); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("another director (pid %d) runs on this host", os.Getpid())) {
		t.Errorf("a second director: %v", err)
	}
	for name, want := range map[string]string{"rp_filter": "0", "accept_local": "1"} {
		if b, err := os.ReadFile("/proc/sys/net/ipv4/conf/lb0/" + name); err != nil || strings.TrimSpace(string(b)) != want {
			t.Errorf("the tundev's %s is %q, %v; want %s", name, b, err, want)
		}
	}
	// What somebody else changed meanwhile stays as it is.
	sysctl(t, "ipv4/conf/eth0/rp_filter", "2")
	must(t, claim.Release())
	after := hostState(t)
	for i, s := range before {
		if s == "/proc/sys/net/ipv4/conf/eth0/rp_filter 0" {
			before[i] = "/proc/sys/net/ipv4/conf/eth0/rp_filter 2"
		}
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("left on the host (-before +after):\n%s", diff)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left in the state folder: %v", left)
	}
}

func TestSteeringOfAKilledDirectorIsTakenBack(t *testing.T) {
	tundevHost(t)
	dir := t.TempDir()
	t.Setenv(stateEnv, dir)
	before := hostState(t)
	take := func() {
		kill := startChild(t, "steer")
		if _, err := host.Cleanup(dir); err == nil {
			t.Error("cleanup worked while the director ran")
		}
		kill()
		if cmp.Equal(before, hostState(t)) {
			t.Fatal("the killed director left nothing; the test shows nothing")
		}
	}
	take()
	done, err := host.Cleanup(dir)
	must(t, err)
	if len(done) == 0 {
		t.Error("cleanup says it removed nothing")
	}
	if diff := cmp.Diff(before, hostState(t)); diff != "" {
		t.Errorf("after cleanup (-before +after):\n%s", diff)
	}
	take()
	claim, done, err := host.TakeClaim(dir)
	must(t, err)
	if len(done) == 0 {
		t.Error("the next start says it removed nothing")
	}
	if diff := cmp.Diff(before, hostState(t)); diff != "" {
		t.Errorf("after the next start (-before +after):\n%s", diff)
	}
	must(t, claim.Release())
	if done, err := host.Cleanup(dir); err != nil || len(done) != 0 {
		t.Errorf("a second cleanup: %v, %v", done, err)
	}
}

func TestSteeringRefusesAVIPThatTheHostHas(t *testing.T) {
	tundevHost(t)
	up(t, "lo", []string{"203.0.113.80/32"})
	before := hostState(t)
	claim, _, err := host.TakeClaim(t.TempDir())
	must(t, err)
	if err := claim.Steer("lb0", webRules()); err == nil || !strings.Contains(err.Error(), "ip addr del 203.0.113.80/32 dev lo") {
		t.Errorf("got %v", err)
	}
	must(t, claim.Release())
	if diff := cmp.Diff(before, hostState(t)); diff != "" {
		t.Errorf("left on the host (-before +after):\n%s", diff)
	}
}

// The kernel drops the routes into a device that goes down; they must be back
// when it is up again.
func TestRoutesIntoTheTundevComeBack(t *testing.T) {
	tundevHost(t)
	claim, _, err := host.TakeClaim(t.TempDir())
	must(t, err)
	defer func() { must(t, claim.Release()) }()
	must(t, claim.Steer("lb0", webRules()))
	dev, err := netlink.LinkByName("lb0")
	must(t, err)
	into := func() (list []string) {
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			for _, table := range []int{unix.RT_TABLE_MAIN, 11280} {
				routes, err := netlink.RouteListFiltered(family, &netlink.Route{Table: table, LinkIndex: dev.Attrs().Index, Protocol: unix.RTPROT_STATIC},
					netlink.RT_FILTER_TABLE|netlink.RT_FILTER_OIF|netlink.RT_FILTER_PROTOCOL)
				must(t, err)
				for _, r := range routes {
					list = append(list, fmt.Sprint(r.Dst, " table ", table))
				}
			}
		}
		slices.Sort(list)
		return list
	}
	before := into()
	if len(before) != 4 {
		t.Fatalf("steering made %v, want the VIP and the replies of both IP versions", before)
	}
	w, err := host.NewWatcher([]host.Link{{Name: "lb0", Tundev: true}}, host.Static{}, &recorder{}, slog.New(slog.DiscardHandler))
	must(t, err)
	w.Keep(claim)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	defer func() {
		cancel()
		must(t, <-done)
		must(t, w.Close())
	}()
	for range 2 {
		must(t, netlink.LinkSetDown(dev))
		if left := into(); len(left) >= len(before) {
			t.Fatalf("the device is down, and its routes stay: %v", left)
		}
		must(t, netlink.LinkSetUp(dev))
		within(t, 5*time.Second, "all routes are back", func() bool { return slices.Equal(into(), before) })
	}
}

// An address that the operator had the host answer for is answered for after the director,
// and after one that was killed.
func TestWhatTheHostAnsweredForBeforeStays(t *testing.T) {
	tundevHost(t)
	eth, err := netlink.LinkByName("eth0")
	must(t, err)
	must(t, netlink.NeighAdd(&netlink.Neigh{LinkIndex: eth.Attrs().Index, Family: netlink.FAMILY_V4, Flags: netlink.NTF_PROXY, IP: []byte{203, 0, 113, 80}}))
	dir := t.TempDir()
	before := hostState(t)
	claim, _, err := host.TakeClaim(dir)
	must(t, err)
	for _, rules := range []lvs.Ruleset{webRules(), {}, webRules(), webRules()} {
		must(t, claim.Steer("lb0", rules))
		if !slices.Contains(hostState(t), "proxy 203.0.113.80") {
			t.Fatalf("the host does not answer for the VIP any more, with %d services", len(rules.Services))
		}
	}
	must(t, claim.Leave()) // as a kill does
	_, err = host.Cleanup(dir)
	must(t, err)
	if diff := cmp.Diff(before, hostState(t)); diff != "" {
		t.Errorf("left on the host (-before +after):\n%s", diff)
	}
}
