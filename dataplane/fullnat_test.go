package dataplane_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

const (
	source4 = "192.0.2.200"
	source6 = "2001:db8:2::200"
)

// fullNAT makes a service's servers FullNAT ones, sent to from a pool address
// that is the director's alone.
func fullNAT(s lvs.VirtualService, sources lvs.Sources) lvs.VirtualService {
	s.Sources = sources
	for i := range s.Servers {
		s.Servers[i].Method, s.Servers[i].Port = lvs.FullNAT, 8080
	}
	return s
}

func fromPool() lvs.Sources { return lvs.Sources{Addrs: []packet.Addr{addr(source4)}} }

func ipv6(s lvs.VirtualService) lvs.VirtualService {
	s.VIP = addr(vip6)
	for i := range s.Servers {
		s.Servers[i].RIP = addr(rip6(i + 1))
	}
	for i := range s.Sources.Addrs {
		s.Sources.Addrs[i] = addr(source6)
	}
	return s
}

func TestFullNATReplacesBothEndsOfRequestsAndReplies(t *testing.T) {
	tests := []struct {
		name                      string
		service                   lvs.VirtualService
		client, vip, source, real string
		udp                       bool
	}{
		{"TCP over IPv4", fullNAT(service("rr", lvs.Masq, 1), fromPool()), client, vip, source4, rip(1), false},
		{"UDP over IPv4", udp(fullNAT(service("rr", lvs.Masq, 1), fromPool())), client, vip, source4, rip(1), true},
		{"TCP over IPv6", ipv6(fullNAT(service("rr", lvs.Masq, 1), fromPool())), "[2001:db8:1::10]", "[" + vip6 + "]", "[" + source6 + "]", "[" + rip6(1) + "]", false},
		{"UDP over IPv6", udp(ipv6(fullNAT(service("rr", lvs.Masq, 1), fromPool()))), "[2001:db8:1::10]", "[" + vip6 + "]", "[" + source6 + "]", "[" + rip6(1) + "]", true},
		{"from the director's own address", fullNAT(service("rr", lvs.Masq, 1), lvs.Sources{}), client, vip, "192.0.2.254", rip(1), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, tt.service)
			out := one(t, w.in(clientLink, packettest.Build(t, packettest.Spec{Src: tt.client + ":40000", Dst: tt.vip + ":80", UDP: tt.udp, Flags: packet.SYN, Seq: 7, Payload: []byte("x")})))
			source := fmt.Sprintf("%s:%d", tt.source, out.Flow.SrcPort)
			if got, want := out.Flow.String(), fmt.Sprintf("%v %s -> %s:8080", out.Flow.Proto, source, tt.real); got != want {
				t.Fatalf("the request is %s, want %s", got, want)
			}
			if out.Link != serverLink || out.DstMAC != serverMAC(1) || out.Flow.SrcPort < 1024 {
				t.Errorf("the request left by link %d to %v from port %d", out.Link, out.DstMAC, out.Flow.SrcPort)
			}
			back := one(t, w.in(serverLink, packettest.Build(t, packettest.Spec{Src: tt.real + ":8080", Dst: source, UDP: tt.udp, Flags: packet.SYN | packet.ACK, Ack: 8, Payload: []byte("y")})))
			if got, want := back.Flow.String(), fmt.Sprintf("%v %s:80 -> %s:40000", out.Flow.Proto, tt.vip, tt.client); got != want {
				t.Errorf("the reply is %s, want %s", got, want)
			}
			if back.Link != clientLink || back.DstMAC != clientMAC {
				t.Errorf("the reply left by link %d to %v", back.Link, back.DstMAC)
			}
			w.wantVerdict(dataplane.Replied, 1)
		})
	}
}

// newPermanentWorld is newWorld with neighbours that need not be asked again.
func newPermanentWorld(t testing.TB, services ...lvs.VirtualService) *world {
	w := newWorld(t, services...)
	w.d.Learn(dataplane.Neighbour{Link: clientLink, Addr: addr(client), MAC: clientMAC, Permanent: true})
	for i := 1; i <= 4; i++ {
		w.d.Learn(dataplane.Neighbour{Link: serverLink, Addr: addr(rip(i)), MAC: serverMAC(i), Permanent: true})
	}
	return w
}

