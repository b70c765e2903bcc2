package dataplane_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
	"pktdirector/sched"
)

// sameOutlook compares outlooks; a destination is who it is.
func sameOutlook(a, b dataplane.Outlook) string {
	return cmp.Diff(a, b, cmp.Comparer(func(a, b packet.Addr) bool { return a == b }), cmp.Comparer(func(a, b *lvs.Destination) bool { return a == b }), cmpopts.EquateEmpty())
}

// TestWhatIsForeseenComes: of random clients' SYNs, under random edits, the server that
// gets each is the foreseen one, and so is the verdict; a director that is never asked
// does the same.
func TestWhatIsForeseenComes(t *testing.T) {
	steps := 400
	if testing.Short() {
		steps = 100
	}
	for _, scheduler := range sched.Names() {
		for name, s := range map[string]lvs.VirtualService{
			"nat": service(scheduler, lvs.Masq, 4), "dr": service(scheduler, lvs.Route, 4), "tun": service(scheduler, lvs.Tunnel, 4), "persistent": service(scheduler, lvs.Masq, 4),
		} {
			if name == "persistent" {
				s.Persist = 90 * time.Second
			}
			asked, silent := newWorld(t, s), newWorld(t, s)
			asked.d.Observe(dataplane.ObserveDrops)
			r := rand.New(rand.NewPCG(1, 2))
			for i := range steps {
				if r.IntN(8) == 0 {
					s.Servers[r.IntN(4)].Weight = r.IntN(3)
					asked.apply(s)
					silent.apply(s)
				}
				flags := uint8(packet.SYN)
				switch r.IntN(10) {
				case 0:
					flags = packet.RST
				case 1:
					flags = packet.ACK
				}
				port := []string{"80", "80", "80", "80", "81"}[r.IntN(5)]
				spec := packettest.Spec{Src: fmt.Sprintf("198.51.100.%d:%d", 10+r.IntN(6), 1000+r.IntN(4)), Dst: vip + ":" + port, Flags: flags}
				p := packettest.Build(t, spec)
				p.Link = clientLink
				if e := packet.Parse(p); e != packet.ParseOK {
					t.Fatal(e)
				}
				o := asked.d.Foresee(p)
				if diff := sameOutlook(o, asked.d.Foresee(p)); diff != "" {
					t.Fatalf("%s, %s, step %d: foreseen again it is otherwise:\n%s", scheduler, name, i, diff)
				}
				before := asked.d.Count(o.Verdict)
				out, want := asked.in(clientLink, packettest.Build(t, spec)), silent.in(clientLink, packettest.Build(t, spec))
				if fmt.Sprint(summaries(out)) != fmt.Sprint(summaries(want)) {
					t.Fatalf("%s, %s, step %d: %v where somebody asked, %v where nobody did", scheduler, name, i, summaries(out), summaries(want))
				}
				if got := asked.d.Count(o.Verdict) - before; got != 1 && (o.Resolved || o.Verdict != dataplane.Forwarded) {
					t.Fatalf("%s, %s, step %d, %s flags %x: foreseen as %v, which it was not: %+v\n%+v", scheduler, name, i, p.Flow, flags, o.Verdict, asked.w.Drops, o)
				}
				if (o.Decision != nil) != (len(asked.w.Decisions) == 1) {
					t.Fatalf("%s, %s, step %d, %s: foreseen decision %+v, made %+v", scheduler, name, i, p.Flow, o.Decision, asked.w.Decisions)
				}
				if o.Decision != nil {
					// An entry that makes way is counted until then.
					if made := asked.w.Decisions[0]; made.Pick != o.Decision.Pick && !o.Reopens {
						t.Fatalf("%s, %s, step %d: foreseen %v, got %v", scheduler, name, i, o.Decision.Pick, made.Pick)
					}
				}
				asked.after(time.Duration(r.IntN(20)) * time.Second)
				silent.after(asked.now - silent.now)
			}
		}
	}
}

