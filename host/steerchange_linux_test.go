package host_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"pktdirector/host"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// steeredState lists what steering made on the host and of the tundev, the settings
// apart that stay until the end.
func steeredState(t *testing.T) []string {
	t.Helper()
	all := slices.DeleteFunc(hostState(t), func(s string) bool { return strings.HasPrefix(s, "/proc/") })
	lb, err := netlink.LinkByName("lb0")
	must(t, err)
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		for _, table := range []int{unix.RT_TABLE_MAIN, 11280} {
			routes, err := netlink.RouteListFiltered(family, &netlink.Route{Table: table, LinkIndex: lb.Attrs().Index}, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_OIF)
			must(t, err)
			for _, r := range routes {
				if r.Protocol == unix.RTPROT_STATIC {
					all = append(all, fmt.Sprintf("route %s table %d", r.Dst, table))
				}
			}
		}
	}
	slices.Sort(all)
	return all
}

// drawRules returns some of a few services and servers.
func drawRules(r *rand.Rand) lvs.Ruleset {
	var rules lvs.Ruleset
	for _, s := range webRules().Services {
		if r.IntN(3) == 0 {
			continue
		}
		s.Servers = nil
		for i := range byte(3) {
			rs := lvs.RealServer{ServerKey: lvs.ServerKey{RIP: packet.AddrFrom4([]byte{192, 0, 2, 11 + i}), Port: s.Port}, Method: lvs.Masq, Weight: 1}
			if !s.Is4() {
				rs.RIP = packet.MustParseAddr(fmt.Sprintf("2001:db8:2::%d", 11+i))
			}
			if r.IntN(2) == 0 {
				s.Servers = append(s.Servers, rs)
			}
		}
		rules.Services = append(rules.Services, s)
	}
	if r.IntN(2) == 0 {
		rules.Marks = []lvs.MarkRule{{Mark: 5, Link: -1, Dst: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}, Proto: packet.TCP,
			Ports: []lvs.PortRange{{From: 8000, To: 8000 + uint16(r.IntN(2))}}}}
		rules.Services = append(rules.Services, lvs.VirtualService{ServiceKey: lvs.ServiceKey{Mark: 5}, Scheduler: "rr",
			Servers: []lvs.RealServer{{ServerKey: lvs.ServerKey{RIP: packet.MustParseAddr("192.0.2.19")}, Method: lvs.Masq}}})
	}
	return rules
}

// TestSteeringFollowsOtherRules: after any number of changes the host is as if
// steering had begun with the last rules, and at the end as before all of it.
func TestSteeringFollowsOtherRules(t *testing.T) {
	tundevHost(t)
	dir := t.TempDir()
	before, routes := hostState(t), steeredState(t)
	r := rand.New(rand.NewPCG(1, 2))
	var steps []lvs.Ruleset
	for range 25 {
		steps = append(steps, drawRules(r))
	}
	fresh := func(rules lvs.Ruleset) []string {
		claim, _, err := host.TakeClaim(dir)
		must(t, err)
		must(t, claim.Steer("lb0", rules))
		state := steeredState(t)
		must(t, claim.Steer("lb0", lvs.Ruleset{})) // the routes, which else go with the device
		must(t, claim.Release())
		if diff := cmp.Diff(routes, steeredState(t)); diff != "" {
			t.Fatalf("nothing is balanced any more, and left on the host (-before +after):\n%s", diff)
		}
		return state
	}
	var want [][]string
	for _, rules := range steps {
		want = append(want, fresh(rules))
	}
	claim, _, err := host.TakeClaim(dir)
	must(t, err)
	for i, rules := range steps {
		must(t, claim.Steer("lb0", rules))
		if diff := cmp.Diff(want[i], steeredState(t)); diff != "" {
			t.Fatalf("after change %d (-fresh +changed):\n%s", i, diff)
		}
	}
	must(t, claim.Steer("lb0", lvs.Ruleset{}))
	must(t, claim.Release())
	if diff := cmp.Diff(before, hostState(t)); diff != "" {
		t.Errorf("left on the host (-before +after):\n%s", diff)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left in the state folder: %v", left)
	}
}

// TestSteeringThatFailsChangesNothing: the host has a VIP of the new rules.
func TestSteeringThatFailsChangesNothing(t *testing.T) {
	tundevHost(t)
	claim, _, err := host.TakeClaim(t.TempDir())
	must(t, err)
	defer func() { must(t, claim.Release()) }()
	rules := webRules()
	must(t, claim.Steer("lb0", rules))
	before := steeredState(t)
	more := webRules()
	more.Services = append(more.Services, lvs.VirtualService{ServiceKey: lvs.ServiceKey{Proto: packet.TCP, VIP: packet.MustParseAddr("203.0.113.81"), Port: 80}},
		lvs.VirtualService{ServiceKey: lvs.ServiceKey{Proto: packet.TCP, VIP: packet.MustParseAddr("203.0.113.1"), Port: 80}})
	if err := claim.Steer("lb0", more); err == nil || !strings.Contains(err.Error(), "VIP 203.0.113.1: is configured on eth0") {
		t.Errorf("a VIP of the host's own: %v", err)
	}
	if diff := cmp.Diff(before, steeredState(t)); diff != "" {
		t.Errorf("a change that was refused left (-before +after):\n%s", diff)
	}
}

// TestSteeringOfAKilledDirectorIsTakenBackAfterChanges: what a director that was
// killed made last, and what it had made before, are both off the host.
func TestSteeringOfAKilledDirectorIsTakenBackAfterChanges(t *testing.T) {
	tundevHost(t)
	dir := t.TempDir()
	t.Setenv(stateEnv, dir)
	before := hostState(t)
	kill := startChild(t, "steer-changes")
	kill()
	if cmp.Equal(before, hostState(t)) {
		t.Fatal("the killed director left nothing; the test shows nothing")
	}
	if _, err := host.Cleanup(dir); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, hostState(t)); diff != "" {
		t.Errorf("after cleanup (-before +after):\n%s", diff)
	}
}

// steerChanges is what the child of that test does.
func steerChanges(c *host.Claim) error {
	r := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		if err := c.Steer("lb0", drawRules(r)); err != nil {
			return err
		}
	}
	return c.Steer("lb0", webRules())
}
