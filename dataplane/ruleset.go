package dataplane

import (
	"cmp"
	"slices"

	"pktdirector/lvs"
)

// Ruleset returns what is balanced now, marks included, in the order of Status;
// servers in the order in which they were added. Apply makes the same of it.
func (d *Director) Ruleset() lvs.Ruleset {
	d.applying.Lock()
	defer d.applying.Unlock()
	rules := d.rules.Load()
	set := lvs.Ruleset{Marks: slices.Clone(rules.marks)}
	for _, svc := range rules.services {
		svc.mu.Lock()
		s := svc.config
		s.ServiceKey, s.Servers = svc.key, nil
		for _, dest := range slices.Backward(svc.dests) { // newest first
			upper, lower := dest.Thresholds()
			s.Servers = append(s.Servers, lvs.RealServer{
				ServerKey: dest.Server, Method: dest.Method(), Tunnel: dest.Tunnel(), Weight: int(dest.Weight()), Upper: upper, Lower: lower,
			})
		}
		svc.mu.Unlock()
		set.Services = append(set.Services, s)
	}
	slices.SortFunc(set.Services, func(a, b lvs.VirtualService) int { return compareKeys(a.ServiceKey, b.ServiceKey) })
	return set
}

// compareKeys sorts by mark, protocol, VIP and port.
func compareKeys(a, b lvs.ServiceKey) int {
	v6 := 0
	if a.V6 != b.V6 {
		v6 = 1
		if b.V6 {
			v6 = -1
		}
	}
	return cmp.Or(cmp.Compare(a.Mark, b.Mark), v6, cmp.Compare(a.Proto, b.Proto), compareAddrs(a.VIP, b.VIP), cmp.Compare(a.Port, b.Port))
}
