package dataplane

import "pktdirector/lvs"

// ZeroCounters makes a service's counters, and those of its servers, count from
// now on (ipvsadm -Z with a service). Totals go on.
func (d *Director) ZeroCounters(k lvs.ServiceKey) error {
	d.applying.Lock()
	defer d.applying.Unlock()
	svc := d.rules.Load().services[k]
	if svc == nil {
		return lvs.ErrNoService
	}
	d.past = d.past.Plus(svc.zero())
	return nil
}

// ZeroAll makes every counter count from now on (ipvsadm -Z).
func (d *Director) ZeroAll() {
	d.applying.Lock()
	defer d.applying.Unlock()
	for _, svc := range d.rules.Load().services {
		svc.zero()
	}
	d.past = lvs.Stats{}
}

// Totals returns what all services counted, those that were removed too, and
// their rates a second.
func (d *Director) Totals() (counted, rates lvs.Stats) {
	d.applying.Lock()
	defer d.applying.Unlock()
	counted = d.past
	for _, svc := range d.rules.Load().services {
		counted, rates = counted.Plus(svc.stats.Read()), rates.Plus(svc.stats.Rates())
	}
	return counted, rates
}

// zero makes the service's counters and its servers' count from now on, and
// returns what the service had counted.
func (s *service) zero() lvs.Stats {
	counted := s.stats.Zero()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, dest := range s.dests {
		dest.Stats.Zero()
	}
	return counted
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
