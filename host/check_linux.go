package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// checkWait is how long Check waits for another machine's answer.
const checkWait = 300 * time.Millisecond

// checker collects findings about one plan.
type checker struct {
	Plan
	reading
	table    dataplane.HostTable
	findings []Finding
}

// Check looks for what would break forwarding on this host before it begins,
// worst first within each subject. It changes nothing; with the right to do
// so, it asks the links' segments whether another machine has a VIP.
func Check(ctx context.Context, p Plan) ([]Finding, error) {
	c := &checker{Plan: p}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	defer h.Close()
	if c.reading, err = read(h); err != nil {
		return nil, err
	}
	c.table = c.reading.table(p.Links, p.Static)
	raw := c.rights()
	for n, l := range p.Links {
		if l.Tundev {
			c.tundev(l)
		} else if l.Local {
			c.tunDevice(l)
		} else {
			c.card(n, l)
		}
	}
	c.mtus()
	c.vips()
	c.sources()
	c.servers()
	c.marks()
	if raw {
		c.others(ctx)
	}
	return c.findings, nil
}

// find notes a finding, once: several services may have one real server.
func (c *checker) find(s Severity, remedy, what string, args ...any) {
	if f := (Finding{s, fmt.Sprintf(what, args...), remedy}); !slices.Contains(c.findings, f) {
		c.findings = append(c.findings, f)
	}
}

// rights checks the process's capabilities and nftables; it reports whether
// raw sockets may be opened.
func (c *checker) rights() (raw bool) {
	have, err := capabilities()
	if err != nil {
		c.find(Warning, "", "the process's capabilities cannot be read: %v", err)
		return false
	}
	const remedy = "run as root, or: setcap cap_net_raw,cap_net_admin+ep on the program"
	var missing []string
	raw = have&(1<<unix.CAP_NET_RAW) != 0
	if !raw {
		missing = append(missing, "CAP_NET_RAW (raw sockets)")
	}
	if have&(1<<unix.CAP_NET_ADMIN) == 0 {
		missing = append(missing, "CAP_NET_ADMIN (rings, packet filter, routes)")
	}
	if len(missing) > 0 {
		c.find(Fault, remedy, "this process has no right to %s", strings.Join(missing, " nor "))
		return raw
	}
	conn, err := nftables.New()
	if err == nil {
		_, err = conn.ListTables()
	}
	if err != nil {
		c.find(Warning, "modprobe nf_tables, or a kernel with CONFIG_NF_TABLES",
			"nftables is missing (%v), so the host cannot be kept from answering or forwarding what the director handles", err)
	}
	return raw
}

// capabilities returns the first 64 effective capabilities.
func capabilities() (uint64, error) {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		return 0, err
	}
	return uint64(data[0].Effective) | uint64(data[1].Effective)<<32, nil
}

// tunDevice looks whether a TUN device can be made.
func (c *checker) tunDevice(l Link) {
	if f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0); err != nil {
		remedy := "modprobe tun"
		if errors.Is(err, os.ErrPermission) {
			remedy = "run as root, or give this user the device"
		}
		c.find(Fault, remedy, "tundev %s: %v", l.Name, err)
	} else {
		f.Close()
	}
}

func (c *checker) tundev(l Link) {
	c.tunDevice(l)
	for _, s := range []struct{ name, good string }{
		{"ipv4/ip_forward", "1"}, {"ipv4/conf/all/rp_filter", "0"},
	} {
		if v, err := readSysctl("/proc/sys/net/" + s.name); err == nil && v != s.good {
			c.find(Note, "it is set back when the director stops", "net.%s is %s, and the tundev %s needs %s: the director sets it",
				strings.ReplaceAll(s.name, "/", "."), v, l.Name, s.good)
		}
	}
}

// card checks a link on a network card.
func (c *checker) card(n int, l Link) {
	i := c.all.named(l.Name)
	if i == nil {
		c.find(Fault, "ip link shows those there are", "link %s: there is no such interface", l.Name)
		return
	}
	a := i.Attrs()
	if a.EncapType != "ether" {
		c.find(Fault, "use an Ethernet interface, or a tundev", "link %s: is of type %q and carries no Ethernet frames", l.Name, a.EncapType)
		return
	}
	switch {
	case a.Flags&net.FlagUp == 0:
		c.find(Warning, fmt.Sprintf("ip link set %s up", l.Name), "link %s: is down; the director waits for it", l.Name)
	case a.RawFlags&unix.IFF_LOWER_UP == 0:
		c.find(Warning, "look after the cable or the other end", "link %s: has no carrier", l.Name)
	}
	hasV4 := false
	for _, addr := range c.table.Addrs {
		hasV4 = hasV4 || addr.Link == n && addr.Prefix.Addr().Is4()
	}
	if !hasV4 && c.serves(func(vip packet.Addr) bool { return vip.Is4() }) {
		c.find(Warning, fmt.Sprintf("ip addr add ADDRESS/LENGTH dev %s, or links[%d].addresses in the configuration", l.Name, n),
			"link %s: has no IPv4 address, so the director can neither ask for neighbours there nor tunnel from it", l.Name)
	}
	c.reversePath(l)
	c.merged(l)
}