// TestForeseenWithoutAWay: what else ends a first packet.
func TestForeseenWithoutAWay(t *testing.T) {
	first := func(src, dst string) *packet.Packet {
		p := packettest.Build(t, packettest.Spec{Src: src, Dst: dst, Flags: packet.SYN})
		p.Link = clientLink
		packet.Parse(p)
		return p
	}
	w := newWorld(t, service("rr", lvs.Masq, 1))
	for _, c := range []struct {
		name string
		do   func()
		src  string
		want dataplane.Verdict
	}{
		{"all is well", func() {}, client + ":1", dataplane.Forwarded},
		{"a forged source", func() {}, "224.0.0.1:1", dataplane.ForgedSource},
		{"the server itself", func() {}, rip(1) + ":1", dataplane.Hairpin},
		{"standing by", func() { w.d.SetStandby(true) }, client + ":1", dataplane.StandingBy},
		{"no route", func() { w.d.SetStandby(false); w.d.SetHost(dataplane.HostTable{}) }, client + ":1", dataplane.NoRoute},
	} {
		c.do()
		if got := w.d.Foresee(first(c.src, vip+":80")); got.Verdict != c.want {
			t.Errorf("%s: %v, want %v", c.name, got.Verdict, c.want)
		}
	}
	if err := w.d.SetTunable("drop_packet", "3"); err != nil {
		t.Fatal(err)
	}
	if got := w.d.Foresee(first(client+":1", vip+":80")); got.Throttled != 10 {
		t.Errorf("drop_packet: one in %d", got.Throttled)
	}
}

// TestTheHistoryIsBounded, and knows a connection's story in order.
func TestTheHistoryIsBounded(t *testing.T) {
	w := &world{t: t, d: dataplane.New(dataplane.Options{Seed: 1, Shards: 8, Forwarders: forwarders(), History: 64})}
	w.d.SetLinks(links(1500))
	w.d.SetHost(dataplane.HostTable{Routes: routes()})
	w.w = w.d.NewWorker()
	learnNeighbours(w.d, 40)
	w.apply(service("wlc", lvs.Masq, 3))
	flow := packet.Flow{Proto: packet.TCP, Src: addr(client), SrcPort: 40000, Dst: addr(vip), DstPort: 80}
	server := serverOf(one(t, w.in(clientLink, w.syn("40000"))))
	w.in(serverLink, packettest.Build(t, packettest.Spec{Src: rip(server) + ":8080", Dst: client + ":40000", Flags: packet.SYN | packet.ACK, TTL: 1}))
	var story []string
	for _, n := range w.d.History(flow) {
		switch {
		case n.Decision != nil:
			story = append(story, fmt.Sprint("decision ", n.Decision.ID, " ", len(n.Decision.Explanation.Candidates)))
		case n.State != nil:
			story = append(story, fmt.Sprint(n.State.Before, " ", n.State.After))
		case n.Drop != nil:
			story = append(story, n.Drop.Verdict.String())
		}
	}
	if want := "[decision 1 3 NONE SYN_RECV ttl_exceeded]"; fmt.Sprint(story) != want {
		t.Errorf("%v, want %s", story, want)
	}
	for range 3 {
		w.in(clientLink, packettest.Build(t, packettest.Spec{Src: client + ":7", Dst: vip + ":81", Flags: packet.SYN}))
	}
	if n := len(w.d.History(packet.Flow{Proto: packet.TCP, Src: addr(client), SrcPort: 7, Dst: addr(vip), DstPort: 81})); n != 3 {
		t.Errorf("%d drops are known of 3", n)
	}
	for i := range 200 {
		w.in(clientLink, packettest.Build(t, packettest.Spec{Src: client + ":7", Dst: vip + ":81", Flags: packet.SYN}), w.syn(fmt.Sprint(1000+i)))
		if i == 20 && len(w.d.History(flow)) != 2 {
			t.Errorf("a flood of drops pushed a connection out")
		}
	}
	if n := len(w.d.History(packet.Flow{Proto: packet.TCP, Src: addr(client), SrcPort: 7, Dst: addr(vip), DstPort: 81})); n != 16 {
		t.Errorf("%d drops are kept, of 16", n)
	}
	if n := len(w.d.History(flow)); n > 1 {
		t.Errorf("%d notes of the first connection are there after 200 others", n)
	}
	// Too many servers to keep them all with every connection.
	w.apply(service("wlc", lvs.Masq, 40))
	w.in(clientLink, w.syn("50000"))
	flow.SrcPort = 50000
	if all := w.d.History(flow); len(all) != 2 || all[0].Decision == nil || len(all[0].Decision.Explanation.Candidates) != 0 || all[0].Decision.Pick == nil {
		t.Errorf("of 40 servers: %+v", all)
	}
}

