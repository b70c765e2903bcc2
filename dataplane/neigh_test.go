package dataplane_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// stranger is a world whose only real server, 1, has an unknown MAC.
func stranger(t *testing.T) *world {
	w := newWorld(t, service("rr", lvs.Route, 1))
	w.d.Learn(dataplane.Neighbour{Link: serverLink, Addr: addr(rip(1))})
	return w
}

func isRequestFor(p *packet.Packet, host string) bool {
	return p.EtherType == packet.EtherARP && p.Bytes()[7] == 1 && packet.AddrFrom4(p.Bytes()[24:]) == addr(host)
}

func TestUnknownNeighbour(t *testing.T) {
	t.Run("five SYNs ask once and leave in order when the answer comes", func(t *testing.T) {
		w := stranger(t)
		var asked int
		var want [][]byte
		for i := range 5 {
			marked := packettest.Build(t, packettest.Spec{Src: fmt.Sprintf("%s:%d", client, 40000+i), Dst: vip + ":80", Flags: packet.SYN, Payload: fmt.Appendf(nil, "marker %d", i)})
			frame := bytes.Clone(marked.Bytes())
			frame[8]--
			packet.PutIPv4Checksum(frame[:20])
			want = append(want, frame)
			for _, p := range w.in(clientLink, marked) {
				if !isRequestFor(p, rip(1)) {
					t.Fatalf("left before the answer: %v", p.Flow)
				}
				if sender := packet.AddrFrom4(p.Bytes()[14:]); sender != addr("192.0.2.254") || p.DstMAC != packet.Broadcast {
					t.Errorf("asked as %v to %v", sender, p.DstMAC)
				}
				asked++
			}
			clear(marked.Buf) // the ring slot is used again
			w.now += 2 * time.Millisecond
		}
		if asked != 1 {
			t.Errorf("%d requests, want 1", asked)
		}
		w.after(190 * time.Millisecond)
		out := w.in(serverLink, arpPacket(2, serverMAC(1), rip(1), "192.0.2.254"))
		if len(out) != 5 {
			t.Fatalf("%d packets left, want 5", len(out))
		}
		for i, p := range out {
			if !bytes.Equal(p.Bytes(), want[i]) || p.DstMAC != serverMAC(1) {
				t.Errorf("packet %d:\n%x\nwant\n%x", i, p.Bytes(), want[i])
			}
		}
		w.wantVerdict(dataplane.Forwarded, 5)
	})
	t.Run("no answer: three requests in three seconds, then the packets are dropped and all starts again", func(t *testing.T) {
		w := stranger(t)
		out := w.in(clientLink, w.syn("40000"))
		out = append(out, w.after(10*time.Second)...)
		requests := 0
		for _, p := range out {
			if isRequestFor(p, rip(1)) {
				requests++
			}
		}
		if requests != 3 {
			t.Errorf("%d requests, want 3", requests)
		}
		w.wantVerdict(dataplane.NoNeighbour, 1)
		if out := w.in(clientLink, w.syn("40000")); len(out) != 1 || !isRequestFor(out[0], rip(1)) {
			t.Errorf("the next SYN asked %d times", len(out))
		}
	})
	t.Run("the queue is bounded and the rest counted", func(t *testing.T) {
		w := stranger(t)
		for i := range 100 {
			w.in(clientLink, w.syn(fmt.Sprint(40000+i)))
		}
		w.wantVerdict(dataplane.NeighbourQueueFull, 100-32)
		if out := w.in(serverLink, arpPacket(2, serverMAC(1), rip(1), "192.0.2.254")); len(out) != 32 {
			t.Errorf("%d packets left, want 32", len(out))
		}
	})
	t.Run("the host's kernel finds it: what waits leaves at the next tick", func(t *testing.T) {
		w := stranger(t)
		w.in(clientLink, w.syn("40000"))
		w.d.Learn(dataplane.Neighbour{Link: serverLink, Addr: addr(rip(1)), MAC: serverMAC(1)})
		if out := w.after(50 * time.Millisecond); len(out) != 1 || out[0].DstMAC != serverMAC(1) {
			t.Errorf("%d packets left", len(out))
		}
	})
}

func TestGratuitousARPIsHeeded(t *testing.T) {
	w := newWorld(t, service("rr", lvs.Route, 1))
	replaced := packet.MAC{2, 0, 0, 0, 1, 0x77}
	for _, op := range []byte{1, 2} {
		replaced[4] = op
		w.in(serverLink, arpPacket(op, replaced, rip(1), rip(1)))
		w.wantVerdict(dataplane.Learned, uint64(op))
		if p := one(t, w.in(clientLink, w.syn(fmt.Sprint(40000+int(op))))); p.DstMAC != replaced {
			t.Errorf("operation %d: the next frame went to %v, want %v", op, p.DstMAC, replaced)
		}
	}
	// What the host's kernel still believes does not undo the announcement.
	w.d.Learn(dataplane.Neighbour{Link: serverLink, Addr: addr(rip(1)), MAC: serverMAC(1)})
	if p := one(t, w.in(clientLink, w.syn("40009"))); p.DstMAC != replaced {
		t.Errorf("went back to the old %v", p.DstMAC)
	}
}

