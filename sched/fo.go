package sched

import "pktdirector/lvs"

// failover is fo: the eligible destination with the largest weight, the first
// in list order among equals. Connections are not looked at.
type failover struct{ dests []*lvs.Destination }

func (s *failover) Update(dests []*lvs.Destination) { s.dests = dests }

func (s *failover) Schedule(Request) *lvs.Destination { return heaviest(s.dests, nil) }

func (s *failover) Explain(_ Request, e *Explanation) { explainHeaviest(s.dests, nil, e) }

// heaviest returns the first eligible destination of the largest weight that
// is not full.
func heaviest(dests []*lvs.Destination, full func(*lvs.Destination) bool) *lvs.Destination {
	var best *lvs.Destination
	for _, d := range dests {
		if d.Eligible() && (full == nil || !full(d)) && (best == nil || d.Weight() > best.Weight()) {
			best = d
		}
	}
	return best
}

func explainHeaviest(dests []*lvs.Destination, full func(*lvs.Destination) bool, e *Explanation) {
	pick := heaviest(dests, full)
	e.Rule, e.Tie = "the largest weight", tieFirst
	if full != nil {
		e.Rule = "the largest weight of those with ActiveConn up to their weight"
	}
	e.each(dests, func(d *lvs.Destination, c *Candidate) {
		switch {
		case d == pick:
			c.Picked, c.Why = true, "the largest weight, first in the list"
		case full != nil && full(d):
			c.Why = "has more active connections than its weight"
		case d.Weight() < pick.Weight():
			c.Why = "its weight is smaller"
		default:
			c.Why = "its weight is the same, but it stands later in the list"
		}
	})
}
