package host

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"pktdirector/lvs"
	"pktdirector/packet"
)

// steerTable is the number of the routing table that leads into the tundev,
// and steerPriority where its rules stand: after the host's own addresses (0),
// before the main table (32766).
const (
	steerTable    = 11280
	steerPriority = 11280
)

// tundevQueue is how many packets may wait in the tundev for the director. The
// kernel's 500 are one burst of segments of a few connections.
const tundevQueue = 4096

// steering is what a tundev needs on the host to get the packets of a ruleset.
type steering struct {
	changes []change        // rules and proxies, which outlive the device
	routes  []netlink.Route // into the device; they go with it
	sysctls []setting       // which stay until the end
}

type setting struct{ name, value string }

// Steer makes the host route what the director handles into the tundev dev,
// and forward what comes out of it:
//
//   - the VIPs, FullNAT's source addresses, and networks marked for a service, are routed into dev, and the host
//     answers ARP or ND for those that lie in a subnet of one of its interfaces;
//   - what NAT servers reply, told by address, protocol and source port, is
//     routed into dev by rules, unless it comes from dev;
//   - forwarding is on; dev accepts packets from any source, the host's own
//     addresses included, because tunnelled packets carry the director's.
//
// Called again with other rules it makes what is new, then takes back what is not
// needed any more; what stays is not touched. With an error everything is as it was.
//
// Everything is undone by c.Release; what belongs to dev goes with it.
func (c *Claim) Steer(dev string, rules lvs.Ruleset) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	l, err := netlink.LinkByName(dev)
	if err != nil {
		return fmt.Errorf("tundev %s: %w", dev, err)
	}
	all, err := listInterfaces()
	if err != nil {
		return err
	}
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	routed := map[string]bool{} // VIPs that are steered already
	for _, r := range c.routes {
		routed[r.Dst.String()] = true
	}
	want, err := steeringFor(l, all, addrs, rules, routed)
	if err != nil {
		return err
	}
	if _, known := c.steered[dev]; !known {
		if err := netlink.LinkSetTxQLen(l, tundevQueue); err != nil {
			return fmt.Errorf("tundev %s: queue length: %w", dev, err)
		}
	}
	var v4, v6 bool
	for i := range rules.Services {
		v4, v6 = v4 || rules.Services[i].Is4(), v6 || !rules.Services[i].Is4()
	}
	if err := c.openTundev(dev, all, v4, v6); err != nil {
		return err
	}
	return c.steer(dev, want)
}

