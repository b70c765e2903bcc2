package dataplane_test

import (
	"fmt"
	"testing"

	"pktdirector/conntrack"
	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// pair is two directors with one configuration, each with itself and the other
// one as real servers of direct routing. Each sees the other as server 1.
func pair(t *testing.T) (master, standby *world) {
	const self = "192.0.2.254"
	s := service("rr", lvs.Route, 1)
	s.Servers = append(s.Servers, lvs.RealServer{ServerKey: lvs.ServerKey{RIP: addr(self), Port: 80}, Method: lvs.Route, Weight: 1})
	return newWorld(t, s), newWorld(t, s)
}

// handOver gives the peer a frame that the other director sent, and returns what
// the peer sends.
func handOver(to *world, p *packet.Packet) []*packet.Packet {
	p.Class, p.SrcMAC, p.DstMAC = packet.ToUs, serverMAC(1), directorMAC[serverLink]
	return to.in(serverLink, p)
}

// Field case 35: both directors are real servers of direct routing, with the same
// services. What the master hands the one that stands by is its host's.
func TestADirectorThatStandsByLeavesPacketsToItsHost(t *testing.T) {
	master, standby := pair(t)
	standby.d.SetStandby(true)
	for port := range 10 {
		for _, p := range master.in(clientLink, master.syn(fmt.Sprint(40000+port))) {
			if out := handOver(standby, p); len(out) != 0 {
				t.Errorf("%v came back from the standby", summaries(out))
			}
		}
	}
	master.wantVerdict(dataplane.LocalNode, 5)
	master.wantVerdict(dataplane.Forwarded, 5)
	standby.wantVerdict(dataplane.StandingBy, 5)
	standby.wantVerdict(dataplane.Forwarded, 0)
	if s := standby.d.Status()[0].Stats; s.Conns != 0 {
		t.Errorf("the standby counted %+v", s)
	}
	if n := master.d.Bounced() + standby.d.Bounced(); n != 0 {
		t.Errorf("%d packets bounced", n)
	}
}

// Without standby the peer schedules what the master handed it, and may choose the
// master: that is counted.
func TestPacketsThatBounceBetweenTwoMastersAreCounted(t *testing.T) {
	master, other := pair(t)
	back := 0
	for port := range 10 {
		for _, p := range master.in(clientLink, master.syn(fmt.Sprint(40000+port))) {
			back += len(handOver(other, p))
		}
	}
	if got := other.d.Bounced(); back == 0 || got != uint64(back) {
		t.Errorf("%d frames came back, %d counted as bounced", back, got)
	}
	if n := master.d.Bounced(); n != 0 {
		t.Errorf("the master counted %d: its packets came from clients", n)
	}
}

// A director that stands by is silent; when it takes over it announces the VIP,
// answers for it and goes on with the connections it has.
func TestADirectorThatTakesOver(t *testing.T) {
	w := newWorld(t, service("rr", lvs.Route, 2))
	w.after(100e6)
	server := w.establish("40000")
	w.d.SetStandby(true)
	for _, in := range []*packet.Packet{
		w.segment("40000", packet.ACK), w.syn("40001"), arpPacket(1, clientMAC, client, vip), ping(t, vip),
	} {
		if out := w.in(clientLink, in); len(out) != 0 {
			t.Errorf("it stands by, and sent %v", summaries(out))
		}
	}
	if out := w.after(100e6); len(out) != 0 {
		t.Errorf("it stands by, and sent %v", summaries(out))
	}
	w.wantVerdict(dataplane.StandingBy, 3)
	w.wantVerdict(dataplane.AnsweredARP, 0)
	w.wantEntry(40000, server, conntrack.Established, 899900e6)

	w.d.SetStandby(false)
	announced := 0
	for _, p := range w.after(100e6) {
		if p.EtherType == packet.EtherARP && p.DstMAC == packet.Broadcast {
			announced++
		}
	}
	if announced == 0 {
		t.Error("it took over without a gratuitous ARP")
	}
	if p := one(t, w.in(clientLink, w.segment("40000", packet.ACK))); serverOf(p) != server {
		t.Errorf("the connection went to server %d, want %d", serverOf(p), server)
	}
	w.in(clientLink, arpPacket(1, clientMAC, client, vip))
	w.wantVerdict(dataplane.AnsweredARP, 1)
	w.d.SetStandby(false) // again: nothing to announce
	if out := w.after(100e6); len(out) != 0 {
		t.Errorf("it was in charge already, and sent %v", summaries(out))
	}
}
