package dataplane_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"pktdirector/conntrack"
	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// quiet is a world whose director keeps no decisions of its own accord.
func quiet(t testing.TB, services ...lvs.VirtualService) *world {
	t.Helper()
	w := &world{t: t, d: dataplane.New(dataplane.Options{Seed: 1, Shards: 8, Forwarders: forwarders()})}
	w.d.SetLinks(links(1500))
	w.d.SetHost(dataplane.HostTable{Routes: routes()})
	w.w = w.d.NewWorker()
	learnNeighbours(w.d, 4)
	w.apply(services...)
	return w
}

const everything = dataplane.ObserveDecisions | dataplane.ObserveStates | dataplane.ObserveDrops

// TestRecordsAreKeptWhileSomebodyWatches: from the batch after Observe says so.
func TestRecordsAreKeptWhileSomebodyWatches(t *testing.T) {
	w := quiet(t, service("rr", lvs.Masq, 2))
	noise := func(port string) (decisions, states, drops int) {
		w.in(clientLink, w.syn(port), packettest.Build(t, packettest.Spec{Src: client + ":" + port, Dst: vip + ":81", Flags: packet.SYN}))
		return len(w.w.Decisions), len(w.w.States), len(w.w.Drops)
	}
	for i, c := range []struct {
		what                     dataplane.Observed
		decisions, states, drops int
	}{
		{0, 0, 0, 0}, {everything, 1, 1, 1}, {dataplane.ObserveDecisions, 1, 0, 0}, {dataplane.ObserveStates, 0, 1, 0}, {dataplane.ObserveDrops, 0, 0, 1}, {0, 0, 0, 0},
	} {
		w.d.Observe(c.what)
		d, s, x := noise(fmt.Sprint(2000 + i))
		if d != c.decisions || s != c.states || x != c.drops || w.w.Records() != (c.what != 0) {
			t.Errorf("observing %b: %d decisions, %d state changes, %d drops, want %d, %d, %d", c.what, d, s, x, c.decisions, c.states, c.drops)
		}
	}
}

func TestStateChangesTellAConnectionsLife(t *testing.T) {
	w := quiet(t, service("rr", lvs.Masq, 1))
	w.d.Observe(dataplane.ObserveStates)
	server := func(flags uint8) *packet.Packet {
		return packettest.Build(t, packettest.Spec{Src: rip(1) + ":8080", Dst: client + ":40000", Flags: flags, Seq: 5, Ack: 1001})
	}
	var life []string
	note := func() {
		for _, s := range w.w.States {
			if s.Client != addr(client) || s.ClientPort != 40000 || s.Virtual != addr(vip) || s.VirtualPort != 80 || s.Dest != addr(rip(1)) || s.DestPort != 8080 || s.Proto != packet.TCP {
				t.Errorf("of another connection: %+v", s)
			}
			life = append(life, fmt.Sprint(s.Before, " ", s.After, " ", s.Direction == conntrack.Reply, s.Began, s.Ended))
		}
	}
	for _, step := range []func(){
		func() { w.in(clientLink, w.syn("40000")) },
		func() { w.in(serverLink, server(packet.SYN|packet.ACK)) },
		func() { w.in(clientLink, w.segment("40000", packet.ACK)) },
		func() { w.in(clientLink, w.segment("40000", packet.ACK)) },
		func() { w.in(serverLink, server(packet.FIN|packet.ACK)) },
		func() { w.in(clientLink, w.segment("40000", packet.FIN|packet.ACK)) },
	} {
		step()
		note()
	}
	for range 2500 {
		w.after(50 * time.Millisecond)
		note()
	}
	want := []string{
		"NONE SYN_RECV false true false", "SYN_RECV ESTABLISHED false false false",
		"ESTABLISHED FIN_WAIT true false false", "FIN_WAIT TIME_WAIT false false false", "TIME_WAIT TIME_WAIT false false true",
	}
	if fmt.Sprint(life) != fmt.Sprint(want) {
		t.Errorf("got\n%q\nwant\n%q", life, want)
	}
}

// TestEndsBeyondTheBoundAreCounted: a flood that ends at once fills no memory.
func TestEndsBeyondTheBoundAreCounted(t *testing.T) {
	s := service("rr", lvs.Masq, 1)
	w := quiet(t, s)
	w.d.Observe(dataplane.ObserveStates)
	const n = 10_000
	for i := range n {
		w.in(clientLink, packettest.Build(t, packettest.Spec{Src: fmt.Sprintf("198.51.100.%d:%d", 1+i%200, 1024+i/200), Dst: vip + ":80", Flags: packet.SYN}))
	}
	w.now += 61 * time.Second
	w.w.Tick(w.now)
	if len(w.w.States) != 4096 || w.w.Missed != n-4096 {
		t.Errorf("%d ends and %d missed of %d", len(w.w.States), w.w.Missed, n)
	}
	w.w.Tick(w.now)
	if w.w.Records() {
		t.Errorf("told twice: %d, %d", len(w.w.States), w.w.Missed)
	}
}