// steer goes from what is steered into dev to want.
func (c *Claim) steer(dev string, want steering) error {
	for _, s := range want.sysctls {
		if err := c.sysctl(s.name, s.value); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	there := c.held()
	want.changes = slices.DeleteFunc(want.changes, func(ch change) bool { return !there[ch.key()] && ch.was() })
	var changes []change
	for _, ch := range want.changes {
		if k := ch.key(); !there[k] {
			there[k] = true
			changes = append(changes, ch)
		}
	}
	if err := c.make(changes...); err != nil {
		return err
	}
	var routes []netlink.Route
	for _, r := range want.routes {
		if k := routeKeyOf(&r); !there[k] {
			if err := netlink.RouteReplace(&r); err != nil {
				err = fmt.Errorf("route %s into %s: %w", r.Dst, dev, err)
				return errors.Join(err, deleteRoutes(routes), c.unmake(changes))
			}
			there[k] = true
			routes = append(routes, r)
		}
	}
	c.routes = append(c.routes, routes...)
	before := c.steered[dev]
	if c.steered == nil {
		c.steered = map[string]steering{}
	}
	c.steered[dev] = want
	return c.abandon(before)
}

// held are the keys of all changes and routes that were made.
func (c *Claim) held() map[any]bool {
	all := map[any]bool{}
	for _, ch := range c.changes {
		all[ch.key()] = true
	}
	for i := range c.routes {
		all[routeKeyOf(&c.routes[i])] = true
	}
	return all
}

// routeKey identifies a route into a tundev.
type routeKey struct {
	table, dev int
	to         string
}

func routeKeyOf(r *netlink.Route) routeKey { return routeKey{r.Table, r.LinkIndex, r.Dst.String()} }

// abandon takes back what no tundev needs any more.
func (c *Claim) abandon(old steering) error {
	needed := map[any]bool{}
	for _, s := range c.steered {
		for _, ch := range s.changes {
			needed[ch.key()] = true
		}
		for i := range s.routes {
			needed[routeKeyOf(&s.routes[i])] = true
		}
	}
	changes := slices.DeleteFunc(slices.Clone(old.changes), func(ch change) bool { return needed[ch.key()] })
	routes := slices.DeleteFunc(slices.Clone(old.routes), func(r netlink.Route) bool { return needed[routeKeyOf(&r)] })
	gone := map[routeKey]bool{}
	for i := range routes {
		gone[routeKeyOf(&routes[i])] = true
	}
	// Off the list first: the watcher puts back what is on it.
	c.routes = slices.DeleteFunc(c.routes, func(r netlink.Route) bool { return gone[routeKeyOf(&r)] })
	return errors.Join(deleteRoutes(routes), c.unmake(changes))
}

// deleteRoutes deletes routes that may be gone already.
func deleteRoutes(routes []netlink.Route) (err error) {
	for i := range routes {
		e := netlink.RouteDel(&routes[i])
		if e != nil && !errors.Is(e, unix.ESRCH) && !errors.Is(e, unix.ENODEV) {
			err = errors.Join(err, fmt.Errorf("route %s: %w", routes[i].Dst, e))
		}
	}
	return err
}

// steeringFor lists what the tundev l needs for rules. It refuses a VIP that the host
// has, unless it is routed already.
func steeringFor(l netlink.Link, all interfaces, addrs []netlink.Addr, rules lvs.Ruleset, routed map[string]bool) (steering, error) {
	var s steering
	dev := l.Attrs().Name
	for _, vip := range append(VIPs(rules), rules.SourceAddrs()...) {
		if err := s.addVIP(l, all, addrs, vip.Netip(), routed); err != nil {
			return s, err
		}
	}
	for _, p := range routedPrefixes(rules) {
		s.addRoute(l, unix.RT_TABLE_MAIN, p)
	}
	for _, v6 := range []bool{false, true} {
		if !slices.ContainsFunc(rules.Services, func(x lvs.VirtualService) bool { return x.Is4() != v6 }) {
			continue
		}
		zero := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if v6 {
			zero = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		s.addRoute(l, steerTable, zero)
		s.changes = append(s.changes, change{Rule: &ruleChange{Priority: steerPriority, Table: unix.RT_TABLE_MAIN, Interface: dev, V6: v6}})
	}
	for _, r := range RulesFor(nil, rules).Replies {
		s.changes = append(s.changes, change{Rule: &ruleChange{
			Priority: steerPriority + 1, Table: steerTable, V6: !r.RIP.Is4(), From: hostPrefix(r.RIP), Proto: int(r.Proto),
			Port: r.Ports.From, LastPort: r.Ports.To,
		}})
	}
	return s, nil
}

// addRoute adds a route into a tundev.
func (s *steering) addRoute(l netlink.Link, table int, to netip.Prefix) {
	s.routes = append(s.routes, netlink.Route{
		LinkIndex: l.Attrs().Index, Table: table, Dst: ipNetOf(to), Protocol: unix.RTPROT_STATIC, Scope: netlink.SCOPE_LINK,
	})
}

// openTundev sets the sysctls.
func (c *Claim) openTundev(dev string, all interfaces, v4, v6 bool) error {
	if v4 {
		if err := c.acceptAny(dev, all); err != nil {
			return err
		}
		if err := c.sysctl("ipv4/ip_forward", "1"); err != nil {
			return err
		}
	}
	if v6 {
		return c.sysctl("ipv6/conf/all/forwarding", "1")
	}
	return nil
}

// acceptAny has the host accept packets of every source from dev. A reverse path
// filter on "all" counts for dev too (the larger value wins), so it moves from there
// to the single interfaces, which keep it.
func (c *Claim) acceptAny(dev string, all interfaces) error {
	const conf = "ipv4/conf/"
	strictest, err := readSysctl("/proc/sys/net/" + conf + "all/rp_filter")
	if err != nil {
		return err
	}
	// "default" comes last: the kernel copies it to every interface whose
	// own value nobody has written yet.
	names := []string{}
	for _, i := range all {
		if n := i.Attrs().Name; n != dev {
			names = append(names, n)
		}
	}
	// Those of dev go with it. Writing them also keeps "default" off.
	for name, value := range map[string]string{"rp_filter": "0", "accept_local": "1"} {
		if err := os.WriteFile("/proc/sys/net/"+conf+dev+"/"+name, []byte(value), 0o644); err != nil {
			return fmt.Errorf("sysctl: %w", err)
		}
	}
	for _, n := range append(names, "default") {
		own, err := readSysctl("/proc/sys/net/" + conf + n + "/rp_filter")
		if err == nil && number(own) < number(strictest) {
			if err := c.sysctl(conf+n+"/rp_filter", strictest); err != nil {
				return err
			}
		}
	}
	return c.sysctl(conf+"all/rp_filter", "0")
}

// OpenLocal makes the host take what a director hands it through dev, a TUN device,
// for its own sockets. Everything is undone by c.Release.
func (c *Claim) OpenLocal(dev string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	all, err := listInterfaces()
	if err != nil {
		return err
	}
	return c.acceptAny(dev, all)
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}

// addVIP routes a VIP into the tundev, and has the host answer for it where it lies
// in a subnet of one of its interfaces: at once, where the default is to wait up to
// 0.8 s before answering for another.
func (s *steering) addVIP(l netlink.Link, all interfaces, addrs []netlink.Addr, vip netip.Addr, routed map[string]bool) error {
	to := netip.PrefixFrom(vip, vip.BitLen())
	for _, a := range addrs {
		p, ok := prefixOf(a.IPNet)
		if !ok {
			continue
		}
		i := all.index(a.LinkIndex)
		if i == nil {
			continue
		}
		name := i.Attrs().Name
		if p.Addr() == vip && !routed[ipNetOf(to).String()] {
			return fmt.Errorf("VIP %s: is configured on %s, so the host keeps its packets to itself: ip addr del %s dev %s", vip, name, p, name)
		}
		if !p.Contains(vip) || p.Bits() >= vip.BitLen() || i.Attrs().Flags&net.FlagLoopback != 0 {
			continue
		}
		family := "ipv4"
		if vip.Is6() {
			family = "ipv6"
			s.sysctls = append(s.sysctls, setting{"ipv6/conf/" + name + "/proxy_ndp", "1"})
		}
		s.sysctls = append(s.sysctls, setting{family + "/neigh/" + name + "/proxy_delay", "0"})
		s.changes = append(s.changes, change{Proxy: &proxyChange{name, vip}})
	}
	s.addRoute(l, unix.RT_TABLE_MAIN, to)
	return nil
}

func hostPrefix(a packet.Addr) netip.Prefix {
	n := a.Netip()
	return netip.PrefixFrom(n, n.BitLen())
}
