package sched

import "pktdirector/lvs"

// overhead is the cost that lc and wlc compare: an active connection weighs
// as much as 256 inactive ones.
func overhead(d *lvs.Destination) int64 { return d.Active()<<8 + d.Inactive() }

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

// The costs in words.
const (
	lcFormula  = "256·ActiveConn + InActConn"
	wlcFormula = "(256·ActiveConn + InActConn) / weight"
	sedFormula = "(ActiveConn + 1) / weight"
)

func explainCheapest(dests []*lvs.Destination, cost func(*lvs.Destination) Score, formula string, e *Explanation) {
	pick := cheapest(dests, cost)
	var least Score
	if pick != nil {
		least = cost(pick)
	}
	e.Rule, e.Tie = "the smallest cost, "+formula, tieFirst
	e.each(dests, func(d *lvs.Destination, c *Candidate) {
		c.Score = cost(d)
		switch {
		case d == pick:
			c.Picked, c.Why = true, "smallest cost, first in the list"
		case least.less(c.Score):
			c.Why = "costs more"
		default:
			c.Why = "costs the same, but stands later in the list"
		}
	})
}
