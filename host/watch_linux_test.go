package host_test

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"pktdirector/dataplane"
	"pktdirector/host"
	"pktdirector/packet"
	"pktdirector/testbed/nstest"
)

// recorder is a Table that remembers the last it was told.
type recorder struct {
	mu    sync.Mutex
	table dataplane.HostTable
	sets  int
	hints map[packet.Addr]dataplane.Neighbour
}

func (r *recorder) SetHost(t dataplane.HostTable) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.table, r.sets = t, r.sets+1
}

func (r *recorder) Learn(n dataplane.Neighbour) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hints == nil {
		r.hints = map[packet.Addr]dataplane.Neighbour{}
	}
	r.hints[n.Addr] = n
}

func (r *recorder) route(dst string) (dataplane.Route, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.table.Routes, func(x dataplane.Route) bool { return x.Dst == netip.MustParsePrefix(dst) })
	if i < 0 {
		return dataplane.Route{}, false
	}
	return r.table.Routes[i], true
}

func (r *recorder) hint(a string) packet.MAC {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hints[addr(a)].MAC
}

func (r *recorder) has(link int, prefix string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.table.Addrs, dataplane.LinkAddr{Link: link, Prefix: netip.MustParsePrefix(prefix)})
}

func (r *recorder) local(a string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.table.Local, addr(a))
}

// within waits until yes becomes true.
func within(t *testing.T, d time.Duration, what string, yes func() bool) {
	t.Helper()
	for end := time.Now().Add(d); ; time.Sleep(5 * time.Millisecond) {
		if yes() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, d)
		}
	}
}

// watching runs a watcher for the rest of the test.
func watching(t *testing.T, links []host.Link, static host.Static) *recorder {
	t.Helper()
	r := &recorder{}
	w, err := host.NewWatcher(links, static, r, slog.New(slog.DiscardHandler))
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		must(t, w.Close())
	})
	return r
}

func TestWatcherTellsRoutesAddressesAndNeighbours(t *testing.T) {
	nstest.Enter(t)
	p, q := newPeer(t), newPeer(t)
	cable(t, p, "eth0", "p0", []string{"203.0.113.1/24", "2001:db8:0:80::1/64"}, []string{"203.0.113.10/24"})
	cable(t, q, "other", "q0", []string{"198.51.100.1/24"}, []string{"198.51.100.2/24"})
	hw := packet.MAC{2, 0, 0, 0, 0, 7}
	pin(t, "eth0", hw, "203.0.113.7")
	route(t, "0.0.0.0/0", "203.0.113.10")
	must(t, netlink.RouteAdd(&netlink.Route{Dst: ipNet(t, "10.9.0.0/16"), Type: 7 /* RTN_UNREACHABLE */}))

	static := host.Static{Routes: []host.StaticRoute{{To: netip.MustParsePrefix("10.8.0.0/16"), Via: addr("203.0.113.8"), Link: 0}}}
	r := watching(t, []host.Link{{Name: "eth0"}}, static)

	// All of this is there when NewWatcher returns.
	for dst, want := range map[string]dataplane.Route{
		"203.0.113.0/24":     {Link: 0, Source: addr("203.0.113.1")},
		"0.0.0.0/0":          {Link: 0, Gateway: addr("203.0.113.10")},
		"198.51.100.0/24":    {Link: -1, Source: addr("198.51.100.1")},
		"10.9.0.0/16":        {Link: -1},
		"10.8.0.0/16":        {Link: 0, Gateway: addr("203.0.113.8")},
		"2001:db8:0:80::/64": {Link: 0, Metric: 256},
	} {
		got, ok := r.route(dst)
		want.Dst = netip.MustParsePrefix(dst)
		if !ok || got != want {
			t.Errorf("route %s: got %+v, %v; want %+v", dst, got, ok, want)
		}
	}
	if !r.has(0, "203.0.113.1/24") || !r.has(0, "2001:db8:0:80::1/64") || r.has(-1, "198.51.100.1/24") {
		t.Errorf("addresses: %+v", r.table.Addrs)
	}
	// An address on any interface is the host's own, lo included.
	if !r.local("198.51.100.1") || !r.local("203.0.113.1") {
		t.Errorf("the host's own addresses: %v", r.table.Local)
	}
	lo, err := netlink.LinkByName("lo")
	must(t, err)
	must(t, netlink.AddrAdd(lo, &netlink.Addr{IPNet: ipNet(t, "203.0.113.80/32")}))
	within(t, time.Second, "a VIP on lo", func() bool { return r.local("203.0.113.80") })
	if !r.hints[addr("203.0.113.7")].Permanent {
		t.Error("a pinned neighbour is not told as permanent")
	}
	if r.hint("203.0.113.7") != hw {
		t.Errorf("neighbour 203.0.113.7: %v; want %v", r.hint("203.0.113.7"), hw)
	}

	// Then it follows.
	route(t, "10.7.0.0/16", "203.0.113.7")
	within(t, time.Second, "a new route", func() bool { x, ok := r.route("10.7.0.0/16"); return ok && x.Gateway == addr("203.0.113.7") })
	must(t, netlink.RouteDel(&netlink.Route{Dst: ipNet(t, "10.7.0.0/16")}))
	within(t, time.Second, "a deleted route", func() bool { _, ok := r.route("10.7.0.0/16"); return !ok })
	route(t, "10.8.0.0/16", "203.0.113.10")
	pin(t, "eth0", hw, "203.0.113.9")
	within(t, time.Second, "a new neighbour", func() bool { return r.hint("203.0.113.9") == hw })
	if x, _ := r.route("10.8.0.0/16"); x.Gateway != addr("203.0.113.8") {
		t.Errorf("the host's route won over the configured one: %+v", x)
	}
	l, err := netlink.LinkByName("eth0")
	must(t, err)
	must(t, netlink.NeighDel(&netlink.Neigh{LinkIndex: l.Attrs().Index, IP: net.ParseIP("203.0.113.9")}))
	within(t, time.Second, "a deleted neighbour", func() bool { return r.hint("203.0.113.9").IsZero() })
}

