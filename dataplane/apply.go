package dataplane

import (
	"fmt"
	"slices"

	"pktdirector/lvs"
)

// Apply makes the ruleset live: all of it, or, with an error, none. What
// remains is edited in place, and servers that remain keep their place in the
// list, their entries and counters; new ones come to its head, in their order.
// Of each service a new connection meets all that changes, or nothing; what is
// added and what is removed takes effect at one moment. What is as it should be is
// not touched.
func (d *Director) Apply(r lvs.Ruleset) error {
	if err := d.refuse(r); err != nil {
		return err
	}
	d.applying.Lock()
	defer d.applying.Unlock()
	was := d.rules.Load()
	next := make(map[lvs.ServiceKey]*service, len(r.Services))
	moved := !slices.EqualFunc(was.marks, r.Marks, lvs.MarkRule.Equal)
	var gone []*lvs.Destination
	for i := range r.Services {
		want := &r.Services[i]
		svc := was.services[want.ServiceKey]
		var err error
		if svc == nil {
			svc, err = d.newService(*want)
			moved = true
		}
		if err == nil {
			var other bool
			var lost []*lvs.Destination
			other, lost, err = d.change(svc, want)
			moved = moved || other
			gone = append(gone, lost...)
		}
		if err != nil {
			return fmt.Errorf("services[%d]: %w", i, err) // cannot happen: all was checked
		}
		next[want.ServiceKey] = svc
	}
	if moved || len(next) != len(was.services) {
		now := newRules(next, slices.Clone(r.Marks))
		d.rules.Store(now)
		if !slices.Equal(was.announced, now.announced) {
			d.announce.Store(true)
		}
	}
	for k, svc := range was.services {
		if next[k] == nil {
			gone = append(gone, d.retire(svc)...)
		}
	}
	d.purge(gone)
	return nil
}

// Check reports what Apply would refuse of a ruleset.
func (d *Director) Check(r lvs.Ruleset) error { return d.refuse(r) }

// change makes a service as it shall be, at one moment. It reports whether there are
// other addresses to answer for, and the servers that it has no more.
func (d *Director) change(svc *service, want *lvs.VirtualService) (moved bool, gone []*lvs.Destination, err error) {
	svc.mu.Lock()
	defer svc.mu.Unlock()
	if moved, err = d.reconfigure(svc, *want); err != nil {
		return moved, nil, err
	}
	return moved, d.setServers(svc, want.Servers), nil
}

// setServers makes want the service's servers, and returns those that it had and
// has no more. svc.mu is held.
func (d *Director) setServers(svc *service, want []lvs.RealServer) (gone []*lvs.Destination) {
	have := make(map[lvs.ServerKey]*lvs.Destination, len(svc.dests))
	for _, dest := range svc.dests {
		have[dest.Server] = dest
	}
	changed := false
	var added []*lvs.Destination // newest first
	for _, rs := range want {
		switch dest := have[rs.ServerKey]; {
		case dest == nil:
			added = append(added, d.destination(svc, rs))
		case !same(dest, rs):
			dest.Edit(rs)
			changed = true
		}
		delete(have, rs.ServerKey)
	}
	slices.Reverse(added)
	for _, dest := range svc.dests {
		if have[dest.Server] == nil {
			added = append(added, dest)
			continue
		}
		dest.SetAvailable(false)
		d.servers.remove(svc.key, dest)
		svc.removed = append(svc.removed, dest)
		gone = append(gone, dest)
	}
	if changed || !slices.Equal(added, svc.dests) {
		svc.change(added)
	}
	return gone
}

// same reports whether an edit would change nothing.
func same(dest *lvs.Destination, rs lvs.RealServer) bool {
	upper, lower := dest.Thresholds()
	return dest.Weight() == int64(rs.Weight) && dest.Method() == rs.Method && dest.Tunnel() == rs.Tunnel && upper == rs.Upper && lower == rs.Lower
}

// SettingValues returns all settings of net.ipv4.vs by name, without the prefix, as
// SetTunable takes them.
func (d *Director) SettingValues() map[string]string {
	now := d.Tunables()
	values := map[string]string{}
	for _, s := range Settings() {
		values[s.Name] = fmt.Sprint(*s.field(&now))
	}
	return values
}
