package sched

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"time"

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
	// Explain fills in how Schedule would judge now: one Candidate per
	// destination, in list order, behind those that are there. It changes no state.
	Explain(r Request, e *Explanation)
}

// Request is what a scheduler may look at besides the destinations.
type Request struct {
	Flow packet.Flow   // the client's packet: client to VIP
	Now  time.Duration // engine time
	// How long lblc and lblcr remember an address that is not used.
	LBLCExpiration, LBLCRExpiration time.Duration
}

// Explanation is a scheduling decision taken apart.
type Explanation struct {
	Candidates []Candidate // in list order
	Rule       string      // how the scheduler chooses, in words
	Tie        string      // what decides between equals, in words
	// Bucket is the place of a hash table that the packet leads to, of
	// Buckets; both are 0 for schedulers without a table. Fallback is the place
	// whose owner was picked: another one where Bucket's owner is not eligible.
	Bucket, Buckets, Fallback int
}

// Picked returns the destination that wins, or nil.
func (e *Explanation) Picked() *lvs.Destination {
	for i := range e.Candidates {
		if e.Candidates[i].Picked {
			return e.Candidates[i].Dest
		}
	}
	return nil
}

// Ties of schedulers that compare, of those that go round, and of those that
// look into a table.
const (
	tieFirst = "of equals the first in the list, which was added last"
	tieNone  = "there are none: the round has one next"
	tieOwner = "there are none: a place has one owner"
)

// Bound fills in e for a connection that goes to pick whatever a scheduler would
// say: the client is bound to it by its template. dests is the service's list.
func Bound(dests []*lvs.Destination, pick *lvs.Destination, e *Explanation) {
	e.Rule, e.Tie = "the client's template, before any scheduler", "there are none: a client has one template"
	e.each(dests, func(_ *lvs.Destination, c *Candidate) { c.Why = "the client is bound to another" })
	e.pick(pick, "the client is bound to it; weight and thresholds are not looked at")
}

// each appends a Candidate per destination. judge is asked about those that
// are eligible.
func (e *Explanation) each(dests []*lvs.Destination, judge func(*lvs.Destination, *Candidate)) {
	for _, d := range dests {
		e.Candidates = append(e.Candidates, Candidate{Dest: d, Weight: d.Weight(), Active: d.Active(), InAct: d.Inactive()})
		c := &e.Candidates[len(e.Candidates)-1]
		switch {
		case c.Weight == 0:
			c.Why = "quiesced: weight 0"
		case d.Overloaded():
			c.Why = "overloaded: over its upper threshold"
		default:
			judge(d, c)
		}
	}
}

// pick marks a destination as the winner whatever was said of it.
func (e *Explanation) pick(d *lvs.Destination, why string) {
	for i := range e.Candidates {
		if e.Candidates[i].Dest == d {
			e.Candidates[i].Picked, e.Candidates[i].Why = true, why
		}
	}
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

// Config is what a service tells its scheduler besides destinations.
type Config struct {
	Flags lvs.SchedFlags
	Seed  uint64 // of schedulers that draw at random
}

// constructors lists every scheduler by its kernel name.
func constructors() map[string]func(Config) Scheduler {
	return map[string]func(Config) Scheduler{
		"rr":    func(Config) Scheduler { return new(roundRobin) },
		"wrr":   func(Config) Scheduler { return new(weightedRoundRobin) },
		"lc":    func(Config) Scheduler { return new(leastConnection) },
		"wlc":   func(Config) Scheduler { return new(weightedLeastConnection) },
		"sed":   func(Config) Scheduler { return new(shortestExpectedDelay) },
		"nq":    func(Config) Scheduler { return new(neverQueue) },
		"fo":    func(Config) Scheduler { return new(failover) },
		"ovf":   func(Config) Scheduler { return new(overflow) },
		"dh":    func(Config) Scheduler { return new(destinationHashing) },
		"sh":    func(c Config) Scheduler { return &sourceHashing{flags: c.Flags} },
		"mh":    func(c Config) Scheduler { return &maglev{flags: c.Flags} },
		"lblc":  func(Config) Scheduler { return new(localityLeastConnection) },
		"lblcr": func(Config) Scheduler { return new(localityWithReplication) },
		"twos":  func(c Config) Scheduler { return &twoChoices{state: c.Seed} },
		"none":  func(Config) Scheduler { return new(noScheduler) },
	}
}

// New returns a scheduler by its kernel name, over dests (newest first).
func New(name string, c Config, dests []*lvs.Destination) (Scheduler, error) {
	construct, ok := constructors()[name]
	if !ok {
		return nil, fmt.Errorf("scheduler %q is not known: one of %v is", name, Names())
	}
	s := construct(c)
	s.Update(dests)
	return s, nil
}

// ReadsFlags reports whether flags mean something to the scheduler of that name.
func ReadsFlags(name string) bool { return name == "sh" || name == "mh" }

// Names lists the schedulers that New knows, sorted.
func Names() []string { return slices.Sorted(maps.Keys(constructors())) }

// Known reports whether New knows the name.
func Known(name string) bool { _, ok := constructors()[name]; return ok }
