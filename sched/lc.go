package sched

import "pktdirector/lvs"

// leastConnection is lc: the eligible destination with the smallest overhead.
// The comparison is strict, so the first in list order wins a tie.
type leastConnection struct{ dests []*lvs.Destination }

func (s *leastConnection) Update(dests []*lvs.Destination) { s.dests = dests }

func (s *leastConnection) Schedule(Request) *lvs.Destination {
	return cheapest(s.dests, lcCost)
}

func (s *leastConnection) Explain(_ Request, e *Explanation) {
	explainCheapest(s.dests, lcCost, lcFormula, e)
}

func lcCost(d *lvs.Destination) Score { return Score{overhead(d), 1} }