// ask is a client's first packet to the service by UDP or TCP.
func (w *world) ask(clientAddr string, port int, udp bool) []*packet.Packet {
	return w.in(clientLink, packettest.Build(w.t, packettest.Spec{Src: fmt.Sprintf("%s:%d", clientAddr, port), Dst: vip + ":80", UDP: udp, Flags: packet.SYN}))
}

// TestFullNATUsesEveryPortUpToTheLastAndRefusesTheNext: two addresses with three
// ports each towards each of two servers take twelve connections, no two of which
// share address, port and server; the next is refused with an error, counted, and
// leaves no trace. When one ends its port is given again.
func TestFullNATUsesEveryPortUpToTheLastAndRefusesTheNext(t *testing.T) {
	s := udp(fullNAT(service("rr", lvs.Masq, 2), lvs.Sources{
		Addrs: []packet.Addr{addr(source4), addr("192.0.2.201")}, Ports: lvs.PortRange{From: 5000, To: 5002}}))
	w := newPermanentWorld(t, s)
	given := map[packet.Flow]int{}
	for i := range 12 {
		out := one(t, w.ask(client, 20000+i, true))
		if before, twice := given[out.Flow]; twice {
			t.Fatalf("client ports %d and %d both became %v", before, 20000+i, out.Flow)
		}
		if out.Flow.SrcPort < 5000 || out.Flow.SrcPort > 5002 {
			t.Errorf("%v is out of the range", out.Flow)
		}
		given[out.Flow] = 20000 + i
	}
	out := one(t, w.ask(client, 21000, true))
	if icmp := out.Buf[out.L4:]; out.Flow.Dst != addr(client) || icmp[0] != 3 || icmp[1] != 3 {
		t.Errorf("the client got %v, type %d code %d; want port unreachable", out.Flow, icmp[0], icmp[1])
	}
	w.wantVerdict(dataplane.PortsExhausted, 1)
	if n := w.d.Table().Connections; n != 12 {
		t.Errorf("%d entries, want 12", n)
	}
	for _, d := range w.d.Status()[0].Destinations {
		if d.InAct != 6 {
			t.Errorf("%v counts %d connections, want 6", d.Server, d.InAct)
		}
	}
	w.after(200 * time.Second)
	for i := range 11 { // renewed; port 20011's connection ends
		one(t, w.ask(client, 20000+i, true))
	}
	w.after(200 * time.Second)
	again := one(t, w.ask(client, 22000, true))
	if given[again.Flow] != 20011 {
		t.Errorf("the port that came back is %v, of client port %d; want that of 20011", again.Flow, given[again.Flow])
	}
}

// TestRunningOutOfPortsIsAnsweredAtALimitedRate: a thousand clients that find no
// port get no more errors than a burst.
func TestRunningOutOfPortsIsAnsweredAtALimitedRate(t *testing.T) {
	s := fullNAT(service("rr", lvs.Masq, 1), lvs.Sources{Addrs: []packet.Addr{addr(source4)}, Ports: lvs.PortRange{From: 5000, To: 5000}})
	w := newWorld(t, s)
	answers := -1 // the first is forwarded
	for i := range 1000 {
		answers += len(w.ask(client, 10000+i, false))
	}
	w.wantVerdict(dataplane.PortsExhausted, 999)
	if answers != 50 {
		t.Errorf("%d answers, want a burst of 50", answers)
	}
}