// reversePath tells of a strict reverse path filter: the larger value of "all"
// and the interface's counts (Documentation/networking/ip-sysctl). It does not
// touch frames the director reads, but the host's own traffic on asymmetric
// routes, and every real server that gets tunnelled packets.
func (c *checker) reversePath(l Link) {
	all, err1 := readSysctl("/proc/sys/net/ipv4/conf/all/rp_filter")
	own, err2 := readSysctl("/proc/sys/net/ipv4/conf/" + l.Name + "/rp_filter")
	if err1 != nil || err2 != nil || max(number(all), number(own)) != 1 {
		return
	}
	c.find(Note, fmt.Sprintf("sysctl -w net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.%s.rp_filter=0 if the host shall answer on asymmetric routes", l.Name),
		"link %s: reverse path filter is strict (all=%s, %s=%s: the larger counts); the host drops packets whose answer would leave elsewhere, the director does not",
		l.Name, all, l.Name, own)
}

// merged tells of receive offloads that lose the size of the segments.
func (c *checker) merged(l Link) {
	for _, name := range c.Merged {
		if name != l.Name {
			continue
		}
		for _, o := range []struct {
			on   func(string) (bool, error)
			flag string
		}{{groOn, "gro"}, {lroOn, "lro"}} {
			if on, err := o.on(l.Name); err == nil && on {
				c.find(Fault, fmt.Sprintf("ethtool -K %s %s off", l.Name, o.flag),
					"link %s: %s merges received segments, and this link cannot tell their size", l.Name, strings.ToUpper(o.flag))
			}
		}
	}
}

// mtus compares the links' MTUs with each other and with what the protocols
// need at least.
func (c *checker) mtus() {
	low, high := -1, -1
	mtu := func(n int) int { return c.all.named(c.Links[n].Name).Attrs().MTU }
	for n, l := range c.Links {
		if l.Tundev || l.Local || c.all.named(l.Name) == nil {
			continue
		}
		if least := c.leastMTU(); mtu(n) < least {
			c.find(Fault, fmt.Sprintf("ip link set %s mtu 1500", l.Name), "link %s: MTU %d is below the %d that IP needs", l.Name, mtu(n), least)
		}
		if low < 0 || mtu(n) < mtu(low) {
			low = n
		}
		if high < 0 || mtu(n) > mtu(high) {
			high = n
		}
	}
	if low >= 0 && mtu(low) != mtu(high) {
		c.find(Warning, "give all links on the way one MTU",
			"MTU of link %s is %d, of link %s %d: large packets from the one do not fit the other, and clients must heed ICMP",
			c.Links[low].Name, mtu(low), c.Links[high].Name, mtu(high))
	}
	if headers := c.tunnelHeaders(); low >= 0 && headers > 0 && mtu(low) < ethernetMTU+headers {
		c.find(Note, fmt.Sprintf("use MTU %d between director and servers, or lower the servers' MSS (advmss) by %d", ethernetMTU+headers, headers),
			"tunnels put up to %d bytes in front of a packet, and the MTU of link %s is %d: full-sized requests from clients are answered with ICMP \"too big\"",
			headers, c.Links[low].Name, mtu(low))
	}
}

// ethernetMTU is the size of packet that clients send when nothing tells them of
// another.
const ethernetMTU = 1500

// tunnelHeaders returns the most bytes that a tunnel to one of the real servers
// puts in front of a packet; 0: there are no tunnels.
func (c *checker) tunnelHeaders() (most int) {
	for _, s := range c.Rules.Services {
		for _, rs := range s.Servers {
			if rs.Method == lvs.Tunnel {
				most = max(most, rs.Tunnel.HeaderLen(rs.RIP))
			}
		}
	}
	return most
}

// leastMTU is 1280 with IPv6 services (RFC 8200 section 5), else 576, below
// which IPv4 hosts need not reassemble (RFC 791).
func (c *checker) leastMTU() int {
	if c.serves(func(vip packet.Addr) bool { return !vip.Is4() }) {
		return 1280
	}
	return 576
}

