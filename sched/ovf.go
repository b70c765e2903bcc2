package sched

import "pktdirector/lvs"

// overflow is ovf: as fo, but a destination with more active connections than
// its weight is passed over, so each takes weight+1 connections before the next
// gets one. When all are over, the connection is refused.
type overflow struct{ dests []*lvs.Destination }

func (s *overflow) Update(dests []*lvs.Destination) { s.dests = dests }

func (s *overflow) Schedule(Request) *lvs.Destination { return heaviest(s.dests, overWeight) }

func (s *overflow) Explain(_ Request, e *Explanation) { explainHeaviest(s.dests, overWeight, e) }

func overWeight(d *lvs.Destination) bool { return d.Active() > d.Weight() }
