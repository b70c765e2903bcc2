package dataplane_test

import (
	"net/netip"
	"testing"
	"time"

	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/modes/dr"
	"pktdirector/modes/fullnat"
	"pktdirector/modes/nat"
	"pktdirector/modes/tun"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// The world of these tests: a client net on link 0 and a server net on link 1,
// each an Ethernet segment; all neighbours are known unless a test forgets
// them.
const (
	clientLink = 0
	serverLink = 1

	client = "198.51.100.10"
	vip    = "203.0.113.80"
	vip6   = "2001:db8:0:80::80"
)

var (
	directorMAC = [2]packet.MAC{{2, 0, 0, 0, 0, 0xfe}, {2, 0, 0, 0, 1, 0xfe}}
	clientMAC   = packet.MAC{2, 0, 0, 0, 0, 1}
)

func rip(i int) string           { return netip.AddrFrom4([4]byte{192, 0, 2, byte(10 + i)}).String() }
func serverMAC(i int) packet.MAC { return packet.MAC{2, 0, 0, 0, 1, byte(i)} }
func addr(s string) packet.Addr  { return packet.MustParseAddr(s) }

// world is a director with a worker and a clock that only moves when told.
type world struct {
	t   testing.TB
	d   *dataplane.Director
	w   *dataplane.Worker
	now time.Duration
}

func newWorld(t testing.TB, services ...lvs.VirtualService) *world {
	t.Helper()
	return newShardedWorld(t, 8, services...)
}

// newShardedWorld is newWorld with a connection table of that many shards.
func newShardedWorld(t testing.TB, shards int, services ...lvs.VirtualService) *world {
	t.Helper()
	d := dataplane.New(dataplane.Options{
		Seed: 1, Decisions: true, Shards: shards,
		Forwarders: forwarders(),
	})
	d.SetLinks(links(1500))
	prefix := netip.MustParsePrefix
	d.SetHost(dataplane.HostTable{
		Routes: routes(),
		Addrs: []dataplane.LinkAddr{
			{Link: clientLink, Prefix: prefix("198.51.100.254/24")}, {Link: clientLink, Prefix: prefix("203.0.113.254/24")},
			{Link: serverLink, Prefix: prefix("192.0.2.254/24")},
			{Link: clientLink, Prefix: prefix("2001:db8:1::fe/64")}, {Link: serverLink, Prefix: prefix("2001:db8:2::fe/64")},
		},
	})
	w := &world{t: t, d: d, w: d.NewWorker()}
	learnNeighbours(d, 4)
	w.apply(services...)
	return w
}

// forwarders are all methods.
func forwarders() dataplane.Forwarders {
	return dataplane.Forwarders{lvs.Masq: nat.Masq{}, lvs.FullNAT: fullnat.Both{}, lvs.Route: dr.Gateway{}, lvs.Tunnel: tun.New(1)}
}

// links are the client net and the server net, the latter with an MTU.
func links(mtu int) []dataplane.LinkInfo {
	return []dataplane.LinkInfo{
		{Name: "front", MAC: directorMAC[0], MTU: 1500},
		{Name: "back", MAC: directorMAC[1], MTU: mtu},
	}
}

// routes lead to both nets; one has no link, to what only the host reaches.
func routes() []dataplane.Route {
	prefix := netip.MustParsePrefix
	return []dataplane.Route{
		{Dst: prefix("198.51.100.0/24"), Link: clientLink},
		{Dst: prefix("203.0.113.0/24"), Link: clientLink},
		{Dst: prefix("192.0.2.0/24"), Link: serverLink},
		{Dst: prefix("2001:db8:1::/64"), Link: clientLink},
		{Dst: prefix("2001:db8:2::/64"), Link: serverLink},
		{Dst: prefix("100.64.0.0/10"), Link: -1},
	}
}

// learnNeighbours tells the director of the client and that many real servers.
func learnNeighbours(d *dataplane.Director, servers int) {
	d.Learn(dataplane.Neighbour{Link: clientLink, Addr: addr(client), MAC: clientMAC})
	d.Learn(dataplane.Neighbour{Link: clientLink, Addr: addr("2001:db8:1::10"), MAC: clientMAC})
	for i := 1; i <= servers; i++ {
		d.Learn(dataplane.Neighbour{Link: serverLink, Addr: addr(rip(i)), MAC: serverMAC(i)})
		d.Learn(dataplane.Neighbour{Link: serverLink, Addr: addr(rip6(i)), MAC: serverMAC(i)})
	}
}

func mustPrefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func rip6(i int) string {
	return netip.AddrFrom16([16]byte{0x20, 1, 0x0d, 0xb8, 0, 2, 15: byte(i)}).String()
}

func (w *world) apply(services ...lvs.VirtualService) {
	w.t.Helper()
	if err := w.d.Apply(lvs.Ruleset{Services: services}); err != nil {
		w.t.Fatal(err)
	}
	w.w.Tick(w.now) // the announcements of the VIPs
}

// service is one TCP service on port 80 with n real servers of weight 1.
func service(scheduler string, m lvs.Method, n int) lvs.VirtualService {
	s := lvs.VirtualService{ServiceKey: lvs.ServiceKey{Proto: packet.TCP, VIP: addr(vip), Port: 80}, Scheduler: scheduler}
	for i := 1; i <= n; i++ {
		port := uint16(80)
		if m == lvs.Masq {
			port = 8080
		}
		s.Servers = append(s.Servers, lvs.RealServer{ServerKey: lvs.ServerKey{RIP: addr(rip(i)), Port: port}, Method: m, Weight: 1})
	}
	return s
}

func udp(s lvs.VirtualService) lvs.VirtualService {
	s.Proto = packet.UDP
	return s
}

// in takes packets through the director as if read from a link, and returns
// copies of what left.
func (w *world) in(link int, packets ...*packet.Packet) []*packet.Packet {
	w.t.Helper()
	for _, p := range packets {
		p.Link = link
	}
	return copies(w.w.Process(packets, w.now))
}

// after lets time pass in steps of 50 ms and returns what left meanwhile.
func (w *world) after(d time.Duration) []*packet.Packet {
	var out []*packet.Packet
	for end := w.now + d; w.now < end; {
		w.now = min(w.now+50*time.Millisecond, end)
		out = append(out, copies(w.w.Tick(w.now))...)
	}
	return out
}

func copies(in []*packet.Packet) []*packet.Packet {
	var out []*packet.Packet
	for _, p := range in {
		c := new(packet.Packet)
		c.CopyFrom(p)
		out = append(out, c)
	}
	return out
}

// syn is a client's first segment to the service on port 80.
func (w *world) syn(clientPort string) *packet.Packet { return w.segment(clientPort, packet.SYN) }

func (w *world) segment(clientPort string, flags uint8) *packet.Packet {
	w.t.Helper()
	return packettest.Build(w.t, packettest.Spec{Src: client + ":" + clientPort, Dst: vip + ":80", Flags: flags, Seq: 1000})
}

// one expects exactly one packet and verifies it from scratch.
func one(t testing.TB, out []*packet.Packet) *packet.Packet {
	t.Helper()
	if len(out) != 1 {
		t.Fatalf("%d packets left, want 1: %v", len(out), summaries(out))
	}
	if err := packettest.Verify(out[0].Bytes()); err != nil && out[0].EtherType != packet.EtherARP {
		t.Errorf("the packet that left is wrong: %v", err)
	}
	return out[0]
}

func summaries(out []*packet.Packet) []string {
	var s []string
	for _, p := range out {
		s = append(s, p.Flow.String()+" to "+p.DstMAC.String())
	}
	return s
}

// serverOf tells by its MAC which real server a packet went to.
func serverOf(p *packet.Packet) int { return int(p.DstMAC[5]) }

func (w *world) wantVerdict(v dataplane.Verdict, want uint64) {
	w.t.Helper()
	if got := w.d.Count(v); got != want {
		w.t.Errorf("verdict %v counted %d times, want %d", v, got, want)
	}
}

// establish opens a connection from the client's side, and in NAT mode from
// the server's too.
func (w *world) establish(clientPort string) (server int) {
	w.t.Helper()
	p := one(w.t, w.in(clientLink, w.syn(clientPort)))
	server = serverOf(p)
	if p.Flow.DstPort == 8080 {
		w.in(serverLink, packettest.Build(w.t, packettest.Spec{Src: rip(server) + ":8080", Dst: client + ":" + clientPort, Flags: packet.SYN | packet.ACK, Seq: 5, Ack: 1001}))
	}
	w.in(clientLink, w.segment(clientPort, packet.ACK))
	return server
}

// arpPacket builds an ARP packet.
func arpPacket(op byte, senderMAC packet.MAC, sender string, target string) *packet.Packet {
	b := make([]byte, 28)
	copy(b, []byte{0, 1, 8, 0, 6, 4, 0, op})
	copy(b[8:], senderMAC[:])
	addr(sender).Put4(b[14:])
	addr(target).Put4(b[24:])
	p := packettest.Packet(b, packet.EtherARP)
	p.SrcMAC, p.Class = senderMAC, packet.Broadcasted
	return p
}
