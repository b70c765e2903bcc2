package dataplane

import (
	"fmt"
	"slices"
	"sync"

	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/sched"
)

// service is a virtual service at work. Its lock guards the scheduler and is
// held from the choice to the count, so that all workers share one cursor and
// see each other's connections.
type service struct {
	key   lvs.ServiceKey
	stats lvs.Counters

	mu        sync.Mutex
	name      string // the scheduler's
	scheduler sched.Scheduler
	dests     []*lvs.Destination // newest first
	removed   []*lvs.Destination // may come back, with counters and connections
}

// rules is what packets are matched against; it is replaced as a whole.
type rules struct {
	services map[lvs.ServiceKey]*service
	vips     map[packet.Addr]struct{}
	order    []packet.Addr // the VIPs, sorted
}

// destinations lists every destination that a connection can refer to.
// Entries are only ever added.
type destinations struct{ all []*lvs.Destination }

// Apply makes the ruleset live: all of it, or, with an error, none. Services
// and destinations that remain keep their counters, connections and scheduler
// state; a removed server that comes back does so with its old ones.
func (d *Director) Apply(r lvs.Ruleset) error {
	if err := r.Validate(sched.Known); err != nil {
		return err
	}
	for i := range r.Services {
		for j, rs := range r.Services[i].Servers {
			if d.forwarders[rs.Method] == nil {
				return fmt.Errorf("services[%d].servers[%d]: the engine was given no forwarder for method %s", i, j, rs.Method.Short())
			}
		}
	}
	d.applying.Lock()
	defer d.applying.Unlock()
	old := d.rules.Load()
	next := &rules{services: map[lvs.ServiceKey]*service{}, vips: map[packet.Addr]struct{}{}}
	for i := range r.Services {
		want := &r.Services[i]
		svc := old.services[want.ServiceKey]
		if svc == nil {
			svc = d.retired[want.ServiceKey]
		}
		if svc == nil {
			svc = &service{key: want.ServiceKey}
		}
		delete(d.retired, want.ServiceKey)
		if err := d.edit(svc, want); err != nil {
			return err // cannot happen after Validate
		}
		next.services[want.ServiceKey] = svc
		next.vips[want.VIP] = struct{}{}
	}
	for key, svc := range old.services {
		if next.services[key] == nil {
			d.retire(svc)
		}
	}
	for vip := range next.vips {
		next.order = append(next.order, vip)
	}
	slices.SortFunc(next.order, func(a, b packet.Addr) int {
		if a.Less(b) {
			return -1
		}
		return 1
	})
	d.rules.Store(next)
	d.announce.Store(true)
	return nil
}

// retire takes a service's destinations out of use; connections keep them.
func (d *Director) retire(svc *service) {
	svc.mu.Lock()
	defer svc.mu.Unlock()
	for _, dest := range svc.dests {
		dest.SetAvailable(false)
	}
	svc.removed = append(svc.dests, svc.removed...)
	svc.dests, svc.scheduler, svc.name = nil, nil, ""
	d.retired[svc.key] = svc
}

// edit brings a service to what the operator wants, one change at a time as
// ipvsadm would make them, so that its scheduler sees each.
func (d *Director) edit(svc *service, want *lvs.VirtualService) error {
	svc.mu.Lock()
	defer svc.mu.Unlock()
	wanted := map[lvs.ServerKey]*lvs.RealServer{}
	for i := range want.Servers {
		wanted[want.Servers[i].ServerKey] = &want.Servers[i]
	}
	if svc.name != want.Scheduler {
		s, err := sched.New(want.Scheduler, svc.dests)
		if err != nil {
			return err
		}
		svc.scheduler, svc.name = s, want.Scheduler
	}
	for _, dest := range slices.Clone(svc.dests) {
		if wanted[dest.Server] == nil {
			dest.SetAvailable(false)
			svc.removed = append(svc.removed, dest)
			svc.change(slices.DeleteFunc(slices.Clone(svc.dests), func(x *lvs.Destination) bool { return x == dest }))
		}
	}
	for i := range want.Servers {
		rs := &want.Servers[i]
		if dest := find(svc.dests, rs.ServerKey); dest != nil {
			if dest.Weight() != int64(rs.Weight) || dest.Method() != rs.Method {
				dest.SetWeight(rs.Weight)
				dest.SetMethod(rs.Method)
				svc.change(svc.dests)
			}
			continue
		}
		svc.change(append([]*lvs.Destination{d.revive(svc, *rs)}, svc.dests...))
	}
	return nil
}

// revive returns the destination of a server that is added: the old one where
// the server was there before.
func (d *Director) revive(svc *service, rs lvs.RealServer) *lvs.Destination {
	dest := find(svc.removed, rs.ServerKey)
	if dest == nil {
		old := d.dests.Load().all
		dest = lvs.NewDestination(svc.key, rs, uint32(len(old)))
		d.dests.Store(&destinations{append(slices.Clip(old), dest)})
		return dest
	}
	svc.removed = slices.DeleteFunc(svc.removed, func(x *lvs.Destination) bool { return x == dest })
	dest.SetWeight(rs.Weight)
	dest.SetMethod(rs.Method)
	dest.SetAvailable(true)
	return dest
}

func (s *service) change(dests []*lvs.Destination) {
	s.dests = dests
	s.scheduler.Update(dests)
}

func find(dests []*lvs.Destination, key lvs.ServerKey) *lvs.Destination {
	i := slices.IndexFunc(dests, func(x *lvs.Destination) bool { return x.Server == key })
	if i < 0 {
		return nil
	}
	return dests[i]
}

// schedule chooses a destination for a new connection and counts it there. It
// returns nil when none is available.
func (s *service) schedule(f packet.Flow, active bool, decide func(sched.Request, []sched.Candidate)) *lvs.Destination {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.scheduler == nil {
		return nil // removed a moment ago
	}
	req := sched.Request{Flow: f}
	if decide != nil {
		decide(req, s.scheduler.Explain(req, nil))
	}
	dest := s.scheduler.Schedule(req)
	if dest != nil {
		dest.Bind(active)
		s.stats.Conns.Add(1)
	}
	return dest
}