// TestTheHistoryCostsAHitNothing: no allocation.
func TestTheHistoryCostsAHitNothing(t *testing.T) {
	w := &world{t: t, d: dataplane.New(dataplane.Options{Seed: 1, Shards: 8, Forwarders: forwarders(), History: 64})}
	w.d.SetLinks(links(1500))
	w.d.SetHost(dataplane.HostTable{Routes: routes()})
	w.w = w.d.NewWorker()
	learnNeighbours(w.d, 4)
	w.apply(service("wlc", lvs.Masq, 3))
	w.establish("40000")
	batch := []*packet.Packet{w.segment("40000", packet.ACK)}
	buf, p := append([]byte(nil), batch[0].Buf...), *batch[0]
	if n := testing.AllocsPerRun(500, func() {
		*batch[0] = p
		copy(p.Buf, buf)
		w.now += time.Millisecond
		w.w.Process(batch, w.now)
	}); n != 0 {
		t.Errorf("%v allocations a hit", n)
	}
}

// BenchmarkHistory compares hits, in batches of 64, and new connections with and without
// the history.
func BenchmarkHistory(b *testing.B) {
	for _, notes := range []int{0, 8192} {
		b.Run(fmt.Sprintf("hit/notes=%d", notes), func(b *testing.B) {
			w := &world{t: b, d: dataplane.New(dataplane.Options{Seed: 1, Shards: 8, Forwarders: forwarders(), History: notes})}
			w.d.SetLinks(links(1500))
			w.d.SetHost(dataplane.HostTable{Routes: routes()})
			w.w = w.d.NewWorker()
			learnNeighbours(w.d, 3)
			w.apply(service("wlc", lvs.Masq, 3))
			w.establish("40000")
			batch := make([]*packet.Packet, benchBatch)
			for i := range batch {
				batch[i] = w.segment("40000", packet.ACK)
			}
			buf, p := append([]byte(nil), batch[0].Buf...), *batch[0]
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
		for _, servers := range []int{3, 20} {
			b.Run(fmt.Sprintf("new/servers=%d/notes=%d", servers, notes), func(b *testing.B) {
				d := dataplane.New(dataplane.Options{Seed: 1, Forwarders: forwarders(), History: notes, ConnMax: 1 << 16})
				d.SetLinks(links(1500))
				d.SetHost(dataplane.HostTable{Routes: routes()})
				learnNeighbours(d, servers)
				if err := d.Apply(lvs.Ruleset{Services: []lvs.VirtualService{service("wlc", lvs.Masq, servers)}}); err != nil {
					b.Fatal(err)
				}
				w := d.NewWorker()
				syn := packettest.Build(b, packettest.Spec{Src: client + ":1024", Dst: vip + ":80", Flags: packet.SYN})
				buf, p, n := append([]byte(nil), syn.Buf...), *syn, uint32(0)
				b.ReportAllocs()
				for b.Loop() {
					*syn = p
					copy(p.Buf, buf)
					n++
					ip := syn.Bytes()
					packet.AddrFrom4([]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}).Put4(ip[12:])
					ip[10], ip[11] = 0, 0
					packet.PutIPv4Checksum(ip[:20])
					w.Process([]*packet.Packet{syn}, time.Duration(n)*time.Microsecond)
				}
			})
		}
	}
}
