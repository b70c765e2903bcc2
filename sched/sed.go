package sched

import "pktdirector/lvs"

// shortestExpectedDelay is sed: the eligible destination with the smallest
// (ActiveConn+1)/weight. Inactive connections do not count, so UDP, which never
// is active, always goes to the largest weight.
type shortestExpectedDelay struct{ dests []*lvs.Destination }

func (s *shortestExpectedDelay) Update(dests []*lvs.Destination) { s.dests = dests }

func (s *shortestExpectedDelay) Schedule(Request) *lvs.Destination {
	return cheapest(s.dests, sedCost)
}

func (s *shortestExpectedDelay) Explain(_ Request, e *Explanation) {
	explainCheapest(s.dests, sedCost, sedFormula, e)
}

func sedCost(d *lvs.Destination) Score { return Score{d.Active() + 1, d.Weight()} }
