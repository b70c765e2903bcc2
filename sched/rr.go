package sched

import (
	"slices"

	"pktdirector/lvs"
)

// roundRobin is rr. It goes round the list, starting behind the destination
// it used last, and takes the first eligible one; weights count only as zero or
// not. A new service begins at the head, which is the server added last.
//
// The position outlives changes of the list: a server added later stands at
// the head and is reached when the round comes there; when the server last used
// is removed, the position steps back to the one in front of it.
type roundRobin struct {
	dests []*lvs.Destination
	last  *lvs.Destination // nil: in front of the head
}

func (s *roundRobin) Update(dests []*lvs.Destination) {
	s.last = stepBack(s.dests, dests, s.last)
	s.dests = dests
}

// stepBack returns last if it is still in now; else the nearest destination
// in front of it in the old list that is; else nil, the place in front of the
// head.
func stepBack(old, now []*lvs.Destination, last *lvs.Destination) *lvs.Destination {
	if last == nil || slices.Contains(now, last) {
		return last
	}
	for i := slices.Index(old, last) - 1; i >= 0; i-- {
		if slices.Contains(now, old[i]) {
			return old[i]
		}
	}
	return nil
}

func (s *roundRobin) Schedule(Request) *lvs.Destination {
	d := s.next()
	if d != nil {
		s.last = d
	}
	return d
}

func (s *roundRobin) next() *lvs.Destination {
	n := len(s.dests)
	at := slices.Index(s.dests, s.last) // -1: in front of the head
	for i := 1; i <= n; i++ {
		if d := s.dests[(at+i)%n]; d.Eligible() {
			return d
		}
	}
	return nil
}

func (s *roundRobin) Explain(_ Request, e *Explanation) {
	pick := s.next()
	e.Rule, e.Tie = "the next eligible destination in the round", tieNone
	e.each(s.dests, func(d *lvs.Destination, c *Candidate) {
		switch d {
		case pick:
			c.Picked, c.Why = true, "next in the round"
		case s.last:
			c.Why = "was used last"
		default:
			c.Why = "not its turn"
		}
	})
}
