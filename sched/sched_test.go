package sched_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/sched"
)

// pool adds servers to a scheduler one by one, as ipvsadm -a does. Servers are
// named A, B, C in the order in which they are added; the list has the newest
// first.
type pool struct {
	tb    testing.TB
	s     sched.Scheduler
	dests []*lvs.Destination
	added int
}

func newPool(tb testing.TB, scheduler string, weights ...int) *pool {
	tb.Helper()
	s, err := sched.New(scheduler, sched.Config{}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	p := &pool{tb: tb, s: s}
	for _, w := range weights {
		p.add(w)
	}
	return p
}

func (p *pool) add(weight int) {
	rs := lvs.RealServer{ServerKey: lvs.ServerKey{RIP: packet.AddrFrom4([]byte{10, 2, 0, byte(p.added)}), Port: 80}, Weight: weight}
	d := lvs.NewDestination(lvs.ServiceKey{}, rs, uint32(p.added))
	p.added++
	p.set(append([]*lvs.Destination{d}, p.dests...))
}

func (p *pool) set(dests []*lvs.Destination) {
	p.dests = dests
	p.s.Update(dests)
}

func (p *pool) find(name string) *lvs.Destination {
	for _, d := range p.dests {
		if nameOf(d) == name {
			return d
		}
	}
	p.tb.Fatalf("no server %s", name)
	return nil
}

func (p *pool) remove(name string) {
	gone := p.find(name)
	p.set(slices.DeleteFunc(slices.Clone(p.dests), func(d *lvs.Destination) bool { return d == gone }))
}

func (p *pool) weigh(name string, w int) {
	p.find(name).SetWeight(w)
	p.s.Update(p.dests)
}

func nameOf(d *lvs.Destination) string {
	if d == nil {
		return "-"
	}
	return string(rune('A' + d.ID))
}

// picks schedules n connections that stay open and active.
func (p *pool) picks(n int) string {
	var b strings.Builder
	for range n {
		var e sched.Explanation
		p.s.Explain(sched.Request{}, &e)
		d := p.s.Schedule(sched.Request{})
		won := "-"
		for _, c := range e.Candidates {
			if c.Why == "" {
				p.tb.Errorf("no reason given for %s", nameOf(c.Dest))
			}
			if c.Picked {
				won = nameOf(c.Dest)
			}
		}
		if won != nameOf(d) {
			p.tb.Errorf("explained %s, picked %s", won, nameOf(d))
		}
		if d != nil {
			d.Bind(true)
		}
		b.WriteString(nameOf(d))
	}
	return b.String()
}

func TestPicks(t *testing.T) {
	tests := []struct {
		name      string
		scheduler string
		weights   []int
		run       func(p *pool) string
		want      string
	}{
		{"rr starts at the server added last", "rr", []int{1, 1, 1}, func(p *pool) string { return p.picks(6) }, "CBACBA"},
		{"rr ignores weights", "rr", []int{1, 9}, func(p *pool) string { return p.picks(4) }, "BABA"},
		{"rr passes over weight 0", "rr", []int{1, 0, 1}, func(p *pool) string { return p.picks(4) }, "CACA"},
		{"rr goes on after an add", "rr", []int{1, 1, 1}, func(p *pool) string { a := p.picks(1); p.add(1); return a + p.picks(4) }, "CBADC"},
		{"rr steps back when the last used is removed", "rr", []int{1, 1, 1}, func(p *pool) string { a := p.picks(2); p.remove("B"); return a + p.picks(3) }, "CBACA"},
		{"rr with nothing available", "rr", []int{0, 0}, func(p *pool) string { return p.picks(2) }, "--"},
		{"wrr opens at the level of the server added first", "wrr", []int{1, 2, 3}, func(p *pool) string { return p.picks(9) }, "CBACCBCBA"},
		{"wrr, heaviest added first: a lone server of weight 3 opens at level 1", "wrr", []int{3, 2, 1}, func(p *pool) string { return p.picks(6) }, "CBAABA"},
		{"wrr is bursty", "wrr", []int{4, 1}, func(p *pool) string { return p.picks(10) }, "BAAAABAAAA"},
		{"wrr with nothing available", "wrr", []int{0}, func(p *pool) string { return p.picks(1) }, "-"},
		{"wrr with a huge weight quiesced by overload of none", "wrr", []int{lvs.MaxWeight, 1}, func(p *pool) string { p.weigh("A", 0); return p.picks(2) }, "BB"},
		{"lc takes the smallest count, newest first", "lc", []int{1, 1, 1}, func(p *pool) string { return p.picks(6) }, "CBACBA"},
		{"lc ignores weights", "lc", []int{9, 1}, func(p *pool) string { return p.picks(4) }, "BABA"},
		{"wlc starts cold by list order, not by weight", "wlc", []int{1, 2, 3}, func(p *pool) string { return p.picks(3) }, "CBA"},
		{"wlc fills by weight", "wlc", []int{1, 2, 3}, func(p *pool) string { return p.picks(6) }, "CBACBC"},
		{"wlc passes over weight 0", "wlc", []int{0, 1}, func(p *pool) string { return p.picks(2) }, "BB"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.run(newPool(t, tt.scheduler, tt.weights...)); got != tt.want {
				t.Errorf("picks %s, want %s", got, tt.want)
			}
		})
	}
}

