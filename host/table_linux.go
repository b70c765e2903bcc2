package host

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"pktdirector/dataplane"
	"pktdirector/packet"
)

// reading is one look at the host's tables.
type reading struct {
	all    interfaces
	addrs  []netlink.Addr
	routes []netlink.Route
}

func read(h *netlink.Handle) (reading, error) {
	var r reading
	links, err := h.LinkList()
	if err != nil {
		return r, fmt.Errorf("list interfaces: %w", err)
	}
	r.all = links
	if r.addrs, err = h.AddrList(nil, netlink.FAMILY_ALL); err != nil {
		return r, fmt.Errorf("list addresses: %w", err)
	}
	// The main table of both IP versions, in the order in which the kernel
	// would look.
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := h.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return r, fmt.Errorf("list routes: %w", err)
		}
		r.routes = append(r.routes, routes...)
	}
	return r, nil
}

// indexes maps the host's interface indexes to the director's links. At most
// one tundev stands for all interfaces that are no link themselves, because
// the host routes what the director writes into it; its index is the second
// result, or -1.
func (r *reading) indexes(links []Link) (map[int]int, int) {
	of, tundev := map[int]int{}, -1
	for n, l := range links {
		if l.Local {
			continue
		}
		if l.Tundev {
			tundev = n
			continue
		}
		if i := r.all.of(l); i != nil {
			of[i.Attrs().Index] = n
		}
	}
	return of, tundev
}

// table puts the reading and the static part into the director's terms.
func (r *reading) table(links []Link, static Static) dataplane.HostTable {
	t := dataplane.HostTable{Addrs: slices.Clone(static.Addrs)}
	of, tundev := r.indexes(links)
	linkOf := func(index int) int {
		if n, ok := of[index]; ok {
			return n
		}
		i := r.all.index(index)
		if i == nil || i.Attrs().Flags&net.FlagLoopback != 0 || slices.ContainsFunc(links, func(l Link) bool { return l.Name == i.Attrs().Name }) {
			return -1
		}
		return tundev
	}
	owner := func(n int) bool {
		return slices.ContainsFunc(static.Addrs, func(a dataplane.LinkAddr) bool { return a.Link == n })
	}
	for _, a := range r.addrs {
		n := linkOf(a.LinkIndex)
		p, ok := prefixOf(a.IPNet)
		if ok {
			t.Local = append(t.Local, packet.AddrFrom(p.Addr()))
		}
		if ok && n >= 0 && !owner(n) {
			t.Addrs = append(t.Addrs, dataplane.LinkAddr{Link: n, Prefix: p})
		}
	}
	known := map[netip.Prefix]bool{}
	add := func(route dataplane.Route) { t.Routes = append(t.Routes, route) }
	for _, s := range static.Routes {
		add(dataplane.Route{Dst: s.To, Gateway: s.Via, Link: s.Link})
		known[s.To] = true
	}
	for _, a := range static.Addrs {
		if dst := a.Prefix.Masked(); !known[dst] {
			add(dataplane.Route{Dst: dst, Link: a.Link, Source: packet.AddrFrom(a.Prefix.Addr())})
			known[dst] = true
		}
	}
	for _, route := range r.routes {
		if out, ok := r.route(route, linkOf); ok && !known[out.Dst] {
			if out.Link == tundev && tundev >= 0 {
				out = r.throughTundev(route, out)
			}
			add(out)
		}
	}
	return t
}

