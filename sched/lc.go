package sched

import "pktdirector/lvs"

// overhead is the cost that lc and wlc compare: an active connection weighs
// as much as 256 inactive ones.
func overhead(d *lvs.Destination) int64 { return d.Active()<<8 + d.Inactive() }

// leastConnection is lc: the eligible destination with the smallest overhead.
// The comparison is strict, so the first in list order wins a tie.
type leastConnection struct{ dests []*lvs.Destination }

func (s *leastConnection) Update(dests []*lvs.Destination) { s.dests = dests }

func (s *leastConnection) Schedule(Request) *lvs.Destination {
	return cheapest(s.dests, lcCost)
}

func (s *leastConnection) Explain(_ Request, e *Explanation) {
	explainCheapest(s.dests, lcCost, e)
}

func lcCost(d *lvs.Destination) Score { return Score{overhead(d), 1} }

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
	explainCheapest(s.dests, wlcCost, e)
}

func wlcCost(d *lvs.Destination) Score { return Score{overhead(d), d.Weight()} }

// cheapest returns the first eligible destination in list order than which
// none is strictly cheaper, or nil.
func cheapest(dests []*lvs.Destination, cost func(*lvs.Destination) Score) *lvs.Destination {
	var best *lvs.Destination
	var bestCost Score
	for _, d := range dests {
		if !d.Eligible() {
			continue
		}
		if c := cost(d); best == nil || c.less(bestCost) {
			best, bestCost = d, c
		}
	}
	return best
}

func explainCheapest(dests []*lvs.Destination, cost func(*lvs.Destination) Score, e *Explanation) {
	pick := cheapest(dests, cost)
	e.Rule = "the smallest cost, first in the list among equals"
	e.each(dests, func(d *lvs.Destination, c *Candidate) {
		c.Score = cost(d)
		switch {
		case d == pick:
			c.Picked, c.Why = true, "smallest cost, first in the list"
		case cost(pick).less(c.Score):
			c.Why = "costs more"
		default:
			c.Why = "costs the same, but stands later in the list"
		}
	})
}