// TestTwoServicesWithOneServerShareItsPool: connections of both, to two ports of
// one server, never have the same source port, and replies find theirs.
func TestTwoServicesWithOneServerShareItsPool(t *testing.T) {
	src := lvs.Sources{Addrs: []packet.Addr{addr(source4)}, Ports: lvs.PortRange{From: 5000, To: 5099}}
	a, b := udp(fullNAT(service("rr", lvs.Masq, 1), src)), udp(fullNAT(service("rr", lvs.Masq, 1), src))
	b.Port, b.Servers[0].Port = 81, 9090
	w := newWorld(t, a, b)
	seen := map[uint16]bool{}
	for i := range 100 {
		p := packettest.Build(t, packettest.Spec{Src: fmt.Sprintf("%s:%d", client, 10000+i), Dst: fmt.Sprintf("%s:%d", vip, 80+i%2), UDP: true})
		out := one(t, w.in(clientLink, p))
		if seen[out.Flow.SrcPort] {
			t.Fatalf("port %d is given twice", out.Flow.SrcPort)
		}
		seen[out.Flow.SrcPort] = true
		back := one(t, w.in(serverLink, packettest.Build(t, packettest.Spec{Src: fmt.Sprintf("%s:%d", rip(1), out.Flow.DstPort), Dst: fmt.Sprintf("%s:%d", source4, out.Flow.SrcPort), UDP: true})))
		if int(back.Flow.DstPort) != 10000+i || int(back.Flow.SrcPort) != 80+i%2 {
			t.Errorf("the reply to client port %d is %v", 10000+i, back.Flow)
		}
	}
}

// TestFullNATConnectionsNeverShareAPort plays random clients, replies and time
// against a map of what each client was given: no two live connections share a
// port towards a server, replies reach the client that asked, and in the end every
// port is free again.
func TestFullNATConnectionsNeverShareAPort(t *testing.T) {
	const ports, clients = 20, 60
	s := udp(fullNAT(service("rr", lvs.Masq, 2), lvs.Sources{Addrs: []packet.Addr{addr(source4)}, Ports: lvs.PortRange{From: 5000, To: 5000 + ports - 1}}))
	w := newPermanentWorld(t, s)
	w.d.SetTimeouts(0, 0, 20*time.Second)
	r := rand.New(rand.NewPCG(1, 2))
	type given struct {
		flow packet.Flow
		ends time.Duration
	}
	model := map[int]given{} // by client port
	taken := func() int {
		n := 0
		for c, g := range model {
			if g.ends <= w.now {
				delete(model, c)
			} else {
				n++
			}
		}
		return n
	}
	refused := uint64(0)
	for range 20000 {
		taken()
		c := 10000 + r.IntN(clients)
		g, known := model[c]
		switch r.IntN(4) {
		case 0:
			w.after(time.Duration(r.IntN(2000)) * time.Millisecond)
		case 1:
			if known {
				back := one(t, w.in(serverLink, packettest.Build(t, packettest.Spec{Src: fmt.Sprintf("%s:8080", g.flow.Dst), Dst: fmt.Sprintf("%s:%d", source4, g.flow.SrcPort), UDP: true})))
				if int(back.Flow.DstPort) != c {
					t.Fatalf("a reply for client port %d went to %v", c, back.Flow)
				}
				g.ends = w.now + 20*time.Second
				model[c] = g
			}
		default:
			out := w.ask(client, c, true)
			if w.d.Count(dataplane.PortsExhausted) != refused {
				refused++
				if known {
					t.Fatalf("client port %d has a connection and was refused", c)
				}
				continue
			}
			p := one(t, out)
			if known && p.Flow != g.flow {
				t.Fatalf("client port %d moved from %v to %v", c, g.flow, p.Flow)
			}
			for other, o := range model {
				if other != c && o.flow == p.Flow {
					t.Fatalf("client ports %d and %d both are %v", other, c, p.Flow)
				}
			}
			model[c] = given{p.Flow, w.now + 20*time.Second}
		}
	}
	if refused == 0 {
		t.Error("the ports never ran out: the test shows little")
	}
	w.after(30 * time.Second)
	for i := range 2 * ports {
		one(t, w.ask(client, 30000+i, true))
	}
	w.wantVerdict(dataplane.PortsExhausted, refused)
}