// route converts one of the host's routes. Routes that lead nowhere
// (unreachable, blackhole, prohibit) get link -1, as those by an interface
// that is no link. Of a multipath route the first living hop counts.
func (r *reading) route(from netlink.Route, linkOf func(int) int) (dataplane.Route, bool) {
	dst, ok := prefixOf(from.Dst)
	if !ok {
		dst = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if from.Family == netlink.FAMILY_V6 {
			dst = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
	}
	to := dataplane.Route{Dst: dst, Link: -1, Source: addrOf(from.Src), MTU: from.MTU, Metric: from.Priority}
	switch from.Type {
	case unix.RTN_UNICAST:
	case unix.RTN_BLACKHOLE, unix.RTN_UNREACHABLE, unix.RTN_PROHIBIT, unix.RTN_THROW:
		return to, from.Type != unix.RTN_THROW
	default:
		return to, false
	}
	index, gateway, via, flags := from.LinkIndex, from.Gw, from.Via, from.Flags
	for _, hop := range from.MultiPath {
		if hop.Flags&unix.RTNH_F_DEAD == 0 {
			index, gateway, via, flags = hop.LinkIndex, hop.Gw, hop.Via, hop.Flags
			break
		}
	}
	if flags&unix.RTNH_F_DEAD != 0 {
		return to, false
	}
	to.Link, to.Gateway = linkOf(index), addrOf(gateway)
	if v, ok := via.(*netlink.Via); ok {
		to.Gateway = addrOf(v.Addr)
	}
	return to, true
}

// throughTundev rewrites a route for a packet that the host will route after
// the tundev: the gateway is the host's business, and source and MTU are those
// of the interface the host will use.
func (r *reading) throughTundev(from netlink.Route, to dataplane.Route) dataplane.Route {
	to.Gateway = packet.Addr{}
	i := r.all.index(from.LinkIndex)
	if i == nil {
		return to
	}
	if mtu := i.Attrs().MTU; to.MTU == 0 || mtu < to.MTU {
		to.MTU = mtu
	}
	for _, a := range r.addrs {
		if to.Source.IsValid() {
			break
		}
		if p, ok := prefixOf(a.IPNet); ok && a.LinkIndex == from.LinkIndex && p.Addr().Is4() == to.Dst.Addr().Is4() && a.Scope == int(netlink.SCOPE_UNIVERSE) {
			to.Source = packet.AddrFrom(p.Addr())
		}
	}
	return to
}

// neighbours reads the host's neighbour tables of the links' interfaces.
func (r *reading) neighbours(h *netlink.Handle, links []Link) ([]dataplane.Neighbour, error) {
	of, _ := r.indexes(links)
	var out []dataplane.Neighbour
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		list, err := h.NeighList(0, family)
		if err != nil {
			return nil, fmt.Errorf("list neighbours: %w", err)
		}
		for i := range list {
			if n, ok := of[list[i].LinkIndex]; ok {
				if hint, ok := hintFrom(&list[i], n, links[n].VLAN); ok && !hint.MAC.IsZero() {
					out = append(out, hint)
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b dataplane.Neighbour) int {
		return cmp.Or(cmp.Compare(a.Link, b.Link), a.Addr.Netip().Compare(b.Addr.Netip()))
	})
	return out, nil
}

// hintFrom converts an entry of the host's neighbour table. Entries that the
// host itself does not believe (incomplete, failed) have no MAC; those that no
// machine on the wire stands behind (noarp, proxies) are not told at all.
func hintFrom(n *netlink.Neigh, link int, vlan uint16) (dataplane.Neighbour, bool) {
	hint := dataplane.Neighbour{Link: link, VLAN: vlan, Addr: addrOf(n.IP)}
	if !hint.Addr.IsValid() || n.Flags&netlink.NTF_PROXY != 0 || n.State&netlink.NUD_NOARP != 0 {
		return hint, false
	}
	const believed = netlink.NUD_REACHABLE | netlink.NUD_STALE | netlink.NUD_DELAY | netlink.NUD_PROBE | netlink.NUD_PERMANENT
	if n.State&believed != 0 && len(n.HardwareAddr) == len(hint.MAC) {
		hint.MAC = packet.MAC(n.HardwareAddr)
		hint.Permanent = n.State&netlink.NUD_PERMANENT != 0
	}
	return hint, true
}

func prefixOf(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	a, ok := netip.AddrFromSlice(n.IP)
	ones, bits := n.Mask.Size()
	if !ok || bits == 0 {
		return netip.Prefix{}, false
	}
	if a.Is4In6() && bits == 32 {
		a = a.Unmap()
	}
	return netip.PrefixFrom(a, ones), true
}

func addrOf(ip net.IP) packet.Addr {
	a, ok := netip.AddrFromSlice(ip)
	if !ok || a.IsUnspecified() {
		return packet.Addr{}
	}
	return packet.AddrFrom(a)
}
