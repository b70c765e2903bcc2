package dataplane_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sync"
	"testing"
	"time"

	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

func TestMasquerading(t *testing.T) {
	w := newWorld(t, service("rr", lvs.Masq, 2))
	out := one(t, w.in(clientLink, packettest.Build(t, packettest.Spec{Src: client + ":40000", Dst: vip + ":80", Flags: packet.SYN, Seq: 7, ID: 99})))
	if want := "TCP 198.51.100.10:40000 -> 192.0.2.12:8080"; out.Flow.String() != want {
		t.Errorf("request is %v, want %v", out.Flow, want)
	}
	if out.Link != serverLink || out.DstMAC != serverMAC(2) || out.Bytes()[8] != 63 {
		t.Errorf("left by link %d to %v with TTL %d", out.Link, out.DstMAC, out.Bytes()[8])
	}
	back := one(t, w.in(serverLink, packettest.Build(t, packettest.Spec{Src: rip(2) + ":8080", Dst: client + ":40000", Flags: packet.SYN | packet.ACK, Ack: 8})))
	if want := "TCP 203.0.113.80:80 -> 198.51.100.10:40000"; back.Flow.String() != want {
		t.Errorf("reply is %v, want %v", back.Flow, want)
	}
	if back.Link != clientLink || back.DstMAC != clientMAC {
		t.Errorf("reply left by link %d to %v", back.Link, back.DstMAC)
	}
	w.wantVerdict(dataplane.Forwarded, 1)
	w.wantVerdict(dataplane.Replied, 1)
	s := w.d.Status()[0]
	if d := s.Destinations[0]; d.Active != 1 || d.Stats.InPkts != 1 || d.Stats.OutPkts != 1 || d.Stats.Conns != 1 {
		t.Errorf("the newest destination shows %+v", d)
	}
}

func TestMasqueradingIPv6(t *testing.T) {
	s := service("rr", lvs.Masq, 0)
	s.VIP = addr(vip6)
	s.Servers = []lvs.RealServer{{ServerKey: lvs.ServerKey{RIP: addr(rip6(1)), Port: 8080}, Method: lvs.Masq, Weight: 1}}
	w := newWorld(t, s)
	out := one(t, w.in(clientLink, packettest.Build(t, packettest.Spec{Src: "[2001:db8:1::10]:40000", Dst: "[" + vip6 + "]:80", Flags: packet.SYN})))
	if want := "TCP [2001:db8:1::10]:40000 -> [2001:db8:2::1]:8080"; out.Flow.String() != want || out.Bytes()[7] != 63 {
		t.Errorf("request is %v with hop limit %d, want %v and 63", out.Flow, out.Bytes()[7], want)
	}
	back := one(t, w.in(serverLink, packettest.Build(t, packettest.Spec{Src: "[" + rip6(1) + "]:8080", Dst: "[2001:db8:1::10]:40000", Flags: packet.SYN | packet.ACK})))
	if back.Flow.Src != addr(vip6) || back.Flow.SrcPort != 80 {
		t.Errorf("reply is %v", back.Flow)
	}
}

func TestDirectRoutingChangesOnlyMACAndTTL(t *testing.T) {
	w := newWorld(t, service("rr", lvs.Route, 1))
	p := packettest.Build(t, packettest.Spec{Src: client + ":40000", Dst: vip + ":80", Flags: packet.SYN, ID: 4711, TOS: 0x10})
	before := bytes.Clone(p.Bytes())
	out := one(t, w.in(clientLink, p))
	after := bytes.Clone(out.Bytes())
	if after[8] != 63 {
		t.Errorf("TTL %d, want 63", after[8])
	}
	copy(after[8:12], before[8:12]) // TTL and header checksum
	if !bytes.Equal(before, after) {
		t.Errorf("changed:\n%x\n%x", before, after)
	}
	if out.DstMAC != serverMAC(1) {
		t.Errorf("to %v", out.DstMAC)
	}
}

// TestUDPWithoutChecksum: NAT gives a datagram without a checksum one, as the
// kernel does; DR leaves it alone.
func TestUDPWithoutChecksum(t *testing.T) {
	for _, m := range []lvs.Method{lvs.Masq, lvs.Route} {
		udpWithoutChecksum(t, newWorld(t, udp(service("rr", m, 1))), m == lvs.Masq)
	}
}