// A storm of changes leads to few readings.
func TestWatcherWaitsForABurstToEnd(t *testing.T) {
	nstest.Enter(t)
	p := newPeer(t)
	cable(t, p, "eth0", "p0", []string{"203.0.113.1/24"}, []string{"203.0.113.10/24"})
	r := watching(t, []host.Link{{Name: "eth0"}}, host.Static{})
	for i := range 200 {
		must(t, netlink.RouteAdd(&netlink.Route{Dst: &net.IPNet{IP: net.IPv4(10, 0, byte(i), 0), Mask: net.CIDRMask(24, 32)}, Gw: net.ParseIP("203.0.113.10")}))
	}
	within(t, 2*time.Second, "the last route", func() bool { _, ok := r.route("10.0.199.0/24"); return ok })
	if r.mu.Lock(); r.sets > 20 {
		t.Errorf("200 routes led to %d tables; want few", r.sets)
	}
	r.mu.Unlock()
}

// An interface that is deleted and made again has a new index.
func TestWatcherFindsAnInterfaceThatComesBack(t *testing.T) {
	nstest.Enter(t)
	p := newPeer(t)
	cable(t, p, "eth0", "p0", []string{"203.0.113.1/24"}, []string{"203.0.113.10/24"})
	r := watching(t, []host.Link{{Name: "lo"}, {Name: "eth0"}}, host.Static{})
	if x, ok := r.route("203.0.113.0/24"); !ok || x.Link != 1 {
		t.Fatalf("at first: %+v, %v", x, ok)
	}
	l, err := netlink.LinkByName("eth0")
	must(t, err)
	must(t, netlink.LinkDel(l))
	within(t, time.Second, "the route to go", func() bool { _, ok := r.route("203.0.113.0/24"); return !ok })
	cable(t, p, "eth0", "p1", []string{"203.0.113.1/24"}, []string{"203.0.113.10/24"})
	within(t, time.Second, "the route to come back", func() bool { x, ok := r.route("203.0.113.0/24"); return ok && x.Link == 1 })
	hw := packet.MAC{2, 0, 0, 0, 0, 7}
	pin(t, "eth0", hw, "203.0.113.7")
	within(t, time.Second, "a neighbour on the new interface", func() bool { return r.hint("203.0.113.7") == hw })
}

// Configured addresses stand in place of the host's on their link, and bring
// their subnet's route.
func TestWatcherPrefersConfiguredAddresses(t *testing.T) {
	nstest.Enter(t)
	p := newPeer(t)
	cable(t, p, "eth0", "p0", []string{"203.0.113.1/24"}, nil)
	r := watching(t, []host.Link{{Name: "eth0"}}, host.Static{Addrs: []dataplane.LinkAddr{{Link: 0, Prefix: netip.MustParsePrefix("192.0.2.1/24")}}})
	if !r.has(0, "192.0.2.1/24") || r.has(0, "203.0.113.1/24") {
		t.Errorf("addresses: %+v", r.table.Addrs)
	}
	if x, ok := r.route("192.0.2.0/24"); !ok || x.Link != 0 || x.Source != addr("192.0.2.1") {
		t.Errorf("the subnet's route: %+v, %v", x, ok)
	}
}

