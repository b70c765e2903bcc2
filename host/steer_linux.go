package host

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
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

// Steer makes the host route what the director handles into the tundev dev,
// and forward what comes out of it:
//
//   - the VIPs, and networks marked for a service, are routed into dev, and the host answers ARP or ND for those
//     that lie in a subnet of one of its interfaces;
//   - what NAT servers reply, told by address, protocol and source port, is
//     routed into dev by rules, unless it comes from dev;
//   - forwarding is on; dev accepts packets from any source, the host's own
//     addresses included, because tunnelled packets carry the director's.
//
// Everything is undone by c.Release; what belongs to dev goes with it.
func (c *Claim) Steer(dev string, rules lvs.Ruleset) error {
	l, err := netlink.LinkByName(dev)
	if err != nil {
		return fmt.Errorf("tundev %s: %w", dev, err)
	}
	if err := netlink.LinkSetTxQLen(l, tundevQueue); err != nil {
		return fmt.Errorf("tundev %s: queue length: %w", dev, err)
	}
	all, err := listInterfaces()
	if err != nil {
		return err
	}
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	var v4, v6 bool
	for i := range rules.Services {
		v4, v6 = v4 || rules.Services[i].Is4(), v6 || !rules.Services[i].Is4()
	}
	if err := c.openTundev(dev, all, v4, v6); err != nil {
		return err
	}
	for _, vip := range VIPs(rules) {
		if err := c.steerVIP(l, all, addrs, vip.Netip()); err != nil {
			return err
		}
	}
	for _, p := range routedPrefixes(rules) {
		route := &netlink.Route{LinkIndex: l.Attrs().Index, Dst: ipNetOf(p), Protocol: unix.RTPROT_STATIC, Scope: netlink.SCOPE_LINK}
		if err := c.route(route); err != nil {
			return fmt.Errorf("marked network %s: route into %s: %w", p, dev, err)
		}
	}
	for _, v := range []struct{ want, v6 bool }{{v4, false}, {v6, true}} {
		if !v.want {
			continue
		}
		if err := c.steerReplies(l, rules, v.v6); err != nil {
			return err
		}
	}
	return nil
}

// openTundev sets the sysctls. A reverse path filter on "all" counts for the
// tundev too (the larger value wins), so it moves from there to the single
// interfaces, which keep it.
func (c *Claim) openTundev(dev string, all interfaces, v4, v6 bool) error {
	type setting struct{ name, value string }
	var set []setting
	if v4 {
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
		// The tundev's own go with it. Writing them also keeps "default" off.
		for name, value := range map[string]string{"rp_filter": "0", "accept_local": "1"} {
			if err := os.WriteFile("/proc/sys/net/"+conf+dev+"/"+name, []byte(value), 0o644); err != nil {
				return fmt.Errorf("sysctl: %w", err)
			}
		}
		for _, n := range append(names, "default") {
			own, err := readSysctl("/proc/sys/net/" + conf + n + "/rp_filter")
			if err == nil && number(own) < number(strictest) {
				set = append(set, setting{conf + n + "/rp_filter", strictest})
			}
		}
		set = append(set, setting{conf + "all/rp_filter", "0"}, setting{"ipv4/ip_forward", "1"})
	}
	if v6 {
		set = append(set, setting{"ipv6/conf/all/forwarding", "1"})
	}
	for _, s := range set {
		if err := c.sysctl(s.name, s.value); err != nil {
			return err
		}
	}
	return nil
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}

func (c *Claim) steerVIP(l netlink.Link, all interfaces, addrs []netlink.Addr, vip netip.Addr) error {
	for _, a := range addrs {
		p, ok := prefixOf(a.IPNet)
		if !ok {
			continue
		}
		i := all.index(a.LinkIndex)
		if i == nil {
			continue
		}
		if p.Addr() == vip {
			return fmt.Errorf("VIP %s: is configured on %s, so the host keeps its packets to itself: ip addr del %s dev %s",
				vip, i.Attrs().Name, p, i.Attrs().Name)
		}
		if p.Contains(vip) && p.Bits() < vip.BitLen() && i.Attrs().Flags&net.FlagLoopback == 0 {
			if err := c.answerFor(i.Attrs().Name, vip); err != nil {
				return err
			}
		}
	}
	route := &netlink.Route{LinkIndex: l.Attrs().Index, Dst: ipNetOf(netip.PrefixFrom(vip, vip.BitLen())), Protocol: unix.RTPROT_STATIC, Scope: netlink.SCOPE_LINK}
	if err := c.route(route); err != nil {
		return fmt.Errorf("VIP %s: route into %s: %w", vip, l.Attrs().Name, err)
	}
	return nil
}

// route adds a route into a tundev and remembers it.
func (c *Claim) route(r *netlink.Route) error {
	if err := netlink.RouteReplace(r); err != nil {
		return err
	}
	c.routes = append(c.routes, *r)
	return nil
}

// answerFor makes the host answer neighbour questions for the VIP on dev, at
// once: by default it would wait up to 0.8 s before it answers for another.
func (c *Claim) answerFor(dev string, vip netip.Addr) error {
	family := "ipv4"
	if vip.Is6() {
		family = "ipv6"
		if err := c.sysctl("ipv6/conf/"+dev+"/proxy_ndp", "1"); err != nil {
			return err
		}
	}
	if err := c.sysctl(family+"/neigh/"+dev+"/proxy_delay", "0"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return c.make(change{Proxy: &proxyChange{dev, vip}})
}

func (c *Claim) steerReplies(l netlink.Link, rules lvs.Ruleset, v6 bool) error {
	dev, zero := l.Attrs().Name, netip.IPv4Unspecified()
	if v6 {
		zero = netip.IPv6Unspecified()
	}
	route := &netlink.Route{LinkIndex: l.Attrs().Index, Table: steerTable, Dst: ipNetOf(netip.PrefixFrom(zero, 0)),
		Protocol: unix.RTPROT_STATIC, Scope: netlink.SCOPE_LINK}
	if err := c.route(route); err != nil {
		return fmt.Errorf("routing table %d: %w", steerTable, err)
	}
	if err := c.make(change{Rule: &ruleChange{Priority: steerPriority, Table: unix.RT_TABLE_MAIN, Interface: dev, V6: v6}}); err != nil {
		return err
	}
	for _, r := range RulesFor(nil, rules).Replies {
		if r.RIP.Is4() == v6 {
			continue
		}
		err := c.make(change{Rule: &ruleChange{
			Priority: steerPriority + 1, Table: steerTable, V6: v6, From: hostPrefix(r.RIP), Proto: int(r.Proto),
			Port: r.Ports.From, LastPort: r.Ports.To,
		}})
		if err != nil {
			return err
		}
	}
	return nil
}

func hostPrefix(a packet.Addr) netip.Prefix {
	n := a.Netip()
	return netip.PrefixFrom(n, n.BitLen())
}