func (c *checker) serves(is func(vip packet.Addr) bool) bool {
	for _, vip := range VIPs(c.Rules) {
		if is(vip) {
			return true
		}
	}
	return false
}

func (c *checker) uses(m lvs.Method) bool {
	for _, s := range c.Rules.Services {
		for _, rs := range s.Servers {
			if rs.Method == m {
				return true
			}
		}
	}
	return false
}

// hasTundev reports whether one of the links is a tundev.
func (c *checker) hasTundev() bool {
	return slices.ContainsFunc(c.Links, func(l Link) bool { return l.Tundev })
}

// vips tells of VIPs that the host itself has.
func (c *checker) vips() {
	for _, vip := range VIPs(c.Rules) {
		for _, a := range c.addrs {
			p, ok := prefixOf(a.IPNet)
			i := c.all.index(a.LinkIndex)
			if !ok || i == nil || packet.AddrFrom(p.Addr()) != vip {
				continue
			}
			remedy := fmt.Sprintf("ip addr del %s dev %s", p, i.Attrs().Name)
			if c.hasTundev() {
				c.find(Fault, remedy, "VIP %s is configured on %s, so the host would not route it into the tundev", vip, i.Attrs().Name)
			} else {
				c.find(Note, remedy+" if nothing else needs it",
					"VIP %s is configured on %s; the director keeps the host from answering on the served ports", vip, i.Attrs().Name)
			}
		}
	}
}

// servers looks for real servers that no route leads to.
func (c *checker) servers() {
	for _, s := range c.Rules.Services {
		for _, rs := range s.Servers {
			c.localServer(s, rs)
			route, ok := c.lookup(rs.RIP.Netip())
			switch {
			case !ok || route.Link < 0:
				where := "no route leads to it"
				if ok {
					where = "the route to " + route.Dst.String() + " leaves by no link of the director"
				}
				c.find(Fault, "add a route on the host, or under routes in the configuration, by one of the links", "real server %s: %s", rs.RIP, where)
			case rs.Method == lvs.Route && route.Gateway.IsValid():
				c.find(Fault, "put it on one segment with the director, or use tun",
					"real server %s: is behind the gateway %s, and dr reaches only machines on the director's own segment", rs.RIP, route.Gateway)
			case rs.Method == lvs.Tunnel && !s.Is4():
				c.narrowTunnel(rs, route)
			}
		}
	}
	for _, v4 := range []bool{true, false} {
		any := netip.IPv4Unspecified()
		if !v4 {
			any = netip.IPv6Unspecified()
		}
		if route, ok := c.lookup(any); c.uses(lvs.Masq) && c.serves(func(vip packet.Addr) bool { return vip.Is4() == v4 }) && (!ok || route.Link < 0) {
			c.find(Warning, "add a default route by one of the links if clients are elsewhere",
				"there is no default route by a link: replies reach only clients that another route leads to")
		}
	}
}

// narrowTunnel tells of a way to a real server on which the smallest packet
// size that every IPv6 sender may use does not fit behind the tunnel's headers.
// The sender is never told less than that (RFC 8200 section 5), so its packets in
// between are lost for good.
func (c *checker) narrowTunnel(rs lvs.RealServer, route dataplane.Route) {
	const smallest = 1280
	headers := rs.Tunnel.HeaderLen(rs.RIP)
	l := c.Links[route.Link]
	i := c.all.named(l.Name)
	if i == nil {
		return // a tundev is not there yet
	}
	mtu, remedy := i.Attrs().MTU, fmt.Sprintf("ip link set %s mtu %d, or more", l.Name, smallest+headers)
	if route.MTU > 0 && route.MTU < mtu {
		mtu, remedy = route.MTU, fmt.Sprintf("give the route to %s an mtu of %d or more, or none", route.Dst, smallest+headers)
	}
	if mtu >= smallest+headers {
		return
	}
	c.find(Warning, remedy,
		"real server %s: MTU %d towards it leaves %d beside the tunnel's headers of %d bytes, but IPv6 hosts may send %d always: packets larger than %d are lost, whatever their sender is told",
		rs.RIP, mtu, mtu-headers, headers, smallest, mtu-headers)
}

// lookup finds the most specific route, and of several the one with the
// smallest metric, the first of those.
func (c *checker) lookup(a netip.Addr) (best dataplane.Route, ok bool) {
	for _, r := range c.table.Routes {
		if r.Dst.Contains(a) && (!ok || r.Dst.Bits() > best.Dst.Bits() || r.Dst.Bits() == best.Dst.Bits() && r.Metric < best.Metric) {
			best, ok = r, true
		}
	}
	return best, ok
}