func TestFullNATOfSCTPHasTheRightCRC32c(t *testing.T) {
	s := fullNAT(service("rr", lvs.Masq, 1), fromPool())
	s.Proto = packet.SCTP
	w := newWorld(t, s)
	out := w.in(clientLink, sctp(client, vip, 40000, 80, sctpInit))
	if len(out) != 1 || out[0].Flow.Src != addr(source4) || out[0].Flow.Dst != addr(rip(1)) {
		t.Fatalf("the INIT became %v", summaries(out))
	}
	wantCRC32c(t, out[0])
	back := w.in(serverLink, sctp(rip(1), source4, 8080, out[0].Flow.SrcPort, sctpInit+1))
	if len(back) != 1 || back[0].Flow.Src != addr(vip) || back[0].Flow.DstPort != 40000 {
		t.Fatalf("the INIT ACK became %v", summaries(back))
	}
	wantCRC32c(t, back[0])
}

// TestTheDirectorAnswersForSourceAddressesThatTheHostDoesNotHave: ARP, neighbour
// discovery and pings; it announces them, and leaves the host's own to the host.
func TestTheDirectorAnswersForSourceAddressesThatTheHostDoesNotHave(t *testing.T) {
	s := fullNAT(service("rr", lvs.Masq, 1), lvs.Sources{Addrs: []packet.Addr{addr(source4), addr("192.0.2.254")}})
	w := newWorld(t)
	if err := w.d.Apply(lvs.Ruleset{Services: []lvs.VirtualService{s, ipv6(fullNAT(service("rr", lvs.Masq, 1), fromPool()))}}); err != nil {
		t.Fatal(err)
	}
	announced := map[packet.Addr]bool{}
	for _, p := range copies(w.w.Tick(w.now)) {
		if p.EtherType == packet.EtherARP {
			announced[packet.AddrFrom4(p.Bytes()[14:])] = p.Link == serverLink
		} else {
			announced[packet.AddrFrom16(p.Buf[p.L4+8:])] = p.Link == serverLink
		}
	}
	if own := announced[addr("192.0.2.254")]; !announced[addr(source4)] || !announced[addr(source6)] || own {
		t.Errorf("announced on the servers' segment: %v", announced)
	}
	answers := w.in(serverLink, arpPacket(1, serverMAC(1), rip(1), source4))
	if len(answers) != 1 || !bytes.Equal(answers[0].Bytes()[8:14], directorMAC[1][:]) {
		t.Errorf("asked for %s: %v", source4, summaries(answers))
	}
	if out := w.in(serverLink, arpPacket(1, serverMAC(1), rip(1), "192.0.2.254")); len(out) != 0 {
		t.Error("the host's own address was answered for by the director, too")
	}
	w.wantVerdict(dataplane.AnsweredARP, 1)
	reset := one(t, w.in(serverLink, packettest.Build(t, packettest.Spec{Src: rip(1) + ":8080", Dst: source4 + ":5000", Flags: packet.ACK})))
	if reset.TCPFlags&packet.RST == 0 && reset.Buf[reset.L4+13]&packet.RST == 0 {
		t.Errorf("a server's segment of no connection was answered by %v", reset.Flow)
	}
}