func TestDropsNameTheFlowAsItCame(t *testing.T) {
	w := quiet(t, service("rr", lvs.Masq, 1))
	w.d.Observe(dataplane.ObserveDrops)
	cut := w.syn("1")
	cut.Truncated = true
	expired := packettest.Build(t, packettest.Spec{Src: client + ":9", Dst: vip + ":80", Flags: packet.SYN, TTL: 1})
	closed := packettest.Build(t, packettest.Spec{Src: client + ":7", Dst: vip + ":81", Flags: packet.SYN})
	other := w.syn("3")
	other.Class = packet.OtherHost
	w.in(clientLink, closed, cut, expired, other, w.syn("4"), w.segment("5", packet.ACK))
	web := lvs.ServiceKey{Proto: packet.TCP, VIP: addr(vip), Port: 80}
	want := []dataplane.Drop{
		{Verdict: dataplane.NoService, Flow: packet.Flow{Proto: packet.TCP, Src: addr(client), SrcPort: 7, Dst: addr(vip), DstPort: 81}, Flags: packet.SYN, Bytes: 40},
		{Verdict: dataplane.Truncated, Bytes: 40},
		{Verdict: dataplane.TTLExceeded, Flow: packet.Flow{Proto: packet.TCP, Src: addr(client), SrcPort: 9, Dst: addr(vip), DstPort: 80}, Flags: packet.SYN, Bytes: 40, Service: web, Server: lvs.ServerKey{RIP: addr(rip(1)), Port: 8080}},
		{Verdict: dataplane.NoConnection, Flow: packet.Flow{Proto: packet.TCP, Src: addr(client), SrcPort: 5, Dst: addr(vip), DstPort: 80}, Flags: packet.ACK, Bytes: 40, Service: web},
	}
	if fmt.Sprint(w.w.Drops) != fmt.Sprint(want) {
		t.Errorf("got %+v\nwant %+v", w.w.Drops, want)
	}
	p := one(t, w.in(clientLink, w.syn("4")))
	w.w.Unsent(p) // a packet of the batch: its verdict is known
	if len(w.w.Drops) != 1 || w.w.Drops[0].Verdict != dataplane.TxDropped {
		t.Errorf("what the link did not take: %+v", w.w.Drops)
	}
}

// TestWatchingCostsAHitNothing: no allocation, whether somebody watches or not.
func TestWatchingCostsAHitNothing(t *testing.T) {
	for _, what := range []dataplane.Observed{0, everything} {
		w := quiet(t, service("wlc", lvs.Masq, 3))
		w.d.Observe(what)
		w.establish("40000")
		batch := []*packet.Packet{w.segment("40000", packet.ACK)}
		buf := bytes.Clone(batch[0].Buf)
		p := *batch[0]
		if n := testing.AllocsPerRun(500, func() {
			*batch[0] = p
			copy(p.Buf, buf)
			w.now += time.Millisecond
			w.w.Process(batch, w.now)
		}); n != 0 {
			t.Errorf("observing %b: %v allocations a hit", what, n)
		}
		if w.w.Records() {
			t.Errorf("records of a hit: %+v", w.w)
		}
	}
}

// BenchmarkWatching compares a connection hit with and without somebody who watches.
func BenchmarkWatching(b *testing.B) {
	for name, what := range map[string]dataplane.Observed{"nobody watches": 0, "all is watched": everything} {
		b.Run(name, func(b *testing.B) {
			w := quiet(b, service("wlc", lvs.Masq, 3))
			w.d.Observe(what)
			w.establish("40000")
			batch := make([]*packet.Packet, 64)
			for i := range batch {
				batch[i] = w.segment("40000", packet.ACK)
			}
			buf, p := bytes.Clone(batch[0].Buf), *batch[0]
			b.ReportAllocs()
			for b.Loop() {
				for i := range batch {
					own := batch[i].Buf
					*batch[i] = p
					batch[i].Buf = own
					copy(own, buf)
				}
				w.now += time.Microsecond
				w.w.Process(batch, w.now)
			}
		})
	}
}
