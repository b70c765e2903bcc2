package sim

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/modes/dr"
	"pktdirector/modes/fullnat"
	"pktdirector/modes/nat"
	"pktdirector/modes/tun"
	"pktdirector/packet"
)

// The network around the director:
//
//	clients, behind the router 10.1.0.1 -- cli0  DIRECTOR  rs0 -- real servers
//
// Real server N is 10.2.0.N and 2001:db8:2::N, its MAC 02:00:00:00:02:N (N in
// hex in both). Clients may have any address. Every neighbour is known, and
// nobody answers by itself.
const (
	clientLink = 0
	serverLink = 1

	defaultMTU = 1500
	// maxServers is how many real servers the network has.
	maxServers = 250
)

func directorMAC(link int) packet.MAC { return packet.MAC{2, 0, 0, 0, byte(1 + link), 0xfe} }
func routerMAC() packet.MAC           { return packet.MAC{2, 0, 0, 0, 1, 1} }
func serverMAC(n int) packet.MAC      { return packet.MAC{2, 0, 0, 0, 2, byte(n)} }

// serverName names the real server with the MAC; a MAC that is none's stands
// for itself.
func serverName(m packet.MAC) string {
	if n := int(m[5]); m == serverMAC(n) && n != 0xfe {
		return fmt.Sprintf("RS%d", n)
	}
	return m.String()
}

// directorAddrs are the director's own addresses, by link.
func directorAddrs() [2][]netip.Prefix {
	return [2][]netip.Prefix{
		{netip.MustParsePrefix("10.1.0.254/16"), netip.MustParsePrefix("2001:db8:1::254/64")},
		{netip.MustParsePrefix("10.2.0.254/16"), netip.MustParsePrefix("2001:db8:2::254/64")},
	}
}

// vips are the addresses that the director has as VIPs whether a service uses
// them or not.
func vips() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("192.0.2.10/32"), netip.MustParsePrefix("192.0.2.11/32"), netip.MustParsePrefix("2001:db8:f::10/128"),
	}
}

// newDirector returns a director in the scenario's network.
func newDirector(s *Scenario, o Options) (*dataplane.Director, dataplane.HostTable, error) {
	table := hostTable()
	d := dataplane.New(dataplane.Options{Seed: o.Seed, Decisions: o.Explain, LocalVIPs: true, Forwarders: dataplane.Forwarders{
		lvs.Masq: nat.Masq{}, lvs.FullNAT: fullnat.Both{}, lvs.Route: dr.Gateway{}, lvs.Tunnel: tun.New(o.Seed),
	}})
	mtu := s.MTU
	if mtu == 0 {
		mtu = defaultMTU
	}
	d.SetLinks([]dataplane.LinkInfo{
		{Name: "cli0", MAC: directorMAC(clientLink), MTU: defaultMTU},
		{Name: "rs0", MAC: directorMAC(serverLink), MTU: mtu},
	})
	d.SetHost(table)
	d.SetLocal(localAddrs(s, table))
	marks, err := markRules(s.Marks)
	if err != nil {
		return nil, table, err
	}
	d.SetMarks(marks)
	for name, value := range s.Sysctl {
		if err := setTunable(d, name, value); err != nil {
			return nil, table, fmt.Errorf("sysctl: %w", err)
		}
	}
	return d, table, nil
}

// localAddrs are the addresses that the director answers for as a host does.
func localAddrs(s *Scenario, host dataplane.HostTable) []netip.Prefix {
	local := append(vips(), s.Local...)
	for _, a := range host.Addrs {
		local = append(local, netip.PrefixFrom(a.Prefix.Addr(), a.Prefix.Addr().BitLen()))
	}
	return local
}

// neighbourMAC is the MAC of a next hop.
func neighbourMAC(link int, hop packet.Addr) packet.MAC {
	if link == clientLink {
		return routerMAC()
	}
	last := hop.Netip().AsSlice()
	return serverMAC(int(last[len(last)-1]))
}