// Behind a tundev the host routes: the director sees one link to everywhere,
// with the addresses and MTUs the host will use.
func TestWatcherTurnsTheHostsRoutesIntoTheTundevs(t *testing.T) {
	nstest.Enter(t)
	p := newPeer(t)
	cable(t, p, "eth0", "p0", []string{"192.0.2.254/24"}, nil)
	l, err := netlink.LinkByName("eth0")
	must(t, err)
	must(t, netlink.LinkSetMTU(l, 1400))
	route(t, "0.0.0.0/0", "192.0.2.1")
	r := watching(t, []host.Link{{Name: "lb0", Tundev: true}}, host.Static{})
	for dst, want := range map[string]dataplane.Route{
		"192.0.2.0/24": {Link: 0, Source: addr("192.0.2.254"), MTU: 1400},
		"0.0.0.0/0":    {Link: 0, Source: addr("192.0.2.254"), MTU: 1400},
	} {
		want.Dst = netip.MustParsePrefix(dst)
		if got, ok := r.route(dst); !ok || got != want {
			t.Errorf("route %s: %+v, %v; want %+v", dst, got, ok, want)
		}
	}
	if !r.has(0, "192.0.2.254/24") {
		t.Errorf("addresses: %+v", r.table.Addrs)
	}
}

func ipNet(t *testing.T, s string) *net.IPNet {
	t.Helper()
	_, n, err := net.ParseCIDR(s)
	must(t, err)
	return n
}

// A machine that answers for the VIP beside another is found; field case 42.
func TestAskFindsEveryMachineThatAnswers(t *testing.T) {
	nstest.Enter(t)
	// A segment with two machines: a bridge with a port to each.
	must(t, netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}))
	up(t, "br0", []string{"203.0.113.254/24", "2001:db8:0:80::fe/64"})
	bridge, err := netlink.LinkByName("br0")
	must(t, err)
	var macs []packet.MAC
	machines := []*peer{newPeer(t), newPeer(t)}
	for i, m := range machines {
		name := []string{"d", "r"}[i]
		own := []string{"203.0.113.1/24", "203.0.113.2/24"}[i]
		cable(t, m, name, "eth0", nil, []string{own, "203.0.113.80/32", "2001:db8:0:80::80/128"})
		l, err := netlink.LinkByName(name)
		must(t, err)
		must(t, netlink.LinkSetMaster(l, bridge))
		m.do(func() { macs = append(macs, mac(t, "eth0")) })
	}
	ask := func(a string) []packet.MAC {
		got, err := host.Ask(t.Context(), "br0", netip.MustParseAddr(a), 300*time.Millisecond)
		must(t, err)
		return got
	}
	both := func(got []packet.MAC) bool {
		return len(got) == 2 && slices.Contains(got, macs[0]) && slices.Contains(got, macs[1])
	}
	if got := ask("203.0.113.80"); !both(got) {
		t.Errorf("ARP: %v; want %v", got, macs)
	}
	if got := ask("2001:db8:0:80::80"); !both(got) {
		t.Errorf("ND: %v; want %v", got, macs)
	}
	// The second machine's VIP moves to lo, with arp_ignore as a DR server
	// has it: one answer is left.
	machines[1].do(func() {
		_ = os.WriteFile("/proc/sys/net/ipv4/conf/all/arp_ignore", []byte("1"), 0)
		l, err := netlink.LinkByName("eth0")
		if err == nil {
			err = netlink.AddrDel(l, &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP("203.0.113.80"), Mask: net.CIDRMask(32, 32)}})
		}
		if err != nil {
			t.Error(err)
		}
		up(t, "lo", []string{"203.0.113.80/32"})
	})
	if got := ask("203.0.113.80"); !slices.Equal(got, macs[:1]) {
		t.Errorf("ARP with one server silenced: %v; want %v", got, macs[:1])
	}
	if got := ask("203.0.113.99"); len(got) != 0 {
		t.Errorf("for an address nobody has: %v", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	if _, err := host.Ask(ctx, "br0", netip.MustParseAddr("203.0.113.99"), time.Minute); err == nil || time.Since(start) > 5*time.Second {
		t.Errorf("cancelled: %v after %v", err, time.Since(start))
	}
}
