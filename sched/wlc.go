package sched

import "pktdirector/lvs"

// weightedLeastConnection is wlc: the eligible destination with the smallest
// overhead/weight, compared by cross-multiplying. With all counts at zero every
// quotient is zero, so the first connection goes to the head of the list
// whatever the weights are.
type weightedLeastConnection struct{ dests []*lvs.Destination }

func (s *weightedLeastConnection) Update(dests []*lvs.Destination) { s.dests = dests }

func (s *weightedLeastConnection) Schedule(Request) *lvs.Destination {
	return cheapest(s.dests, wlcCost)
}

func (s *weightedLeastConnection) Explain(_ Request, e *Explanation) {
	explainCheapest(s.dests, wlcCost, wlcFormula, e)
}

func wlcCost(d *lvs.Destination) Score { return Score{overhead(d), d.Weight()} }
