package sched

import (
	"slices"

	"pktdirector/lvs"
)

// neverQueue is nq: the first eligible destination in list order without an
// active connection; when all have some, sed.
type neverQueue struct{ dests []*lvs.Destination }

func (s *neverQueue) Update(dests []*lvs.Destination) { s.dests = dests }

func (s *neverQueue) idle() *lvs.Destination {
	if i := slices.IndexFunc(s.dests, func(d *lvs.Destination) bool { return d.Eligible() && d.Active() == 0 }); i >= 0 {
		return s.dests[i]
	}
	return nil
}

func (s *neverQueue) Schedule(Request) *lvs.Destination {
	if d := s.idle(); d != nil {
		return d
	}
	return cheapest(s.dests, sedCost)
}

func (s *neverQueue) Explain(_ Request, e *Explanation) {
	pick := s.idle()
	if pick == nil {
		explainCheapest(s.dests, sedCost, sedFormula, e)
		e.Rule = "none is idle: " + e.Rule
		return
	}
	e.Rule, e.Tie = "the first idle destination in the list", tieFirst
	e.each(s.dests, func(d *lvs.Destination, c *Candidate) {
		switch {
		case d == pick:
			c.Picked, c.Why = true, "the first without an active connection"
		case d.Active() > 0:
			c.Why = "not idle"
		default:
			c.Why = "idle, but stands later in the list"
		}
	})
}
