package dataplane_test

import (
	"bytes"
	"fmt"
	"testing"

	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/lvs/lvstest"
	"pktdirector/modes/tun"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// tunnelService has one real server of the tunnelling method; VIP and server may
// be of different IP versions.
func tunnelService(vipV6, ripV6 bool, k lvs.TunnelInfo) lvs.VirtualService {
	s := service("rr", lvs.Tunnel, 1)
	if vipV6 {
		s = service6("rr", lvs.Tunnel, 1)
	}
	s.Servers[0].RIP = addr(rip(1))
	if ripV6 {
		s.Servers[0].RIP = addr(rip6(1))
	}
	s.Servers[0].Tunnel = k
	return s
}

// clientSegment is a segment of the client to the service of that IP version.
func clientSegment(t testing.TB, v6 bool, s packettest.Spec) *packet.Packet {
	t.Helper()
	s.Src, s.Dst = client+":4000", vip+":80"
	if v6 {
		s.Src, s.Dst = "[2001:db8:1::10]:4000", "["+vip6+"]:80"
	}
	return packettest.Build(t, s)
}

// innerOf takes the tunnel's header off.
func innerOf(t testing.TB, p *packet.Packet) []byte {
	t.Helper()
	b := p.Bytes()
	at, proto := 20, packet.Proto(b[9])
	if b[0]>>4 == 6 {
		at, proto = 40, packet.Proto(b[6])
	}
	skip, _, ok := tun.New(1).Inner(proto, b[at:])
	if !ok {
		t.Fatalf("no tunnel packet: % x", b[:min(len(b), 60)])
	}
	return b[at+skip:]
}

// TestTunnelsBetweenIPVersions sends a segment through each kind of tunnel in
// each pair of IP versions: the inner packet is the client's, and the largest that
// fits passes while one byte more is answered with the size that would.
func TestTunnelsBetweenIPVersions(t *testing.T) {
	for name, k := range lvstest.Tunnels() {
		for _, v := range [][2]bool{{false, false}, {false, true}, {true, false}, {true, true}} {
			t.Run(fmt.Sprintf("%s, VIP IPv6 %v, server IPv6 %v", name, v[0], v[1]), func(t *testing.T) {
				w := newWorld(t, tunnelService(v[0], v[1], k))
				syn := packettest.Spec{Flags: packet.SYN}
				p := one(t, w.in(clientLink, clientSegment(t, v[0], syn)))
				want := clientSegment(t, v[0], packettest.Spec{Flags: packet.SYN, TTL: 63})
				if got := innerOf(t, p); !bytes.Equal(got, want.Bytes()) {
					t.Errorf("inside: % x\nwant    % x", got, want.Bytes())
				}
				if serverOf(p) != 1 {
					t.Errorf("sent to %v", p.DstMAC)
				}
				overhead := k.HeaderLen(tunnelService(v[0], v[1], k).Servers[0].RIP)
				headers := 40
				if v[0] {
					headers = 60
				}
				fits := packettest.Spec{Flags: packet.ACK, Payload: make([]byte, 1500-overhead-headers)}
				if p := one(t, w.in(clientLink, clientSegment(t, v[0], fits))); p.Len() != 1500 {
					t.Errorf("the largest segment that fits left as %d bytes", p.Len())
				}
				fits.Payload = make([]byte, len(fits.Payload)+1)
				e := one(t, w.in(clientLink, clientSegment(t, v[0], fits)))
				if mtu := toldMTU(t, e); mtu != 1500-overhead || e.DstMAC != clientMAC {
					t.Errorf("the client is told %d, want %d", mtu, 1500-overhead)
				}
				w.wantVerdict(dataplane.TooBig, 1)
			})
		}
	}
}

// An edited tunnel holds for the next packet of a live connection.
func TestAnEditedTunnelTakesLiveConnectionsAlong(t *testing.T) {
	s := tunnelService(false, false, lvs.TunnelInfo{})
	w := newWorld(t, s)
	if p := one(t, w.in(clientLink, w.syn("4000"))); p.Buf[p.Start+9] != byte(packet.IPIP) {
		t.Fatalf("protocol %d", p.Buf[p.Start+9])
	}
	rs := s.Servers[0]
	rs.Tunnel = lvs.TunnelInfo{Type: lvs.GRE}
	if err := w.d.EditServer(s.ServiceKey, rs); err != nil {
		t.Fatal(err)
	}
	if p := one(t, w.in(clientLink, w.segment("4000", packet.ACK))); p.Buf[p.Start+9] != byte(packet.GRE) {
		t.Errorf("after the edit: protocol %d, want GRE", p.Buf[p.Start+9])
	}
	// The same by a new ruleset; nothing else changes.
	s.Servers[0].Tunnel = lvs.TunnelInfo{Type: lvs.GUE, Port: 6080}
	w.apply(s)
	if p := one(t, w.in(clientLink, w.segment("4000", packet.ACK))); p.Buf[p.Start+9] != byte(packet.UDP) {
		t.Errorf("after a new ruleset: protocol %d, want UDP", p.Buf[p.Start+9])
	}
	if got := w.d.Status()[0].Destinations[0]; got.Tunnel != s.Servers[0].Tunnel || got.Active != 1 {
		t.Errorf("listed as %+v", got)
	}
}

func TestTunnelsThatCannotBe(t *testing.T) {
	w := newWorld(t)
	for name, change := range map[string]func(*lvs.RealServer){
		"a tunnel in DR":           func(rs *lvs.RealServer) { rs.Method, rs.Tunnel.Type = lvs.Route, lvs.GRE },
		"gue without a port":       func(rs *lvs.RealServer) { rs.Tunnel.Type = lvs.GUE },
		"gre with a port":          func(rs *lvs.RealServer) { rs.Tunnel = lvs.TunnelInfo{Type: lvs.GRE, Port: 1} },
		"gre with remcsum":         func(rs *lvs.RealServer) { rs.Tunnel = lvs.TunnelInfo{Type: lvs.GRE, Checksum: lvs.RemoteChecksum} },
		"ipip with a checksum":     func(rs *lvs.RealServer) { rs.Tunnel.Checksum = lvs.Checksum },
		"a type that is none":      func(rs *lvs.RealServer) { rs.Tunnel.Type = 9 },
		"DR to another IP version": func(rs *lvs.RealServer) { rs.Method, rs.RIP = lvs.Route, addr(rip6(1)) },
	} {
		s := service("rr", lvs.Tunnel, 1)
		change(&s.Servers[0])
		if err := w.d.Apply(lvs.Ruleset{Services: []lvs.VirtualService{s}}); err == nil {
			t.Errorf("%s was applied", name)
		}
	}
}

// mssOf returns the value of a segment's first option, which these tests make
// the maximum segment size.
func mssOf(t testing.TB, b []byte) int {
	t.Helper()
	at := 20
	if b[0]>>4 == 6 {
		at = 40
	}
	o := b[at+20:]
	if len(o) < 4 || o[0] != 2 {
		t.Fatalf("no maximum segment size in % x", b)
	}
	return int(o[2])<<8 | int(o[3])
}

// withMSS puts the option into a SYN without options.
func withMSS(t testing.TB, p *packet.Packet, mss uint16) *packet.Packet {
	t.Helper()
	b := append(bytes.Clone(p.Bytes()), 2, 4, byte(mss>>8), byte(mss))
	at := 20
	if b[0]>>4 == 6 {
		at = 40
		b[5] += 4
	} else {
		b[3] += 4
		packet.PutIPv4Checksum(b[:20])
	}
	b[at+12] = 6 << 4
	sum := packettest.TransportChecksum(b)
	b[at+16], b[at+17] = byte(sum>>8), byte(sum)
	return packettest.Packet(b, p.EtherType)
}

// TestClampMSS: off, a SYN stays as it is; on, it announces what fits the way to
// the real server, in every method and kind of tunnel.
func TestClampMSS(t *testing.T) {
	tests := map[string]struct {
		service lvs.VirtualService
		v6      bool
		mtu     int // towards the server
		want    int
	}{
		"NAT, the same MTU everywhere": {service("rr", lvs.Masq, 1), false, 1500, 1460},
		"NAT over 1400":                {service("rr", lvs.Masq, 1), false, 1400, 1360},
		"DR over 1400":                 {service("rr", lvs.Route, 1), false, 1400, 1360},
		"IPv6 in DR over 1400":         {service6("rr", lvs.Route, 1), true, 1400, 1340},
	}
	for name, k := range lvstest.Tunnels() {
		for _, v := range [][2]bool{{false, false}, {false, true}, {true, false}, {true, true}} {
			s := tunnelService(v[0], v[1], k)
			want := 1400 - k.HeaderLen(s.Servers[0].RIP) - 40
			if v[0] {
				want -= 20
			}
			tt := tests[""]
			tt.service, tt.v6, tt.mtu, tt.want = s, v[0], 1400, want
			tests[fmt.Sprintf("%s over 1400, VIP IPv6 %v, server IPv6 %v", name, v[0], v[1])] = tt
		}
	}
	for name, tt := range tests {
		for _, on := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, on: %v", name, on), func(t *testing.T) {
				tt.service.ClampMSS = on
				w := newWorld(t, tt.service)
				w.d.SetLinks(links(tt.mtu))
				want := 1460
				if on {
					want = tt.want
				}
				p := one(t, w.in(clientLink, withMSS(t, clientSegment(t, tt.v6, packettest.Spec{Flags: packet.SYN}), 1460)))
				in := p.Bytes()
				if tt.service.Servers[0].Method == lvs.Tunnel {
					in = innerOf(t, p)
				}
				if err := packettest.Verify(in); err != nil {
					t.Error(err)
				}
				if got := mssOf(t, in); got != want {
					t.Errorf("the SYN announces %d, want %d", got, want)
				}
				if tt.service.Servers[0].Method != lvs.Masq {
					return
				}
				// The server's link may believe in 1500 bytes: its SYN+ACK is what
				// the client's upload goes by.
				answer := packettest.Build(t, packettest.Spec{Src: rip(1) + ":8080", Dst: client + ":4000", Flags: packet.SYN | packet.ACK, Ack: 1})
				if got := mssOf(t, one(t, w.in(serverLink, withMSS(t, answer, 1460))).Bytes()); got != want {
					t.Errorf("the SYN+ACK announces %d, want %d", got, want)
				}
			})
		}
	}
}
