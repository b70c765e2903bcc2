package sched_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/sched"
)

// TestExplainChangesNothing runs each scheduler twice over the same events: one
// is asked for explanations all the time, the other never.
func TestExplainChangesNothing(t *testing.T) {
	for _, name := range sched.Names() {
		for _, flags := range []lvs.SchedFlags{0, lvs.FlagPort | lvs.FlagFallback} {
			asked, silent := newTwin(t, name, flags), newTwin(t, name, flags)
			rng := rand.New(rand.NewPCG(1, 2))
			for i := range 3000 {
				r := sched.Request{
					Now:            time.Duration(i) * 40 * time.Second, // lblc forgets meanwhile
					Flow:           packet.Flow{Src: v4(rng.Uint32()), SrcPort: uint16(rng.Uint32()), Dst: v4(0xc6330000 + rng.Uint32N(40)), DstPort: 80},
					LBLCExpiration: time.Hour, LBLCRExpiration: time.Hour,
				}
				for range 3 {
					var e sched.Explanation
					asked.s.Explain(r, &e)
					if e.Rule == "" || e.Tie == "" || len(e.Candidates) != len(asked.dests) {
						t.Fatalf("%s: explained as %+v", name, e)
					}
				}
				which, what, weight := rng.IntN(len(asked.dests)), rng.IntN(20), rng.IntN(5)
				a, b := asked.event(r, which, what, weight), silent.event(r, which, what, weight)
				if a != b {
					t.Fatalf("%s, event %d: picked %s when asked for explanations, %s when not", name, i, a, b)
				}
			}
		}
	}
}

// twin is a scheduler with six servers.
type twin struct {
	s     sched.Scheduler
	dests []*lvs.Destination
}

func newTwin(t *testing.T, name string, flags lvs.SchedFlags) *twin {
	w := new(twin)
	for i := range 6 {
		rs := lvs.RealServer{ServerKey: lvs.ServerKey{RIP: v4(0x0a020000 + uint32(i)), Port: 80}, Weight: 1 + i%3}
		w.dests = append(w.dests, lvs.NewDestination(lvs.ServiceKey{}, rs, uint32(i)))
	}
	s, err := sched.New(name, sched.Config{Flags: flags, Seed: 7}, w.dests)
	if err != nil {
		t.Fatal(err)
	}
	w.s = s
	return w
}

// event edits a server, ends a connection, or schedules one.
func (w *twin) event(r sched.Request, which, what, weight int) string {
	d := w.dests[which]
	switch {
	case what == 0:
		d.SetWeight(weight)
		w.s.Update(w.dests)
	case what < 8 && d.Active() > 0:
		d.Unbind(true)
	default:
		pick := w.s.Schedule(r)
		if pick != nil {
			pick.Bind(true)
		}
		return nameOf(pick)
	}
	return ""
}

// TestAPickAllocatesNothing, once lblc and lblcr know the destination address.
func TestAPickAllocatesNothing(t *testing.T) {
	for _, name := range sched.Names() {
		w := newTwin(t, name, 0)
		r := sched.Request{Flow: packet.Flow{Src: v4(1), Dst: v4(2)}}
		pick := func() {
			r.Flow.SrcPort++
			if d := w.s.Schedule(r); d != nil {
				d.Bind(true)
			}
		}
		for range 100 {
			pick()
		}
		if n := testing.AllocsPerRun(500, pick); n != 0 {
			t.Errorf("%s allocates %v times a pick", name, n)
		}
	}
}
