package dataplane_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pktdirector/conntrack"
	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// icmpFrom builds an ICMP error of either version that quotes a packet.
func icmpFrom(src, dst string, kind, code byte, mtu uint32, quote []byte) *packet.Packet {
	s, d := addr(src), addr(dst)
	n := 8 + len(quote)
	if s.Is4() {
		b := make([]byte, 20+n)
		b[0], b[8], b[9] = 0x45, 64, 1
		binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
		s.Put4(b[12:])
		d.Put4(b[16:])
		packet.PutIPv4Checksum(b[:20])
		icmp := b[20:]
		icmp[0], icmp[1] = kind, code
		binary.BigEndian.PutUint32(icmp[4:], mtu)
		copy(icmp[8:], quote)
		binary.BigEndian.PutUint16(icmp[2:], ^packet.Fold(packet.Sum(icmp, 0)))
		return packettest.Packet(b, packet.EtherIPv4)
	}
	b := make([]byte, 40+n)
	b[0], b[6], b[7] = 0x60, 58, 64
	binary.BigEndian.PutUint16(b[4:], uint16(n))
	s.Put16(b[8:])
	d.Put16(b[24:])
	icmp := b[40:]
	icmp[0], icmp[1] = kind, code
	binary.BigEndian.PutUint32(icmp[4:], mtu)
	copy(icmp[8:], quote)
	binary.BigEndian.PutUint16(icmp[2:], ^packet.Fold(packet.Sum(icmp, packet.PseudoSum(s, d, packet.ICMPv6, n))))
	return packettest.Packet(b, packet.EtherIPv6)
}

// quoted is the first bytes of a packet from src to dst with the payload: its IP
// header and n bytes behind it.
func quoted(t testing.TB, src, dst string, udp bool, n int) []byte {
	b := packettest.Build(t, packettest.Spec{Src: src, Dst: dst, UDP: udp, Flags: packet.ACK, Payload: make([]byte, 100)}).Bytes()
	header := 20
	if b[0]>>4 == 6 {
		header = 40
	}
	return b[:header+n]
}

// quoteOf reads what an error quotes.
func quoteOf(t testing.TB, p *packet.Packet) packet.Quote {
	t.Helper()
	c := new(packet.Packet)
	c.CopyFrom(p)
	if packet.Parse(c) != packet.ParseOK {
		t.Fatal("what left cannot be parsed")
	}
	q, ok := c.Quote()
	if !ok {
		t.Fatal("what left quotes nothing")
	}
	return q
}

// Field case 11: eight quoted bytes of the inner segment are enough.
func TestEightQuotedBytesAreEnough(t *testing.T) {
	for _, m := range methods() {
		for _, n := range []int{4, 8, 20} {
			t.Run(fmt.Sprintf("%s, %d bytes", m.Short(), n), func(t *testing.T) {
				w := newWorld(t, service("rr", m, 1))
				w.establish("40000")
				router := "203.0.113.7"
				in := icmpFrom(router, vip, 3, 4, 1400, quoted(t, vip+":80", client+":40000", false, n))
				before := slices.Clone(in.Bytes())
				p := one(t, w.in(clientLink, in))
				if serverOf(p) != 1 || p.Link != serverLink {
					t.Errorf("went to %v, want server 1", p.DstMAC)
				}
				b := p.Bytes()
				switch m {
				case lvs.Masq:
					q := quoteOf(t, p)
					if want := (packet.Flow{Src: addr(rip(1)), SrcPort: 8080, Dst: addr(client), DstPort: 40000, Proto: packet.TCP}); q.Flow != want {
						t.Errorf("quotes %v, want %v", q.Flow, want)
					}
					if packet.Fold(packet.Sum(p.Buf[q.L3:q.L4], 0)) != 0xffff {
						t.Error("the quoted header's checksum is wrong")
					}
					if p.Flow.Src != addr(router) || p.Flow.Dst != addr(rip(1)) {
						t.Errorf("from %v to %v, want the router's own address and the real server", p.Flow.Src, p.Flow.Dst)
					}
				case lvs.Tunnel:
					if b[9] != 4 {
						t.Fatalf("protocol %d, want a tunnel", b[9])
					}
					b = b[20:]
					fallthrough
				case lvs.Route:
					before[8]--
					packet.PutIPv4Checksum(before[:20])
					if !bytes.Equal(b, before) {
						t.Errorf("more changed than the TTL:\ngot  %x\nwant %x", b, before)
					}
				}
				if mtu := binary.BigEndian.Uint16(b[26:]); mtu != 1400 {
					t.Errorf("MTU %d, want the router's 1400", mtu)
				}
				w.wantVerdict(dataplane.ErrorForwarded, 1)
			})
		}
	}
}