// TestWRRShareIsTheWeights runs whole laps and compares with the weights.
func TestWRRShareIsTheWeights(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		weights := rapid.SliceOfN(rapid.IntRange(0, 12), 1, 6).Draw(rt, "weights")
		p := newPool(t, "wrr", weights...)
		total, g := 0, 0
		for _, w := range weights {
			total += w
			for a, b := w, g; ; a, b = b, a%b {
				if b == 0 {
					g = a
					break
				}
			}
		}
		if total == 0 {
			return
		}
		// The opening level may be below the top; a second New starts a whole lap.
		s, _ := sched.New("wrr", sched.Config{}, p.dests)
		got := make([]int, len(weights))
		for range total / g {
			got[s.Schedule(sched.Request{}).ID]++
		}
		for i, w := range weights {
			if got[i] != w/g {
				rt.Fatalf("weights %v: server %d got %d of a lap, want %d", weights, i, got[i], w/g)
			}
		}
	})
}

func TestAnUnknownSchedulerIsRefused(t *testing.T) {
	if _, err := sched.New("sjf", sched.Config{}, nil); err == nil || !strings.Contains(err.Error(), `"sjf"`) {
		t.Errorf("error %v does not name it", err)
	}
}

func Example() {
	a := lvs.NewDestination(lvs.ServiceKey{}, lvs.RealServer{Weight: 1}, 0)
	b := lvs.NewDestination(lvs.ServiceKey{}, lvs.RealServer{Weight: 1}, 1)
	s, err := sched.New("rr", sched.Config{}, []*lvs.Destination{b, a}) // newest first
	if err != nil {
		panic(err)
	}
	for range 3 {
		fmt.Println("server", s.Schedule(sched.Request{}).ID)
	}
	// Output:
	// server 1
	// server 0
	// server 1
}

// BenchmarkSchedule reports the cost of one pick. New connections stay, so the
// least-connection family compares real counts.
func BenchmarkSchedule(b *testing.B) {
	for _, name := range sched.Names() {
		for _, n := range []int{3, 100, 1000} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				var dests []*lvs.Destination
				for i := range n {
					rs := lvs.RealServer{ServerKey: lvs.ServerKey{RIP: packet.AddrFrom4([]byte{10, 2, byte(i >> 8), byte(i)}), Port: 80}, Weight: i%7 + 1}
					dests = append(dests, lvs.NewDestination(lvs.ServiceKey{}, rs, uint32(i)))
				}
				s, err := sched.New(name, sched.Config{Flags: lvs.FlagPort}, dests)
				if err != nil {
					b.Fatal(err)
				}
				r := sched.Request{Flow: packet.Flow{Src: packet.MustParseAddr("198.51.100.1"), Dst: packet.MustParseAddr("192.0.2.10")}}
				b.ReportAllocs()
				for b.Loop() {
					r.Flow.SrcPort++
					if d := s.Schedule(r); d != nil {
						d.Bind(true)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N), "ns/pick")
			})
		}
	}
}
