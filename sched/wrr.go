package sched

import (
	"fmt"

	"pktdirector/lvs"
)

// weightedRoundRobin is wrr, interleaved by weight level.
//
// Let g be the greatest common divisor of all weights and max the largest. The
// level starts at max-(g-1). Each round of the list takes the eligible
// destinations whose weight reaches the level; at the end of the list the level
// drops by g, and from the last level, 1, it goes back to the start. Weights 4,
// 3 and 2 (A, B, C in list order) give A | A B | A B C | A B C.
//
// A change of the list puts the position back to the head, but keeps the
// level: it is cut to the new start, or, when g is above 1, moved onto the new
// grid. So a service whose servers are added with weights 1, 2, 3 opens at level
// 1, where every server has its turn.
type weightedRoundRobin struct {
	dests      []*lvs.Destination
	at         int // index of the destination used last; -1: in front of the head
	level      int64
	gcd, start int64
}

func (s *weightedRoundRobin) Update(dests []*lvs.Destination) {
	s.dests, s.at = dests, -1
	var largest int64
	s.gcd = 0
	for _, d := range dests {
		if w := d.Weight(); w > 0 {
			s.gcd = gcd(w, s.gcd)
			largest = max(largest, w)
		}
	}
	s.gcd = max(s.gcd, 1)
	s.start = max(largest-(s.gcd-1), 0)
	switch {
	case s.level > s.start || s.level == 0:
		s.level = s.start
	case s.gcd > 1:
		s.level = s.level/s.gcd*s.gcd + 1
	}
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func (s *weightedRoundRobin) Schedule(Request) *lvs.Destination {
	at, level, ok := s.next()
	if !ok {
		return nil
	}
	s.at, s.level = at, level
	return s.dests[at]
}

// next finds the position and level of the next pick.
func (s *weightedRoundRobin) next() (at int, level int64, ok bool) {
	var reach int64 // the largest eligible weight
	for _, d := range s.dests {
		if d.Eligible() {
			reach = max(reach, d.Weight())
		}
	}
	if reach == 0 {
		return 0, 0, false
	}
	at, level = s.at, s.level
	for {
		for at++; at < len(s.dests); at++ {
			if d := s.dests[at]; d.Eligible() && d.Weight() >= level {
				return at, level, true
			}
		}
		at = -1
		if level -= s.gcd; level <= 0 {
			level = s.start
		}
		// Skip at once the levels that nobody reaches: weights go up to
		// two thousand million.
		if level > reach {
			level -= (level - reach + s.gcd - 1) / s.gcd * s.gcd
		}
	}
}

func (s *weightedRoundRobin) Explain(_ Request, e *Explanation) {
	at, level, ok := s.next()
	e.Rule, e.Tie = "the next in the round whose weight reaches the level", tieNone
	e.each(s.dests, func(d *lvs.Destination, c *Candidate) {
		switch {
		case ok && d == s.dests[at]:
			c.Picked, c.Why = true, fmt.Sprintf("next in the round at level %d", level)
		case d.Weight() < level:
			c.Why = fmt.Sprintf("weight below the level %d", level)
		default:
			c.Why = "not its turn"
		}
	})
}