func TestSourceAddressesThatAreSomethingElseAreRefused(t *testing.T) {
	good := fullNAT(service("rr", lvs.Masq, 2), fromPool())
	other := func(change func(*lvs.VirtualService)) lvs.VirtualService {
		s := fullNAT(service("rr", lvs.Masq, 2), fromPool())
		s.Port = 81
		change(&s)
		return s
	}
	for name, s := range map[string]lvs.VirtualService{
		"is a VIP":               other(func(s *lvs.VirtualService) { s.Sources.Addrs = []packet.Addr{addr(vip)} }),
		"is a real server's":     other(func(s *lvs.VirtualService) { s.Sources.Addrs = []packet.Addr{addr(rip(2))} }),
		"with other source port": other(func(s *lvs.VirtualService) { s.Sources.Ports = lvs.PortRange{From: 1, To: 9} }),
		"another IP version":     other(func(s *lvs.VirtualService) { s.Sources.Addrs = []packet.Addr{addr(source6)} }),
	} {
		w := newWorld(t, good)
		if err := w.d.Apply(lvs.Ruleset{Services: []lvs.VirtualService{good, s}}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("applied together, a source that %s: %v", name, err)
		}
		if err := w.d.AddService(s); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("added, a source that %s: %v", name, err)
		}
	}
	good.ClampMSS = true
	w := newWorld(t, good)
	rs := lvs.RealServer{ServerKey: lvs.ServerKey{RIP: addr(source4), Port: 80}, Method: lvs.Masq}
	if err := w.d.AddServer(good.ServiceKey, rs); err == nil {
		t.Error("a real server with a source's address was added")
	}
	// What ipvsadm has no word for stays when it edits a service.
	edited := service("wlc", lvs.Masq, 0)
	if err := w.d.EditService(edited); err != nil {
		t.Fatal(err)
	}
	if out := one(t, w.ask(client, 40000, false)); out.Flow.Src != addr(source4) {
		t.Errorf("after an edit, the source is %v", out.Flow.Src)
	}
	if s := w.d.Ruleset().Services[0]; s.Scheduler != "wlc" || !s.ClampMSS || len(s.Sources.Addrs) == 0 {
		t.Errorf("after an edit the service is %+v", s)
	}
}

// TestTheDirectorsOwnAddressHasOneRangeOfPorts: services that name no sources share
// the director's own, whose ports are given by one pool for each server.
func TestTheDirectorsOwnAddressHasOneRangeOfPorts(t *testing.T) {
	fullNATs := func(port, from uint16) lvs.VirtualService {
		s := fullNAT(service("rr", lvs.Masq, 1), lvs.Sources{Ports: lvs.PortRange{From: from, To: 9000}})
		s.Port = port
		return s
	}
	first, second := fullNATs(80, 5000), fullNATs(81, 6000)
	newWorld(t, first, fullNATs(81, 5000)) // the same range
	w := newWorld(t, first)
	const why = "an address has one range"
	if err := w.d.Apply(lvs.Ruleset{Services: []lvs.VirtualService{first, second}}); err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("applied together: %v", err)
	}
	server := second.Servers[0]
	second.Servers = nil
	if err := w.d.AddService(second); err != nil {
		t.Fatalf("a service without servers sends nothing: %v", err)
	}
	if err := w.d.AddServer(second.ServiceKey, server); err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("its first server: %v", err)
	}
	masqueraded := server
	masqueraded.Method = lvs.Masq
	if err := w.d.AddServer(second.ServiceKey, masqueraded); err != nil {
		t.Error(err)
	}
	if err := w.d.EditServer(second.ServiceKey, server); err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("a server that becomes FullNAT: %v", err)
	}
	if err := w.d.AddServer(first.ServiceKey, lvs.RealServer{ServerKey: lvs.ServerKey{RIP: addr(rip(2)), Port: 80}, Method: lvs.FullNAT, Weight: 1}); err != nil {
		t.Errorf("a second server of the service that has the range: %v", err)
	}
}

// TestAServerOfAOnePacketServiceThatBecomesFullNATKeepsEntries: its answers are
// found by them.
func TestAServerOfAOnePacketServiceThatBecomesFullNATKeepsEntries(t *testing.T) {
	s := udp(service("rr", lvs.Masq, 1))
	s.OnePacket = true
	w := newWorld(t, s)
	rs := s.Servers[0]
	rs.Method = lvs.FullNAT
	if err := w.d.EditServer(s.ServiceKey, rs); err == nil {
		t.Error("the method was taken")
	}
	plain := s
	plain.OnePacket = false
	w = newWorld(t, fullNAT(plain, fromPool()))
	if err := w.d.EditService(s); err != nil {
		t.Fatal(err)
	}
	out := one(t, w.ask(client, 40000, true))
	if out.Flow.Src != addr(source4) || w.d.Table().Connections != 1 {
		t.Errorf("%v left, %d entries", out.Flow, w.d.Table().Connections)
	}
}