// Field case 11: an error about an unknown connection makes none, and nobody
// hears of it.
func TestErrorsAboutUnknownConnectionsStartNothing(t *testing.T) {
	for _, m := range methods() {
		w := newWorld(t, service("rr", m, 1))
		if out := w.in(clientLink, icmpFrom("203.0.113.7", vip, 3, 4, 1400, quoted(t, vip+":80", client+":40000", false, 8))); len(out) != 0 {
			t.Errorf("%s: %v left", m.Short(), summaries(out))
		}
		w.wantVerdict(dataplane.ICMPIgnored, 1)
		if s := w.d.Status()[0]; s.Destinations[0].Stats.Conns != 0 {
			t.Errorf("%s: %d connections", m.Short(), s.Destinations[0].Stats.Conns)
		}
	}
}

// An error of the servers' side comes from the VIP, whoever sent it, and quotes
// what the client sent; IPv4 and IPv6.
func TestErrorsOfTheServersSideComeFromTheVIP(t *testing.T) {
	v6 := lvs.VirtualService{ServiceKey: lvs.ServiceKey{Proto: packet.UDP, VIP: addr(vip6), Port: 53}, Scheduler: "rr",
		Servers: []lvs.RealServer{{ServerKey: lvs.ServerKey{RIP: addr(rip6(1)), Port: 5353}, Method: lvs.Masq, Weight: 1}}}
	for _, c := range []struct {
		name                    string
		service                 lvs.VirtualService
		client, virtual, server string
		sender                  string
		kind, code              byte
		related                 bool
	}{
		{"server, port unreachable", udp(service("rr", lvs.Masq, 1)), client + ":4000", vip + ":80", rip(1) + ":8080", rip(1), 3, 3, true},
		{"router, host unreachable", udp(service("rr", lvs.Masq, 1)), client + ":4000", vip + ":80", rip(1) + ":8080", "192.0.2.99", 3, 1, true},
		{"router, time exceeded", udp(service("rr", lvs.Masq, 1)), client + ":4000", vip + ":80", rip(1) + ":8080", "192.0.2.99", 11, 0, true},
		{"server, source quench", udp(service("rr", lvs.Masq, 1)), client + ":4000", vip + ":80", rip(1) + ":8080", rip(1), 4, 0, true},
		{"server, parameter problem", udp(service("rr", lvs.Masq, 1)), client + ":4000", vip + ":80", rip(1) + ":8080", rip(1), 12, 0, false},
		{"router, redirect", udp(service("rr", lvs.Masq, 1)), client + ":4000", vip + ":80", rip(1) + ":8080", "192.0.2.99", 5, 1, false},
		{"IPv6 server, port unreachable", v6, "[2001:db8:1::10]:4000", "[" + vip6 + "]:53", "[" + rip6(1) + "]:5353", rip6(1), 1, 4, true},
		{"IPv6 router, too big", v6, "[2001:db8:1::10]:4000", "[" + vip6 + "]:53", "[" + rip6(1) + "]:5353", "2001:db8:2::99", 2, 0, true},
		{"IPv6 server, parameter problem", v6, "[2001:db8:1::10]:4000", "[" + vip6 + "]:53", "[" + rip6(1) + "]:5353", rip6(1), 4, 1, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.service)
			one(t, w.in(clientLink, packettest.Build(t, packettest.Spec{Src: c.client, Dst: c.virtual, UDP: true, Payload: []byte("x")})))
			to := packet.AddrFrom(netip.MustParseAddrPort(c.client).Addr())
			out := w.in(serverLink, icmpFrom(c.sender, to.String(), c.kind, c.code, 0, quoted(t, c.client, c.server, true, 12)))
			if !c.related {
				w.wantVerdict(dataplane.NotOurs, 1)
				return
			}
			p := one(t, out)
			q := quoteOf(t, p)
			virtual := netip.MustParseAddrPort(c.virtual)
			if q.Flow.Dst != packet.AddrFrom(virtual.Addr()) || q.Flow.DstPort != virtual.Port() || q.Flow.Src != to || q.Flow.SrcPort != 4000 {
				t.Errorf("quotes %v, want what the client sent to %v", q.Flow, virtual)
			}
			if p.Flow.Src != q.Flow.Dst || p.Flow.Dst != to || p.Link != clientLink {
				t.Errorf("%v by link %d, want from the VIP to the client", p.Flow, p.Link)
			}
		})
	}
}