func udpWithoutChecksum(t *testing.T, w *world, summed bool) {
	p := packettest.Build(t, packettest.Spec{Src: client + ":40000", Dst: vip + ":80", UDP: true, Payload: []byte("ping")})
	copy(p.Bytes()[26:], []byte{0, 0})
	out := one(t, w.in(clientLink, p))
	if got := out.Bytes()[26] != 0 || out.Bytes()[27] != 0; got != summed {
		t.Errorf("checksum became %x, computed should be %t", out.Bytes()[26:28], summed)
	}
	if summed {
		if err := packettest.Verify(out.Bytes()); err != nil {
			t.Error(err)
		}
	}
}

func TestWhatStartsNoConnection(t *testing.T) {
	tests := []struct {
		name    string
		spec    packettest.Spec
		verdict dataplane.Verdict
		answer  func(t *testing.T, p *packet.Packet)
	}{
		{"an ACK of no connection is reset", packettest.Spec{Dst: vip + ":80", Flags: packet.ACK, Seq: 10, Ack: 2000}, dataplane.NoConnection, func(t *testing.T, p *packet.Packet) {
			tcp := p.Buf[p.L4:]
			if tcp[13] != packet.RST || binary.BigEndian.Uint32(tcp[4:]) != 2000 {
				t.Errorf("answer has flags %#x and seq %d, want RST and 2000", tcp[13], binary.BigEndian.Uint32(tcp[4:]))
			}
		}},
		{"a SYN to a port without service is reset", packettest.Spec{Dst: vip + ":81", Flags: packet.SYN, Seq: 10}, dataplane.NoService, func(t *testing.T, p *packet.Packet) {
			tcp := p.Buf[p.L4:]
			if tcp[13] != packet.RST|packet.ACK || binary.BigEndian.Uint32(tcp[8:]) != 11 {
				t.Errorf("answer has flags %#x and ack %d, want RST+ACK and 11", tcp[13], binary.BigEndian.Uint32(tcp[8:]))
			}
		}},
		{"a datagram to a port without service is refused", packettest.Spec{Dst: vip + ":53", UDP: true}, dataplane.NoService, func(t *testing.T, p *packet.Packet) {
			if icmp := p.Buf[p.L4:]; icmp[0] != 3 || icmp[1] != 3 {
				t.Errorf("answer is ICMP %d/%d, want 3/3", icmp[0], icmp[1])
			}
		}},
		{"a reset is never answered", packettest.Spec{Dst: vip + ":80", Flags: packet.RST}, dataplane.NoConnection, nil},
		{"another address is not ours", packettest.Spec{Dst: "203.0.113.81:80", Flags: packet.SYN}, dataplane.NotOurs, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, service("rr", lvs.Route, 1))
			tt.spec.Src = client + ":40000"
			out := w.in(clientLink, packettest.Build(t, tt.spec))
			w.wantVerdict(tt.verdict, 1)
			if tt.answer == nil {
				if len(out) != 0 {
					t.Errorf("answered: %v", summaries(out))
				}
				return
			}
			p := one(t, out)
			if p.Flow.Src != addr("203.0.113.80") || p.DstMAC != clientMAC {
				t.Errorf("answer %v to %v", p.Flow, p.DstMAC)
			}
			tt.answer(t, p)
		})
	}
}

func TestNothingAvailableIsRefusedFromTheVIP(t *testing.T) {
	s := service("wlc", lvs.Masq, 1)
	s.Servers[0].Weight = 0
	w := newWorld(t, s)
	p := one(t, w.in(clientLink, w.syn("40000")))
	icmp := p.Buf[p.L4:]
	if icmp[0] != 3 || icmp[1] != 3 || p.Buf[p.L3+1] != 0xc0 {
		t.Errorf("ICMP %d/%d with TOS %#x, want 3/3 and 0xc0", icmp[0], icmp[1], p.Buf[p.L3+1])
	}
	w.wantVerdict(dataplane.NoDestination, 1)
}

