package sched

import (
	"slices"
	"time"

	"pktdirector/lvs"
)

// localityWithReplication is lblcr: as lblc, but each destination address has
// a set of destinations, of which the least loaded is used. When that one is
// overloaded in the sense of overloadedFor, the least loaded of the whole service
// joins the set. A set that did not change for lblcr_expiration loses its most loaded
// member.
type localityWithReplication struct {
	dests  []*lvs.Destination
	memory locality[replicas]
}

// replicas is the set of one destination address, the newest member first.
type replicas struct {
	members []*lvs.Destination
	changed time.Duration
}

func (s *localityWithReplication) Update(dests []*lvs.Destination) { s.dests = dests }

// least returns the least loaded member that may be used.
func (r *replicas) least() *lvs.Destination {
	var best *lvs.Destination
	for _, d := range r.members {
		if d.Available() && d.Eligible() && (best == nil || wlcCost(d).less(wlcCost(best))) {
			best = d
		}
	}
	return best
}

// most returns the most loaded member with a weight.
func (r *replicas) most() *lvs.Destination {
	var worst *lvs.Destination
	for _, d := range r.members {
		if d.Weight() > 0 && (worst == nil || wlcCost(worst).less(wlcCost(d))) {
			worst = d
		}
	}
	return worst
}

func (s *localityWithReplication) Schedule(r Request) *lvs.Destination {
	s.memory.tidy(r.Now, r.LBLCRExpiration)
	e := s.memory.find(r.Flow.Dst, r.Now)
	var least *lvs.Destination
	if e != nil {
		set := &e.value
		least = set.least()
		if len(set.members) > 1 && r.Now > set.changed+r.LBLCRExpiration {
			if worst := set.most(); worst != nil {
				set.members = slices.DeleteFunc(set.members, func(d *lvs.Destination) bool { return d == worst })
				set.changed = r.Now
			}
		}
	}
	if least != nil && !overloadedFor(least, s.dests) {
		return least
	}
	d := cheapest(s.dests, wlcCost)
	if d == nil {
		return nil
	}
	if e == nil {
		e = s.memory.add(r.Flow.Dst, r.Now)
	}
	if set := &e.value; !slices.Contains(set.members, d) {
		set.members = slices.Insert(set.members, 0, d)
		set.changed = r.Now
	}
	return d
}

func (s *localityWithReplication) Explain(r Request, e *Explanation) {
	entry := s.memory.peek(r.Flow.Dst, r.Now, r.LBLCRExpiration)
	var least *lvs.Destination
	if entry != nil {
		least = entry.value.least()
	}
	if least == nil || overloadedFor(least, s.dests) {
		explainCheapest(s.dests, wlcCost, wlcFormula, e)
		e.Rule = "the set of this destination address is empty or gives way: " + e.Rule
		return
	}
	e.Rule, e.Tie = "the least loaded of the set of this destination address", "of equals the one that joined the set last"
	e.each(s.dests, func(d *lvs.Destination, c *Candidate) {
		c.Score = wlcCost(d)
		c.Why = "not in the set of this destination address"
		if slices.Contains(entry.value.members, d) {
			c.Why = "in the set, but not the least loaded"
		}
	})
	e.pick(least, "the least loaded of the set")
}