// What must not pass: silently, and counted by name.
func TestErrorsThatDoNotPass(t *testing.T) {
	broken := func(t *testing.T) *packet.Packet {
		return icmpFrom("203.0.113.7", vip, 3, 4, 1400, quoted(t, vip+":80", client+":40000", false, 8))
	}
	for _, c := range []struct {
		name  string
		spoil func(*world, *packet.Packet)
		want  dataplane.Verdict
	}{
		{"wrong ICMP checksum", func(_ *world, p *packet.Packet) { p.Bytes()[22] ^= 1 }, dataplane.BadChecksum},
		{"TTL used up", func(w *world, p *packet.Packet) {
			p.Bytes()[8] = 1
			packet.PutIPv4Checksum(p.Bytes()[:20])
		}, dataplane.TTLExceeded},
		{"real server removed", func(w *world, _ *packet.Packet) {
			s := service("rr", lvs.Masq, 2)
			s.Servers = s.Servers[1:]
			w.apply(s)
		}, dataplane.DestinationGone},
		{"service removed", func(w *world, _ *packet.Packet) { w.apply() }, dataplane.NotOurs},
		{"broadcast", func(_ *world, p *packet.Packet) { p.Class = packet.Broadcasted }, dataplane.NotOurs},
		{"quote of three bytes", func(w *world, p *packet.Packet) {
			*p = *icmpFrom("203.0.113.7", vip, 3, 4, 1400, quoted(w.t, vip+":80", client+":40000", false, 3))
		}, dataplane.ICMPIgnored},
		{"quote of a later fragment", func(w *world, p *packet.Packet) {
			q := quoted(w.t, vip+":80", client+":40000", false, 8)
			q[7] = 1
			*p = *icmpFrom("203.0.113.7", vip, 3, 4, 1400, q)
		}, dataplane.ICMPIgnored},
		{"quote of somebody else's packet", func(w *world, p *packet.Packet) {
			*p = *icmpFrom("203.0.113.7", vip, 3, 4, 1400, quoted(w.t, "203.0.113.81:80", client+":40000", false, 8))
		}, dataplane.ICMPIgnored},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, service("rr", lvs.Masq, 1))
			w.establish("40000")
			p := broken(t)
			c.spoil(w, p)
			if out := w.in(clientLink, p); len(out) != 0 {
				t.Errorf("%v left", summaries(out))
			}
			w.wantVerdict(c.want, 1)
		})
	}
}

// An error changes neither the state nor the remaining time of a connection.
func TestErrorsDoNotKeepConnectionsAlive(t *testing.T) {
	w := newWorld(t, service("rr", lvs.Masq, 1))
	w.establish("40000")
	var before, after dataplane.ConnStatus
	w.d.Conns(func(c dataplane.ConnStatus) bool { before = c; return true })
	w.after(20 * time.Second)
	one(t, w.in(clientLink, icmpFrom("203.0.113.7", vip, 3, 1, 0, quoted(t, vip+":80", client+":40000", false, 8))))
	w.d.Conns(func(c dataplane.ConnStatus) bool { after = c; return true })
	if before != after || before.State != conntrack.Established {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

// schedule_icmp lets an error from the client side start the connection that it
// is about; the connection's own packets find it.
func TestScheduleICMP(t *testing.T) {
	for _, m := range methods() {
		w := newWorld(t, service("rr", m, 1))
		if err := w.d.SetTunable("schedule_icmp", "1"); err != nil {
			t.Fatal(err)
		}
		if w.in(clientLink, icmpFrom("203.0.113.7", vip, 3, 4, 1400, quoted(t, vip+":81", client+":40000", false, 8))); len(w.w.Decisions) != 0 {
			t.Errorf("%s: a port that nobody serves was scheduled", m.Short())
		}
		p := one(t, w.in(clientLink, icmpFrom("203.0.113.7", vip, 3, 4, 1400, quoted(t, vip+":80", client+":40000", false, 8))))
		if serverOf(p) != 1 {
			t.Errorf("%s: went to %v", m.Short(), p.DstMAC)
		}
		d := w.d.Status()[0].Destinations[0]
		if d.Active != 0 || d.InAct != 1 || d.Stats.Conns != 1 {
			t.Errorf("%s: %d active, %d inactive, %d connections, want 0, 1, 1", m.Short(), d.Active, d.InAct, d.Stats.Conns)
		}
		one(t, w.in(clientLink, w.segment("40000", packet.ACK)))
		if d := w.d.Status()[0].Destinations[0]; d.Active != 1 || d.Stats.Conns != 1 {
			t.Errorf("%s: after an ACK %d active, %d connections, want 1, 1", m.Short(), d.Active, d.Stats.Conns)
		}
	}
}
