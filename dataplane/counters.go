package dataplane

import "pktdirector/lvs"

// ZeroCounters makes a service's counters, and those of its servers, count from
// now on (ipvsadm -Z).
func (d *Director) ZeroCounters(k lvs.ServiceKey) error {
	svc := d.rules.Load().services[k]
	if svc == nil {
		return lvs.ErrNoService
	}
	svc.eachCounters((*lvs.Counters).Zero)
	return nil
}

// eachCounters calls do with the service's counters and its servers'.
func (s *service) eachCounters(do func(*lvs.Counters)) {
	do(&s.stats)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, dest := range s.dests {
		do(&dest.Stats)
	}
}

// estimate moves all rates on when their time has come.
func (w *Worker) estimate() {
	step := uint64(w.now / lvs.EstimateEvery)
	before := w.d.estimated.Load()
	if step <= before || !w.d.estimated.CompareAndSwap(before, step) {
		return
	}
	// After a long pause nothing is left of the old rates anyhow.
	for range min(step-before, 100) {
		for _, svc := range w.d.rules.Load().services {
			svc.eachCounters((*lvs.Counters).Estimate)
		}
	}
}