func TestAnOldNeighbourIsAskedAgainWhileInUse(t *testing.T) {
	w := newWorld(t, service("rr", lvs.Route, 1))
	w.after(31 * time.Second)
	out := w.in(clientLink, w.syn("40000"))
	if len(out) != 2 || !isRequestFor(out[0], rip(1)) || out[1].DstMAC != serverMAC(1) {
		t.Fatalf("%d packets left, want a request and the SYN: %v", len(out), summaries(out))
	}
	if out := w.in(clientLink, w.syn("40001")); len(out) != 1 {
		t.Errorf("asked twice within a second")
	}
	w.after(5 * time.Second) // no answer: it is gone
	if out := w.in(clientLink, w.syn("40002")); len(out) != 1 || !isRequestFor(out[0], rip(1)) {
		t.Errorf("a neighbour that stopped answering is still used: %v", summaries(out))
	}
}

func TestANeighbourClaimingTheVIPIsCounted(t *testing.T) {
	w := newWorld(t, service("rr", lvs.Route, 1))
	w.in(clientLink, arpPacket(2, packet.MAC{2, 9, 9, 9, 9, 9}, vip, vip))
	w.wantVerdict(dataplane.VIPConflict, 1)
}

func TestNeighbourDiscovery(t *testing.T) {
	s := service("rr", lvs.Route, 0)
	s.VIP = addr(vip6)
	s.Servers = []lvs.RealServer{{ServerKey: lvs.ServerKey{RIP: addr(rip6(1)), Port: 80}, Method: lvs.Route, Weight: 1}}
	w := newWorld(t, s)
	w.d.Learn(dataplane.Neighbour{Link: serverLink, Addr: addr(rip6(1))})
	out := one(t, w.in(clientLink, packettest.Build(t, packettest.Spec{Src: "[2001:db8:1::10]:40000", Dst: "[" + vip6 + "]:80", Flags: packet.SYN})))
	solicitation := out.Buf[out.L4:]
	if solicitation[0] != 135 || packet.AddrFrom16(solicitation[8:]) != addr(rip6(1)) || out.DstMAC != (packet.MAC{0x33, 0x33, 0xff, 0, 0, 1}) {
		t.Fatalf("solicited %x to %v", solicitation, out.DstMAC)
	}
	// The server asks for the VIP; the director answers. Then the server
	// answers the director, and the SYN leaves.
	ask := packettest.Packet(out.Bytes(), packet.EtherIPv6)
	b := ask.Bytes()
	addr(rip6(1)).Put16(b[8:])
	addr(vip6).Put16(b[48:])
	mac := serverMAC(1)
	copy(b[66:], mac[:])
	sumICMPv6(b)
	answer := w.in(serverLink, ask)
	if len(answer) != 2 {
		t.Fatalf("%d packets left, want the SYN (the server's MAC is in its question) and the advertisement", len(answer))
	}
	if answer[0].DstMAC != serverMAC(1) || answer[0].Flow.DstPort != 80 {
		t.Errorf("the SYN went to %v", answer[0].DstMAC)
	}
	adv := answer[1].Buf[answer[1].L4:]
	if err := packettest.Verify(answer[1].Bytes()); err != nil {
		t.Error(err)
	}
	if adv[0] != 136 || adv[4]&0x40 == 0 || packet.AddrFrom16(adv[8:]) != addr(vip6) || packet.MAC(adv[26:]) != directorMAC[serverLink] {
		t.Errorf("advertisement %x", adv)
	}
	w.wantVerdict(dataplane.AnsweredND, 1)
}

func sumICMPv6(b []byte) {
	b[42], b[43] = 0, 0
	sum := packet.Fold(packet.Sum(b[40:], packet.PseudoSum(packet.AddrFrom16(b[8:]), packet.AddrFrom16(b[24:]), packet.ICMPv6, len(b)-40)))
	b[42], b[43] = byte(^sum>>8), byte(^sum)
}

// A packet that waits while the host finds its neighbour and loses it again is
// not forgotten: the neighbour is asked for, and then it has a verdict.
func TestANeighbourThatTheHostLosesAgainIsAskedFor(t *testing.T) {
	w := newWorld(t, service("rr", lvs.Route, 1))
	lost := dataplane.Neighbour{Link: serverLink, Addr: addr(rip(1))}
	w.d.Learn(lost)
	w.in(clientLink, w.syn("40000"))
	found := lost
	found.MAC = serverMAC(1)
	w.d.Learn(found)
	w.d.Learn(lost)
	asked := 0
	for _, p := range w.after(10 * time.Second) {
		if isRequestFor(p, rip(1)) {
			asked++
		}
	}
	if asked == 0 {
		t.Error("nobody asked for the neighbour")
	}
	w.wantVerdict(dataplane.NoNeighbour, 1)
}
