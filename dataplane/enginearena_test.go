package dataplane_test

import (
	"net/netip"
	"testing"
	"time"

	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// arenaLinks is the number of an arena's links: client net, server net, and a
// TUN device.
const arenaLinks = 3

// arena is a director with a service of every kind, for scripts.
type arena struct {
	d       *dataplane.Director
	workers []*dataplane.Worker
	now     time.Duration
	known   []lvs.VirtualService // the services that commands are about
}

func newArena(t testing.TB, how int) *arena {
	d := dataplane.New(dataplane.Options{
		Seed: 1, Decisions: how&1 != 0, Shards: 1 << (how >> 1 & 3), ConnMax: 8 << (how >> 3 & 7),
		Forwarders: forwarders(),
	})
	a := &arena{d: d, known: arenaServices()}
	a.workers = []*dataplane.Worker{d.NewWorker(), d.NewWorker()}
	a.links(1500)
	a.host(netip.Addr{})
	learnNeighbours(d, 3) // the fourth is not there
	if err := d.Apply(lvs.Ruleset{Services: a.known, Marks: arenaMarks()}); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *arena) links(mtu int) {
	a.d.SetLinks(append(links(mtu), dataplane.LinkInfo{Name: "tun", MTU: 1500, Layer3: true}))
}

// host sets the routes, and perhaps an address that the host itself owns.
func (a *arena) host(own netip.Addr) {
	prefix := netip.MustParsePrefix
	h := dataplane.HostTable{
		Routes: append(routes(), dataplane.Route{Dst: prefix("0.0.0.0/0"), Link: clientLink, Gateway: addr("198.51.100.1")}),
		Addrs: []dataplane.LinkAddr{
			{Link: clientLink, Prefix: prefix("198.51.100.254/24")}, {Link: serverLink, Prefix: prefix("192.0.2.254/24")},
			{Link: clientLink, Prefix: prefix("2001:db8:1::fe/64")}, {Link: serverLink, Prefix: prefix("2001:db8:2::fe/64")},
		},
	}
	if own.IsValid() {
		h.Local = []packet.Addr{packet.AddrFrom(own)}
	}
	a.d.SetHost(h)
}

func arenaMarks() []lvs.MarkRule {
	return []lvs.MarkRule{{Dst: []netip.Prefix{mustPrefix(vip + "/32")}, Ports: []lvs.PortRange{{From: 95, To: 99}}, Link: -1, Mark: 7}}
}

// arenaServices are services of every protocol, method, tunnel and IP version,
// and of every peculiarity.
func arenaServices() []lvs.VirtualService {
	var all []lvs.VirtualService
	add := func(proto packet.Proto, virtual string, port uint16, scheduler string, m lvs.Method, tunnel lvs.TunnelInfo, server func(int) string) *lvs.VirtualService {
		s := lvs.VirtualService{ServiceKey: lvs.ServiceKey{Proto: proto, VIP: addr(virtual), Port: port}, Scheduler: scheduler}
		for i := 1; i <= 3; i++ {
			rs := lvs.RealServer{ServerKey: lvs.ServerKey{RIP: addr(server(i)), Port: port}, Method: m, Tunnel: tunnel, Weight: i}
			if m.RewritesPorts() && port != 0 {
				rs.Port = 8000 + port
			}
			s.Servers = append(s.Servers, rs)
		}
		all = append(all, s)
		return &all[len(all)-1]
	}
	ipip, gre, gue := lvs.TunnelInfo{}, lvs.TunnelInfo{Type: lvs.GRE, Checksum: lvs.Checksum}, lvs.TunnelInfo{Type: lvs.GUE, Checksum: lvs.RemoteChecksum, Port: 6080}
	for _, v := range []struct {
		vip    string
		server func(int) string
		other  func(int) string
	}{{vip, rip, rip6}, {vip6, rip6, rip}} {
		add(packet.TCP, v.vip, 80, "wlc", lvs.Masq, ipip, v.server)
		add(packet.TCP, v.vip, 81, "rr", lvs.Route, ipip, v.server)
		add(packet.TCP, v.vip, 82, "sed", lvs.Tunnel, ipip, v.server).ClampMSS = true
		add(packet.TCP, v.vip, 87, "wlc", lvs.FullNAT, ipip, v.server).Sources.TOA = true
		add(packet.UDP, v.vip, 87, "rr", lvs.FullNAT, ipip, v.server).Sources.Ports = lvs.PortRange{From: 8087, To: 8089}
		add(packet.UDP, v.vip, 80, "wrr", lvs.Masq, ipip, v.server)
		add(packet.UDP, v.vip, 81, "nq", lvs.Route, ipip, v.server).OnePacket = true
		add(packet.UDP, v.vip, 82, "sh", lvs.Tunnel, gue, v.server)
		add(packet.UDP, v.vip, 83, "wlc", lvs.Tunnel, ipip, v.other)
		add(packet.SCTP, v.vip, 80, "lblc", lvs.Masq, ipip, v.server)
		add(packet.SCTP, v.vip, 81, "dh", lvs.Route, ipip, v.server)
		add(packet.TCP, v.vip, 83, "lblcr", lvs.Tunnel, gre, v.server)
		kept := add(packet.TCP, v.vip, 84, "lc", lvs.Masq, ipip, v.server)
		kept.Persist = 5 * time.Minute
		if v.vip == vip {
			kept.MaskBits = 24
		}
	}
	full := add(packet.TCP, vip, 85, "ovf", lvs.Masq, ipip, rip)
	for i := range full.Servers {
		full.Servers[i].Upper, full.Servers[i].Lower = 3, 1
	}
	add(packet.TCP, vip, 21, "rr", lvs.Masq, ipip, rip)
	all[len(all)-1].Servers = all[len(all)-1].Servers[:1]
	all[len(all)-1].Servers[0].Port = 21
	marked := add(packet.TCP, vip, 86, "fo", lvs.Masq, ipip, rip)
	marked.ServiceKey = lvs.ServiceKey{Mark: 7}
	every := add(packet.UDP, "203.0.113.81", 0, "mh", lvs.Masq, ipip, rip)
	every.Persist = time.Minute
	return all
}
