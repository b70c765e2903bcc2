package replay

import (
	"net/netip"
	"slices"

	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// Link is one interface of the configuration.
type Link struct {
	Name      string
	Layer3    bool           // a TUN device
	Addresses []netip.Prefix // of the configuration; none: made up
}

// mtu is that of every link, in bytes.
const mtu = 1500

// linkMAC is the director's own MAC on a link.
func linkMAC(link int) packet.MAC { return packet.MAC{2, 0, 0, 0xfe, byte(link >> 8), byte(link)} }

// routerMAC is that of the clients' router.
func routerMAC() packet.MAC { return packet.MAC{2, 0, 0, 0xff, 0, 1} }

// serverMAC is the made-up MAC of the n-th real server.
func serverMAC(n int) packet.MAC { return packet.MAC{2, 0, 1, byte(n >> 16), byte(n >> 8), byte(n)} }

// Routers are the made-up ways to the clients, behind the first link; the last link
// leads to real servers that no link's addresses contain.
func routers() (v4, v6 packet.Addr) {
	return packet.MustParseAddr("198.18.255.1"), packet.MustParseAddr("2001:db8:ffff:ffff::1")
}

// ownAddrs are the director's made-up addresses on a link without any, for what it
// sends itself.
func ownAddrs(link int) []netip.Prefix {
	return []netip.Prefix{
		netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, 254, byte(1 + link)}), 32),
		netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 0xff, 0xff, 0xff, 0xff, 14: byte(link >> 8), 15: byte(1 + link)}), 128),
	}
}

// seenAddrs are the director's addresses that a capture shows.
func seenAddrs(rules *lvs.Ruleset, dip func(packet.Addr) packet.Addr) []netip.Prefix {
	var list []netip.Prefix
	for _, s := range rules.Services {
		for _, rs := range s.Servers {
			if a := dip(rs.RIP).Netip(); a.IsValid() && !slices.Contains(list, netip.PrefixFrom(a, a.BitLen())) {
				list = append(list, netip.PrefixFrom(a, a.BitLen()))
			}
		}
	}
	return list
}

// connect gives a director links on which everything resolves. known are MACs of
// real servers in the capture, and dip the director's address towards one.
func connect(d *dataplane.Director, links []Link, rules *lvs.Ruleset, known func(packet.Addr) packet.MAC, dip func(packet.Addr) packet.Addr) map[packet.Addr]int {
	var table dataplane.HostTable
	infos := make([]dataplane.LinkInfo, len(links))
	for i, l := range links {
		infos[i] = dataplane.LinkInfo{Name: l.Name, Index: i + 1, MAC: linkMAC(i), MTU: mtu, Layer3: l.Layer3}
		if l.Layer3 {
			infos[i].MAC = packet.MAC{}
		}
		addrs := l.Addresses
		if len(addrs) == 0 {
			addrs = ownAddrs(i)
			if i == len(links)-1 {
				addrs = append(seenAddrs(rules, dip), addrs...)
			}
		}
		for _, a := range addrs {
			table.Addrs = append(table.Addrs, dataplane.LinkAddr{Link: i, Prefix: a})
			table.Routes = append(table.Routes, dataplane.Route{Dst: a.Masked(), Link: i})
		}
	}
	v4, v6 := routers()
	table.Routes = append(table.Routes,
		dataplane.Route{Dst: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Link: 0, Gateway: v4},
		dataplane.Route{Dst: netip.PrefixFrom(netip.IPv6Unspecified(), 0), Link: 0, Gateway: v6})
	learn := []dataplane.Neighbour{{Link: 0, Addr: v4, MAC: routerMAC(), Permanent: true}, {Link: 0, Addr: v6, MAC: routerMAC(), Permanent: true}}
	servers := map[packet.Addr]int{}
	for _, s := range rules.Services {
		for _, rs := range s.Servers {
			if _, twice := servers[rs.RIP]; twice {
				continue
			}
			link := len(links) - 1
			for i, l := range links {
				for _, a := range l.Addresses {
					if a.Contains(rs.RIP.Netip()) {
						link = i
					}
				}
			}
			mac := known(rs.RIP)
			if mac.IsZero() {
				mac = serverMAC(len(servers) + 1)
			}
			ip := rs.RIP.Netip()
			servers[rs.RIP] = link
			table.Routes = append(table.Routes, dataplane.Route{Dst: netip.PrefixFrom(ip, ip.BitLen()), Link: link})
			learn = append(learn, dataplane.Neighbour{Link: link, Addr: rs.RIP, MAC: mac, Permanent: true})
		}
	}
	d.SetLinks(infos)
	d.SetHost(table)
	for _, n := range learn {
		d.Learn(n)
	}
	return servers
}
