package sched

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"

	"pktdirector/lvs"
	"pktdirector/packet"
)

// Scheduler chooses a destination for each new connection of one service. It
// is not safe for concurrent use: its service's lock guards it, so that all
// workers share one cursor and see each other's counts.
type Scheduler interface {
	// Update tells the scheduler that a destination was added, removed or
	// edited. dests is the service's new list, newest first; the scheduler
	// may keep it and must not change it.
	Update(dests []*lvs.Destination)
	// Schedule returns the destination for a new connection, or nil when
	// none is available.
	Schedule(r Request) *lvs.Destination
	// Explain appends one Candidate per destination, in list order, as
	// Schedule would judge it now. It changes no state.
	Explain(r Request, to []Candidate) []Candidate
}

// Request is what a scheduler may look at besides the destinations.
type Request struct {
	Flow packet.Flow // the client's packet: client to VIP
}

// Candidate is how a scheduler judged one destination.
type Candidate struct {
	Dest          *lvs.Destination
	Weight        int64
	Active, InAct int64
	Score         Score
	Picked        bool
	Why           string // in words: why it was picked, or why it lost
}

// Score is a cost as a fraction, since schedulers compare costs by
// cross-multiplying and never divide. Den 0 means the scheduler has no score.
type Score struct{ Num, Den int64 }

// less compares two scores whose denominators are above 0. The products are
// 128 bits wide: weights and counts may both be large.
func (s Score) less(t Score) bool {
	sHi, sLo := bits.Mul64(uint64(s.Num), uint64(t.Den))
	tHi, tLo := bits.Mul64(uint64(t.Num), uint64(s.Den))
	return sHi < tHi || sHi == tHi && sLo < tLo
}

// candidate reads what every scheduler looks at, and says why d is not
// eligible if it is not.
func candidate(d *lvs.Destination) Candidate {
	c := Candidate{Dest: d, Weight: d.Weight(), Active: d.Active(), InAct: d.Inactive()}
	switch {
	case c.Weight == 0:
		c.Why = "quiesced: weight 0"
	case d.Overloaded():
		c.Why = "overloaded: over its upper threshold"
	}
	return c
}

// constructors lists every scheduler by its kernel name.
func constructors() map[string]func() Scheduler {
	return map[string]func() Scheduler{
		"rr":  func() Scheduler { return new(roundRobin) },
		"wrr": func() Scheduler { return new(weightedRoundRobin) },
		"lc":  func() Scheduler { return new(leastConnection) },
		"wlc": func() Scheduler { return new(weightedLeastConnection) },
	}
}

// New returns a scheduler by its kernel name, over dests (newest first).
func New(name string, dests []*lvs.Destination) (Scheduler, error) {
	construct, ok := constructors()[name]
	if !ok {
		return nil, fmt.Errorf("scheduler %q is not known: one of %v is", name, Names())
	}
	s := construct()
	s.Update(dests)
	return s, nil
}

// Names lists the schedulers that New knows, sorted.
func Names() []string { return slices.Sorted(maps.Keys(constructors())) }

// Known reports whether New knows the name.
func Known(name string) bool { _, ok := constructors()[name]; return ok }
