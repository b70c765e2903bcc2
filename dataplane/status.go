package dataplane

import (
	"slices"

	"pktdirector/lvs"
	"pktdirector/packet"
)

// Status lists the services, sorted by protocol, VIP and port, each with its
// destinations newest first.
func (d *Director) Status() []lvs.ServiceStatus {
	var list []lvs.ServiceStatus
	for _, svc := range d.rules.Load().services {
		s := lvs.ServiceStatus{Service: svc.key, Stats: svc.stats.Read(), Rates: svc.stats.Rates()}
		svc.mu.Lock()
		s.Scheduler, s.Flags = svc.config.Scheduler, svc.config.Flags
		s.Persist, s.MaskBits, s.Netmask, s.OnePacket = svc.config.Persist, svc.config.MaskBits, svc.config.Netmask, svc.config.OnePacket
		s.Engine = svc.config.Engine
		for _, dest := range svc.dests {
			upper, lower := dest.Thresholds()
			s.Destinations = append(s.Destinations, lvs.DestinationStatus{
				Server: dest.Server, Method: dest.Method(), Tunnel: dest.Tunnel(), Weight: dest.Weight(),
				Active: dest.Active(), InAct: dest.Inactive(), Persistent: dest.Persistent.Load(),
				Upper: upper, Lower: lower, Stats: dest.Stats.Read(), Rates: dest.Stats.Rates(),
			})
		}
		svc.mu.Unlock()
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b lvs.ServiceStatus) int { return compareKeys(a.Service, b.Service) })
	return list
}

// Verdicts lists every verdict with its count.
func (d *Director) Verdicts() []VerdictCount {
	words := verdictWords()
	list := make([]VerdictCount, 0, numVerdicts-1)
	for v := pending + 1; v < numVerdicts; v++ {
		list = append(list, VerdictCount{words[v][0], d.verdicts[v].Load(), words[v][1]})
	}
	return list
}

// Count returns how many packets ended in verdict v.
func (d *Director) Count(v Verdict) uint64 { return d.verdicts[v].Load() }

// VIPs lists the addresses the director answers for, sorted.
func (d *Director) VIPs() []packet.Addr { return slices.Clone(d.rules.Load().order) }