func TestEchoAndARPForTheVIP(t *testing.T) {
	w := newWorld(t, service("rr", lvs.Route, 1))
	reply := one(t, w.in(clientLink, arpPacket(1, clientMAC, client, vip)))
	b := reply.Bytes()
	if b[7] != 2 || packet.MAC(b[8:14]) != directorMAC[clientLink] || packet.AddrFrom4(b[14:]) != addr(vip) || reply.DstMAC != clientMAC {
		t.Errorf("ARP reply %x to %v", b, reply.DstMAC)
	}
	if out := w.in(clientLink, arpPacket(1, clientMAC, client, "203.0.113.81")); len(out) != 0 {
		t.Error("answered ARP for an address that is no VIP")
	}
	echo := packettest.Build(t, packettest.Spec{Src: client + ":0", Dst: vip + ":0", UDP: true, Payload: make([]byte, 56)})
	ip := echo.Bytes()
	ip[9] = 1
	packet.PutIPv4Checksum(ip[:20])
	copy(ip[20:28], []byte{8, 0, 0, 0, 1, 2, 3, 4})
	binary.BigEndian.PutUint16(ip[22:], ^packet.Fold(packet.Sum(ip[20:], 0)))
	out := one(t, w.in(clientLink, echo))
	if out.Buf[out.L4] != 0 || out.Flow.Src != addr(vip) || out.Flow.Dst != addr(client) {
		t.Errorf("echo reply type %d, %v", out.Buf[out.L4], out.Flow)
	}
	w.wantVerdict(dataplane.AnsweredEcho, 1)
}

func TestVIPsAreAnnouncedOnTheirSegment(t *testing.T) {
	w := newWorld(t)
	if err := w.d.Apply(lvs.Ruleset{Services: []lvs.VirtualService{service("rr", lvs.Route, 1)}}); err != nil {
		t.Fatal(err)
	}
	out := w.w.Tick(w.now)
	if len(out) != 1 || out[0].Link != clientLink || out[0].DstMAC != packet.Broadcast || packet.AddrFrom4(out[0].Bytes()[14:]) != addr(vip) {
		t.Errorf("announced %d packets", len(out))
	}
	if again := w.w.Tick(w.now + time.Second); len(again) != 0 {
		t.Errorf("announced again")
	}
}

// TestEveryPacketHasOneVerdict sends a mix and compares the sum of all counts
// with the number of packets.
func TestEveryPacketHasOneVerdict(t *testing.T) {
	w := newWorld(t, service("rr", lvs.Masq, 2))
	n := uint64(0)
	for i := range 200 {
		var p *packet.Packet
		switch i % 6 {
		case 0:
			p = w.syn(fmt.Sprint(10000 + i))
		case 1:
			p = w.segment(fmt.Sprint(20000+i), packet.ACK)
		case 2:
			p = packettest.Packet([]byte{0x45, 0, 0}, packet.EtherIPv4)
		case 3:
			p = w.syn("3")
			p.Class = packet.OtherHost
		case 4:
			p = arpPacket(1, clientMAC, client, vip)
		case 5:
			p = packettest.Build(t, packettest.Spec{Src: client + ":9", Dst: vip + ":80", Flags: packet.SYN, TTL: 1})
		}
		w.in(clientLink, p)
		n++
	}
	var sum uint64
	for _, v := range w.d.Verdicts() {
		sum += v.Count
	}
	if sum != n {
		t.Errorf("%d packets, %d verdicts: %+v", n, sum, w.d.Verdicts())
	}
}

func TestAHitAllocatesNothing(t *testing.T) {
	for _, m := range []lvs.Method{lvs.Masq, lvs.Route, lvs.Tunnel, lvs.FullNAT} {
		s := service("wlc", m, 3)
		s.Sources.TOA = m == lvs.FullNAT
		w := newWorld(t, s)
		w.establish("40000")
		batch := []*packet.Packet{w.segment("40000", packet.ACK)}
		buf := bytes.Clone(batch[0].Buf)
		p := *batch[0]
		if n := testing.AllocsPerRun(500, func() {
			*batch[0] = p
			batch[0].Buf = p.Buf
			copy(p.Buf, buf)
			w.now += time.Millisecond
			w.w.Process(batch, w.now)
		}); n != 0 {
			t.Errorf("%v: %v allocations a hit", m, n)
		}
	}
}

