package host

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"pktdirector/dataplane"
	"pktdirector/packet"
)

// A link bound to a VLAN takes routes, addresses and neighbours from the VLAN
// interface; one that is a bridge's port, from the bridge. The readings are
// made up: not every kernel that runs the tests has VLAN interfaces.
func TestReadingFindsTheInterfaceBehindALink(t *testing.T) {
	attrs := func(index int, name string) netlink.LinkAttrs {
		return netlink.LinkAttrs{Index: index, Name: name, MTU: 1500}
	}
	port := attrs(5, "eth1")
	port.MasterIndex = 6
	tagged := attrs(3, "vlan7")
	tagged.ParentIndex = 2
	r := reading{
		all: interfaces{
			&netlink.Device{LinkAttrs: attrs(2, "eth0")}, &netlink.Vlan{LinkAttrs: tagged, VlanId: 7},
			&netlink.Device{LinkAttrs: port}, &netlink.Bridge{LinkAttrs: attrs(6, "br0")},
		},
		addrs: []netlink.Addr{{IPNet: cidr("192.0.2.1/24"), LinkIndex: 3}, {IPNet: cidr("203.0.113.1/24"), LinkIndex: 2}},
		routes: []netlink.Route{
			{Dst: cidr("192.0.2.0/24"), LinkIndex: 3, Type: unix.RTN_UNICAST},
			{Dst: cidr("203.0.113.0/24"), LinkIndex: 2, Type: unix.RTN_UNICAST},
			{Dst: cidr("198.51.100.0/24"), LinkIndex: 6, Type: unix.RTN_UNICAST},
			{Family: netlink.FAMILY_V4, Type: unix.RTN_UNICAST, MultiPath: []*netlink.NexthopInfo{
				{LinkIndex: 2, Gw: net.IPv4(203, 0, 113, 9), Flags: unix.RTNH_F_DEAD},
				{LinkIndex: 3, Gw: net.IPv4(192, 0, 2, 9)},
			}},
		},
	}
	links := []Link{{Name: "eth0", VLAN: 7}, {Name: "eth1"}}
	got := r.table(links, Static{})
	want := []dataplane.Route{
		{Dst: netip.MustParsePrefix("192.0.2.0/24"), Link: 0},
		{Dst: netip.MustParsePrefix("203.0.113.0/24"), Link: -1},
		{Dst: netip.MustParsePrefix("198.51.100.0/24"), Link: 1},
		{Dst: netip.MustParsePrefix("0.0.0.0/0"), Link: 0, Gateway: packet.MustParseAddr("192.0.2.9")},
	}
	if len(got.Routes) != len(want) {
		t.Fatalf("routes: %+v", got.Routes)
	}
	for i := range want {
		if got.Routes[i] != want[i] {
			t.Errorf("route %d: got %+v, want %+v", i, got.Routes[i], want[i])
		}
	}
	if len(got.Addrs) != 1 || got.Addrs[0] != (dataplane.LinkAddr{Link: 0, Prefix: netip.MustParsePrefix("192.0.2.1/24")}) {
		t.Errorf("addresses: %+v", got.Addrs)
	}
	if i := r.all.of(Link{Name: "eth0", VLAN: 8}); i != nil {
		t.Errorf("VLAN 8 has no interface, got %s", i.Attrs().Name)
	}
}

func cidr(s string) *net.IPNet {
	ip, n, err := net.ParseCIDR(s)
	if err != nil {
		panic(err)
	}
	n.IP = ip
	return n
}
