package dataplane_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"pktdirector/conntrack"
	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// TestPacketsAreSeenBeforeAndAfter: each as it came and as it left, whatever became of
// it, with checksums finished and the state it found and left its connection in.
func TestPacketsAreSeenBeforeAndAfter(t *testing.T) {
	w := quiet(t, service("rr", lvs.Masq, 1))
	w.d.SetSnap(1000)
	w.d.Observe(dataplane.ObservePackets | dataplane.ObserveDecisions)
	partial := packettest.Build(t, packettest.Spec{Src: client + ":40000", Dst: vip + ":80", Flags: packet.SYN, Partial: true})
	large := packettest.Build(t, packettest.Spec{Src: client + ":40000", Dst: vip + ":80", Flags: packet.ACK, Payload: make([]byte, 1400), TTL: 9})
	refused := packettest.Build(t, packettest.Spec{Src: client + ":7", Dst: vip + ":81", Flags: packet.SYN})
	was := bytes.Clone(partial.Bytes())
	out := w.in(clientLink, partial, refused, large)
	var got []string
	for _, r := range w.w.Packets {
		state := ""
		if r.Proto != 0 {
			state = fmt.Sprint(" ", r.Before, ">", r.After, " ", r.Direction == conntrack.Request, " ", r.Server, " ", r.Method, " ", r.Decision)
		}
		got = append(got, fmt.Sprint(r.ID, " ", r.Out, " link ", r.Link, " ", len(r.Data), "/", r.Len, " ", r.Verdict, state))
	}
	want := strings.Join([]string{
		"1 false link 0 40/40 forwarded NONE>SYN_RECV true 192.0.2.11:8080 Masq 1",
		"2 false link 0 40/40 no_service",
		"3 false link 0 1000/1440 forwarded SYN_RECV>ESTABLISHED true 192.0.2.11:8080 Masq 0",
		"1 true link 1 40/40 forwarded NONE>SYN_RECV true 192.0.2.11:8080 Masq 1",
		"0 true link 0 40/40 pending",
		"3 true link 1 1000/1440 forwarded SYN_RECV>ESTABLISHED true 192.0.2.11:8080 Masq 0",
	}, "\n")
	if strings.Join(got, "\n") != want {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
	for i, r := range w.w.Packets {
		if r.Len == len(r.Data) && packettest.Verify(r.Data) != nil {
			t.Errorf("packet %d: %v", i, packettest.Verify(r.Data))
		}
	}
	if first := w.w.Packets[0].Data; bytes.Equal(first, was) || !bytes.Equal(first[:36], was[:36]) {
		t.Errorf("an unfinished checksum:\n%x\n%x", first, was)
	}
	w.w.Unsent(out[0])
	if v := w.w.Packets[3].Verdict; v != dataplane.TxDropped {
		t.Errorf("what the link did not take: %v", v)
	}
	w.d.Observe(0)
	w.in(clientLink, w.syn("40001"))
	if w.w.Records() {
		t.Errorf("packets are seen although nobody captures: %+v", w.w.Packets)
	}
}

// TestWhatWaitsIsSeenWhenItLeaves, with the id it came with.
func TestWhatWaitsIsSeenWhenItLeaves(t *testing.T) {
	w := quiet(t, service("rr", lvs.Masq, 1))
	w.d.Learn(dataplane.Neighbour{Link: serverLink, Addr: addr(rip(1))})
	w.d.SetSnap(100)
	w.d.Observe(dataplane.ObservePackets)
	w.in(clientLink, w.syn("40000"))
	if r := w.w.Packets[0]; !r.Waits || r.ID != 1 || r.Out {
		t.Errorf("%+v", r)
	}
	w.in(serverLink, arpPacket(2, serverMAC(1), rip(1), "192.0.2.254"))
	last := w.w.Packets[len(w.w.Packets)-1]
	if last.ID != 1 || !last.Out || last.DstMAC != serverMAC(1) {
		t.Errorf("%+v", last)
	}
}

// TestCapturingAHitAllocatesNothing in the engine, once there is room for a batch.
func TestCapturingAHitAllocatesNothing(t *testing.T) {
	w := quiet(t, service("wlc", lvs.Masq, 3))
	w.d.SetSnap(1500)
	w.d.Observe(dataplane.ObservePackets)
	w.establish("40000")
	batch := []*packet.Packet{w.segment("40000", packet.ACK)}
	buf, p := bytes.Clone(batch[0].Buf), *batch[0]
	if n := testing.AllocsPerRun(500, func() {
		*batch[0] = p
		copy(p.Buf, buf)
		w.now += time.Millisecond
		w.w.Process(batch, w.now)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