// hostTable is the director's host: connected nets, and a default route to the
// clients' router.
func hostTable() dataplane.HostTable {
	table := dataplane.HostTable{Routes: []dataplane.Route{
		{Dst: netip.MustParsePrefix("0.0.0.0/0"), Link: clientLink, Gateway: packet.MustParseAddr("10.1.0.1")},
		{Dst: netip.MustParsePrefix("::/0"), Link: clientLink, Gateway: packet.MustParseAddr("2001:db8:1::1")},
	}}
	for link, prefixes := range directorAddrs() {
		for _, p := range prefixes {
			table.Routes = append(table.Routes, dataplane.Route{Dst: p.Masked(), Link: link})
			table.Addrs = append(table.Addrs, dataplane.LinkAddr{Link: link, Prefix: p})
		}
	}
	return table
}

// routeOf reads a route as "ip route add" takes it: DST [via GATEWAY] [dev
// LINK].
func routeOf(args string) (dataplane.Route, error) {
	words := strings.Fields(args)
	if len(words) == 0 || len(words)%2 == 0 {
		return dataplane.Route{}, fmt.Errorf("route %q: write DST via GATEWAY dev LINK", args)
	}
	r := dataplane.Route{Link: -1}
	var err error
	if r.Dst, err = netip.ParsePrefix(words[0]); err != nil {
		one, addrErr := netip.ParseAddr(words[0])
		if addrErr != nil {
			return r, fmt.Errorf("route: %w", err)
		}
		r.Dst = netip.PrefixFrom(one, one.BitLen())
	}
	for i := 1; i < len(words); i += 2 {
		switch value := words[i+1]; words[i] {
		case "via":
			gateway, err := netip.ParseAddr(value)
			if err != nil {
				return r, fmt.Errorf("route: via: %w", err)
			}
			r.Gateway = packet.AddrFrom(gateway)
			for link, prefixes := range directorAddrs() {
				if slices.ContainsFunc(prefixes[:], func(p netip.Prefix) bool { return p.Contains(gateway) }) {
					r.Link = link
				}
			}
		case "dev":
			link := slices.Index([]string{"cli0", "rs0"}, value)
			if link < 0 {
				return r, fmt.Errorf("route: dev %q is none of the director's links: cli0, rs0", value)
			}
			r.Link = link
		default:
			return r, fmt.Errorf("route: %q is not known: via and dev are", words[i])
		}
	}
	if r.Link < 0 {
		return r, fmt.Errorf("route %q leads nowhere: write via GATEWAY or dev LINK", args)
	}
	return r, nil
}

func markRules(marks []Mark) ([]lvs.MarkRule, error) {
	var rules []lvs.MarkRule
	for i, m := range marks {
		r := lvs.MarkRule{Src: m.Src, Dst: m.Dst, Link: -1, Mark: m.Mark}
		if m.DPort != 0 {
			r.Ports = []lvs.PortRange{{From: m.DPort, To: m.DPort}}
		}
		if m.Proto != "" {
			var err error
			if r.Proto, err = protoOf(m.Proto); err != nil {
				return nil, fmt.Errorf("marks[%d].proto: %w", i, err)
			}
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// neighbourTrust is how long the director takes a neighbour for granted before
// it is told again: less than it takes to ask.
const neighbourTrust = 20 * time.Second

// introduce makes every neighbour known.
func introduce(d *dataplane.Director) {
	for _, router := range []string{"10.1.0.1", "2001:db8:1::1"} {
		d.Learn(dataplane.Neighbour{Link: clientLink, Addr: packet.MustParseAddr(router), MAC: routerMAC()})
	}
	for n := 1; n <= maxServers; n++ {
		for _, a := range []string{fmt.Sprintf("10.2.0.%d", n), fmt.Sprintf("2001:db8:2::%x", n)} {
			d.Learn(dataplane.Neighbour{Link: serverLink, Addr: packet.MustParseAddr(a), MAC: serverMAC(n)})
		}
	}
}