func TestCountsEndAtZero(t *testing.T) {
	w := newWorld(t, service("lc", lvs.Masq, 3))
	for i := range 300 {
		w.in(clientLink, w.syn(fmt.Sprint(10000+i)))
	}
	w.after(61 * time.Second)
	for _, d := range w.d.Status()[0].Destinations {
		if d.Active != 0 || d.InAct != 0 {
			t.Errorf("%v still shows %d active, %d inactive", d.Server, d.Active, d.InAct)
		}
	}
}

func TestApplyIsAllOrNothing(t *testing.T) {
	w := newWorld(t, service("rr", lvs.Masq, 2))
	bad := service("rr", lvs.Masq, 2)
	bad.Servers[1].Weight = -1
	if err := w.d.Apply(lvs.Ruleset{Services: []lvs.VirtualService{service("wlc", lvs.Masq, 1), bad}}); err == nil {
		t.Fatal("a negative weight was taken")
	}
	if s := w.d.Status(); len(s) != 1 || s[0].Scheduler != "rr" || len(s[0].Destinations) != 2 {
		t.Errorf("the old rules changed: %+v", s)
	}
}

func TestARemovedServerComesBackWithItsConnections(t *testing.T) {
	two := service("rr", lvs.Masq, 2)
	w := newWorld(t, two)
	server := w.establish("40000") // the newest, server 2
	one1 := two
	one1.Servers = two.Servers[:1]
	w.apply(one1)
	if out := w.in(clientLink, w.segment("40000", packet.ACK)); len(out) != 0 {
		t.Errorf("a packet of a removed server's connection left: %v", summaries(out))
	}
	w.wantVerdict(dataplane.DestinationGone, 1)
	w.apply(two)
	if p := one(t, w.in(clientLink, w.segment("40000", packet.ACK))); serverOf(p) != server {
		t.Errorf("after coming back the connection is on %d, was on %d", serverOf(p), server)
	}
	for _, d := range w.d.Status()[0].Destinations {
		if d.Server.RIP == addr(rip(server)) && (d.Active != 1 || d.Stats.Conns != 1) {
			t.Errorf("it came back with %+v", d)
		}
	}
}

func TestDecisionsNameThePick(t *testing.T) {
	w := newWorld(t, service("wlc", lvs.Route, 3))
	for i := range 9 {
		p := one(t, w.in(clientLink, w.syn(fmt.Sprint(10000+i))))
		if len(w.w.Decisions) != 1 {
			t.Fatalf("%d decisions", len(w.w.Decisions))
		}
		d := w.w.Decisions[0]
		if e := &d.Explanation; len(e.Candidates) != 3 || e.Picked() != d.Pick || d.Pick.Server.RIP != addr(rip(serverOf(p))) {
			t.Errorf("explained %v, forwarded to %d", d.Pick.Server, serverOf(p))
		}
	}
}

// TestWorkersUnderRace runs several workers against edits and time.
func TestWorkersUnderRace(t *testing.T) {
	w := newWorld(t, service("wlc", lvs.Masq, 3))
	var wg sync.WaitGroup
	for g := range 3 {
		worker := w.d.NewWorker()
		wg.Go(func() {
			for i := range 400 {
				p := packettest.Build(t, packettest.Spec{Src: fmt.Sprintf("%s:%d", client, 1024+(i*7+g)%300), Dst: vip + ":80", Flags: packet.SYN})
				p.Link = clientLink
				worker.Process([]*packet.Packet{p}, time.Duration(i)*100*time.Millisecond)
				worker.Tick(time.Duration(i) * 100 * time.Millisecond)
			}
		})
	}
	for i := range 50 {
		w.apply(service([]string{"rr", "wlc", "wrr", "lc"}[i%4], lvs.Masq, i%4))
		w.d.Status()
	}
	wg.Wait()
	w.apply(service("rr", lvs.Masq, 3))
	w.after(20 * time.Minute)
	for _, d := range w.d.Status()[0].Destinations {
		if d.Active != 0 || d.InAct != 0 {
			t.Errorf("%v still shows %d active, %d inactive", d.Server, d.Active, d.InAct)
		}
	}
}
