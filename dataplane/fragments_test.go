package dataplane_test

import (
	"bytes"
	"testing"
	"time"

	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// numbered is n bytes of which no two pieces are alike.
func numbered(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8*13)
	}
	return b
}

// Field case 12: a datagram of 4,000 bytes in three fragments, in any order, is one
// connection to one server and arrives whole, whichever worker had which piece.
func TestFragmentsInAnyOrder(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}} {
		w := newWorld(t, udp(service("rr", lvs.Masq, 3)))
		workers := []*dataplane.Worker{w.w, w.d.NewWorker(), w.d.NewWorker(), w.d.NewWorker()}
		payload := numbered(4000)
		whole := packettest.Build(t, packettest.Spec{Src: client + ":40000", Dst: vip + ":80", UDP: true, NoDF: true, Payload: payload})
		var out []*packet.Packet
		servers := map[int]int{}
		for i, at := range order {
			f := packettest.Fragments(t, whole, 0x1234, 1480)[at]
			f.Link = clientLink
			for _, p := range copies(workers[i+1].Process([]*packet.Packet{f}, w.now)) {
				servers[serverOf(p)]++
				out = append(out, p)
			}
		}
		got, err := packettest.Join(out)
		if err != nil {
			t.Fatalf("order %v: %v", order, err)
		}
		if err := packettest.Verify(got.Bytes()); err != nil || len(out) != 3 || !bytes.Equal(got.Bytes()[28:], payload) {
			t.Errorf("order %v: %d fragments, %d bytes: %v", order, len(out), got.Len(), err)
		}
		if s := w.d.Status()[0].Stats; s.Conns != 1 || len(servers) != 1 {
			t.Errorf("order %v: %d connections, packets to servers %v; want one connection to one server", order, s.Conns, servers)
		}
		w.wantVerdict(dataplane.Forwarded, 1)
		w.wantVerdict(dataplane.Reassembled, 2)
	}
}

// Fragments whose first is missing, or whose last, end by name; who sent a first
// one is told.
func TestFragmentsThatWait(t *testing.T) {
	w := newWorld(t, udp(service("rr", lvs.Masq, 3)))
	whole := packettest.Build(t, packettest.Spec{Src: client + ":40000", Dst: vip + ":80", UDP: true, NoDF: true, Payload: make([]byte, 4000)})
	pieces := packettest.Fragments(t, whole, 1, 1480)
	if out := w.in(clientLink, pieces[1], pieces[2]); len(out) != 0 {
		t.Errorf("%v left", summaries(out))
	}
	if out := w.in(clientLink, packettest.Fragments(t, whole, 2, 1480)[0]); len(out) != 0 {
		t.Errorf("%v left", summaries(out))
	}
	if out := w.after(29 * time.Second); len(out) != 0 {
		t.Errorf("%v left before the time", summaries(out))
	}
	told := one(t, w.after(2*time.Second))
	if b := told.Bytes(); b[9] != 1 || b[20] != 11 || b[21] != 1 {
		t.Errorf("protocol %d, type %d, code %d; want ICMP 11/1", b[9], b[20], b[21])
	}
	w.wantVerdict(dataplane.FragmentTimeout, 3)
	if n, held := w.d.FragmentsHeld(); n != 0 || held != 0 {
		t.Errorf("%d datagrams and %d bytes are held after the time", n, held)
	}
}

// 10,000 lone second fragments start nothing, and each is accounted for.
func TestFragmentsOfAFlood(t *testing.T) {
	w := newWorld(t, udp(service("rr", lvs.Masq, 3)))
	whole := packettest.Build(t, packettest.Spec{Src: client + ":40000", Dst: vip + ":80", UDP: true, NoDF: true, Payload: make([]byte, 4000)})
	for i := range 10_000 {
		if out := w.in(clientLink, packettest.Fragment(t, whole, uint32(i), packettest.Piece{Offset: 1480, Len: 1480})); len(out) != 0 {
			t.Fatalf("%v left", summaries(out))
		}
	}
	w.after(31 * time.Second)
	if n := w.d.Count(dataplane.FragmentsFull) + w.d.Count(dataplane.FragmentTimeout); n != 10_000 || w.d.Count(dataplane.FragmentsFull) == 0 {
		t.Errorf("%d of 10,000 fragments are accounted for, %d of them for want of room", n, w.d.Count(dataplane.FragmentsFull))
	}
}

// A fragment within fragments goes nowhere.
func TestFragmentsOfAFragment(t *testing.T) {
	s := udp(service("rr", lvs.Route, 1))
	s.VIP, s.Servers[0].RIP = addr(vip6), addr(rip6(1))
	w := newWorld(t, s)
	whole := packettest.Build(t, packettest.Spec{Src: "[2001:db8:1::10]:40000", Dst: "[" + vip6 + "]:80", UDP: true, Payload: make([]byte, 100)})
	inner := packettest.Fragment(t, whole, 1, packettest.Piece{Len: 96})
	if out := w.in(clientLink, packettest.Fragments(t, inner, 2, 56)...); len(out) != 0 {
		t.Errorf("%v left", summaries(out))
	}
	w.wantVerdict(dataplane.FragmentBad, 1)
	w.wantVerdict(dataplane.Reassembled, 1)
}
