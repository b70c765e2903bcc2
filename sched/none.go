package sched

import "pktdirector/lvs"

// noScheduler is none: a service without a scheduler refuses new connections.
type noScheduler struct{ dests []*lvs.Destination }

func (s *noScheduler) Update(dests []*lvs.Destination) { s.dests = dests }

func (s *noScheduler) Schedule(Request) *lvs.Destination { return nil }

func (s *noScheduler) Explain(_ Request, e *Explanation) {
	e.Rule, e.Tie = "the service has no scheduler", "there are none: nobody is compared"
	e.each(s.dests, func(_ *lvs.Destination, c *Candidate) { c.Why = "the service has no scheduler" })
}
