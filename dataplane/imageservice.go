package dataplane

import (
	"fmt"
	"slices"

	"pktdirector/image"
	"pktdirector/lvs"
	"pktdirector/sched"
)

// carry carries a service with its counters, lists and scheduler's memory. What is
// read of lists is left to dests, which makes destinations of IDs: they are read
// after the services. s.mu is held.
func (s *service) carry(x *image.Codec, later *serviceImage) {
	config := s.config
	config.ServiceKey = s.key
	config.Carry(x)
	s.stats.Carry(x)
	if !x.Reads() {
		carryIDs(x, s.dests)
		carryIDs(x, s.removed)
		memory := ""
		if r, ok := s.scheduler.(sched.Remembering); ok {
			w := image.Writing(nil)
			r.Carry(w, nil)
			memory = string(w.Bytes())
		}
		x.Text(&memory)
		return
	}
	s.key = config.ServiceKey
	s.configure(config)
	number := func(x *image.Codec, id *uint32) { image.Num(x, id) }
	image.List(x, &later.dests, 4, number)
	image.List(x, &later.removed, 4, number)
	x.Text(&later.memory)
}

// serviceImage is what of a service's image waits for its destinations.
type serviceImage struct {
	dests, removed []uint32
	memory         string
}

// readRules reads what writeRules has written, after its head, into a new director.
func (d *Director) readRules(x *image.Codec) error {
	d.carryCounts(x)
	d.table.Carry(x)
	d.templates.Carry(x)
	tune := DefaultTunables()
	carryTunables(x, &tune)
	d.tunables.Store(&tune)
	d.table.SetSecureTCP(defending(tune.SecureTCP))
	if tune.ConnMax > 0 {
		d.limitTables(tune.ConnMax)
	}
	var marks []lvs.MarkRule
	image.List(x, &marks, 20, func(x *image.Codec, m *lvs.MarkRule) { m.Carry(x) })

	services := map[lvs.ServiceKey]*service{}
	later := map[*service]*serviceImage{}
	for range x.Count(0, 30) {
		svc, rest := &service{}, &serviceImage{}
		if svc.carry(x, rest); x.Err() != nil {
			return x.Err()
		}
		if services[svc.key] != nil {
			return fmt.Errorf("two services %s", svc.key)
		}
		services[svc.key], later[svc] = svc, rest
	}
	retired := map[lvs.ServiceKey][]uint32{}
	for range x.Count(0, 30) {
		var key lvs.ServiceKey
		var ids []uint32
		key.Carry(x)
		image.List(x, &ids, 4, func(x *image.Codec, id *uint32) { image.Num(x, id) })
		retired[key] = append(retired[key], ids...)
	}
	var all []*lvs.Destination
	for range x.Count(0, 100) {
		dest := &lvs.Destination{ID: uint32(len(all))}
		if dest.Carry(x); x.Err() != nil {
			return x.Err()
		}
		all = append(all, dest)
	}
	if err := x.End(); err != nil {
		return err
	}
	return d.join(all, services, later, retired, marks)
}

// join puts services and destinations that were read together and makes them live.
func (d *Director) join(all []*lvs.Destination, services map[lvs.ServiceKey]*service, later map[*service]*serviceImage, retired map[lvs.ServiceKey][]uint32, marks []lvs.MarkRule) error {
	d.dests.Store(&destinations{all})
	listed := make([]bool, len(all))
	take := func(key lvs.ServiceKey, ids []uint32, live bool) (list []*lvs.Destination, err error) {
		for _, id := range ids {
			if int(id) >= len(all) || listed[id] || all[id].Service != key {
				return nil, fmt.Errorf("service %s has destination %d, which is not there, another's or listed twice", key, id)
			}
			listed[id] = true
			all[id].SetAvailable(live)
			list = append(list, all[id])
		}
		return list, nil
	}
	byID := func(id uint32) *lvs.Destination {
		if int(id) < len(all) {
			return all[id]
		}
		return nil
	}
	set := lvs.Ruleset{Marks: marks}
	for key, svc := range services {
		var err error
		rest := later[svc]
		if svc.dests, err = take(key, rest.dests, true); err != nil {
			return err
		}
		if svc.removed, err = take(key, rest.removed, false); err != nil {
			return err
		}
		checked := svc.config
		for _, dest := range svc.dests {
			checked.Servers = append(checked.Servers, dest.RealServer())
			d.servers.add(key, dest)
		}
		for _, dest := range append(slices.Clone(svc.dests), svc.removed...) {
			dest.Total.Store(&svc.stats)
		}
		svc.bounded = anyBounded(svc.dests)
		set.Services = append(set.Services, checked)
		if !sched.Known(svc.config.Scheduler) {
			return fmt.Errorf("service %s has the scheduler %q, which is not known", key, svc.config.Scheduler)
		}
		if svc.scheduler, err = d.newScheduler(&svc.config, svc.dests); err != nil {
			return err
		}
		x := image.Reading([]byte(rest.memory))
		if r, ok := svc.scheduler.(sched.Remembering); ok {
			r.Carry(x, byID)
		}
		if err := x.End(); err != nil {
			return fmt.Errorf("service %s: scheduler %s: %w", key, svc.config.Scheduler, err)
		}
	}
	for key, ids := range retired {
		list, err := take(key, ids, false)
		if err != nil {
			return err
		}
		d.retired[key] = list
	}
	for id, dest := range all {
		if !listed[id] {
			dest.SetAvailable(false)
		}
	}
	if err := d.refuse(set); err != nil {
		return err
	}
	d.setMarks(marks)
	d.setServices(services)
	return nil
}
