package dataplane_test

import (
	"fmt"
	"testing"

	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// Field case 33, with source addresses: of ten connections that a real server
// opens to its own service by FullNAT, all ten are served, those that it serves
// itself included.
func TestAServerThatAsksItsOwnServiceByFullNAT(t *testing.T) {
	w := newWorld(t, fullNAT(service("rr", lvs.Masq, 2), fromPool()))
	went := map[int]int{}
	for i := range 10 {
		out := one(t, w.in(serverLink, packettest.Build(t, packettest.Spec{Src: fmt.Sprintf("%s:%d", rip(1), 40000+i), Dst: vip + ":80", Flags: packet.SYN})))
		went[serverOf(out)]++
		back := one(t, w.in(serverLink, packettest.Build(t, packettest.Spec{Src: rip(serverOf(out)) + ":8080", Dst: fmt.Sprintf("%s:%d", source4, out.Flow.SrcPort), Flags: packet.SYN | packet.ACK})))
		if back.Flow.Src != addr(vip) || back.Flow.Dst != addr(rip(1)) || int(back.Flow.DstPort) != 40000+i {
			t.Errorf("the answer to port %d is %v", 40000+i, back.Flow)
		}
	}
	if went[1] != 5 || went[2] != 5 {
		t.Errorf("the servers got %v, want five each", went)
	}
	w.wantVerdict(dataplane.Hairpin, 0)
}

// Field case 19, with source addresses: a client on its server's segment sees the
// VIP alone, because the server answers to the director.
func TestAClientBesideItsFullNATServer(t *testing.T) {
	const beside = "192.0.2.100"
	w := newWorld(t, fullNAT(service("rr", lvs.Masq, 1), fromPool()))
	w.d.Learn(dataplane.Neighbour{Link: serverLink, Addr: addr(beside), MAC: packet.MAC{2, 0, 0, 0, 1, 100}})
	out := one(t, w.in(serverLink, packettest.Build(t, packettest.Spec{Src: beside + ":40000", Dst: vip + ":80", Flags: packet.SYN})))
	if out.Flow.Src != addr(source4) || out.DstMAC != serverMAC(1) {
		t.Fatalf("%v left to %v", out.Flow, out.DstMAC)
	}
	back := one(t, w.in(serverLink, packettest.Build(t, packettest.Spec{Src: rip(1) + ":8080", Dst: fmt.Sprintf("%s:%d", source4, out.Flow.SrcPort), Flags: packet.SYN | packet.ACK})))
	if back.Flow.Src != addr(vip) || back.DstMAC != (packet.MAC{2, 0, 0, 0, 1, 100}) {
		t.Errorf("the answer is %v to %v", back.Flow, back.DstMAC)
	}
}

// One client port talks to two VIPs that have one real server and port. By NAT the
// server's answers could not be told apart, so the second is dropped; by FullNAT
// they have two ports, and both are served.
func TestTwoConnectionsThatAServerWouldAnswerAlike(t *testing.T) {
	const other = "203.0.113.81"
	ask := func(w *world, to string) []*packet.Packet {
		return w.in(clientLink, packettest.Build(t, packettest.Spec{Src: client + ":40000", Dst: to + ":80", Flags: packet.SYN}))
	}
	twice := func(s lvs.VirtualService) *world {
		second := s
		second.VIP = addr(other)
		return newWorld(t, s, second)
	}
	w := twice(service("rr", lvs.Masq, 1))
	one(t, ask(w, vip))
	if out := ask(w, other); len(out) != 0 {
		t.Errorf("by NAT the second left as %v", summaries(out))
	}
	w.wantVerdict(dataplane.ReplyTaken, 1)
	back := one(t, w.in(serverLink, packettest.Build(t, packettest.Spec{Src: rip(1) + ":8080", Dst: client + ":40000", Flags: packet.SYN | packet.ACK})))
	if back.Flow.Src != addr(vip) {
		t.Errorf("the answer comes from %v", back.Flow.Src)
	}

	w = twice(fullNAT(service("rr", lvs.Masq, 1), fromPool()))
	for _, to := range []string{vip, other} {
		out := one(t, ask(w, to))
		back := one(t, w.in(serverLink, packettest.Build(t, packettest.Spec{Src: rip(1) + ":8080", Dst: fmt.Sprintf("%s:%d", source4, out.Flow.SrcPort), Flags: packet.SYN | packet.ACK})))
		if back.Flow.Src != addr(to) || back.Flow.DstPort != 40000 {
			t.Errorf("by FullNAT the answer of %s is %v", to, back.Flow)
		}
	}
}

// Two clients that by chance have the same port are two connections to one server,
// by NAT and by FullNAT.
func TestTwoClientsWithOnePort(t *testing.T) {
	const second = "198.51.100.11"
	for _, s := range []lvs.VirtualService{service("rr", lvs.Masq, 1), fullNAT(service("rr", lvs.Masq, 1), fromPool())} {
		w := newWorld(t, s)
		w.d.Learn(dataplane.Neighbour{Link: clientLink, Addr: addr(second), MAC: clientMAC})
		for _, c := range []string{client, second} {
			out := one(t, w.ask(c, 40000, false))
			back := one(t, w.in(serverLink, packettest.Build(t, packettest.Spec{Src: rip(1) + ":8080",
				Dst: packet.Endpoint(out.Flow.Src, out.Flow.SrcPort), Flags: packet.SYN | packet.ACK})))
			if back.Flow.Dst != addr(c) || back.Flow.DstPort != 40000 {
				t.Errorf("the answer to %s is %v", c, back.Flow)
			}
		}
	}
}

// Nobody but the director sends from its source addresses.
func TestAPacketFromASourceAddressIsForged(t *testing.T) {
	w := newWorld(t, fullNAT(service("rr", lvs.Masq, 1), fromPool()))
	if out := w.ask(source4, 40000, false); len(out) != 0 {
		t.Errorf("%v left", summaries(out))
	}
	w.wantVerdict(dataplane.ForgedSource, 1)
}
