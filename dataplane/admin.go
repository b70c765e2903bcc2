package dataplane

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"pktdirector/conntrack"
	"pktdirector/lvs"
	"pktdirector/sched"
)

// The commands of an administrator, one change each as ipvsadm makes them.
// Each is live or refused as a whole. Destinations that stay keep their counters,
// connections and place in the list; a server that was removed and comes back
// does so with its old connections, at the head of the list.

// AddService adds a virtual service without servers (ipvsadm -A).
func (d *Director) AddService(s lvs.VirtualService) error {
	d.applying.Lock()
	defer d.applying.Unlock()
	if err := d.refuseSources(s); err != nil {
		return err
	}
	return d.addService(s)
}

func (d *Director) addService(s lvs.VirtualService) error {
	s.Servers = nil
	if err := d.refuse(lvs.Ruleset{Services: []lvs.VirtualService{s}}); err != nil {
		return err
	}
	old := d.rules.Load().services
	if old[s.ServiceKey] != nil {
		return lvs.ErrServiceExists
	}
	svc, err := d.newService(s)
	if err != nil {
		return err
	}
	next := maps.Clone(old)
	if next == nil {
		next = map[lvs.ServiceKey]*service{}
	}
	next[s.ServiceKey] = svc
	d.setServices(next)
	return nil
}

// newService returns a service without servers that nobody knows yet.
func (d *Director) newService(s lvs.VirtualService) (*service, error) {
	s.Servers = nil
	svc := &service{key: s.ServiceKey, removed: d.retired[s.ServiceKey]}
	svc.configure(s)
	var err error
	if svc.scheduler, err = d.newScheduler(&s, nil); err != nil {
		return nil, err
	}
	delete(d.retired, s.ServiceKey)
	for _, dest := range svc.removed {
		dest.Total.Store(&svc.stats)
	}
	return svc, nil
}

func (d *Director) newScheduler(s *lvs.VirtualService, dests []*lvs.Destination) (sched.Scheduler, error) {
	return sched.New(s.Scheduler, sched.Config{Flags: s.Flags, Seed: d.seed}, dests)
}

// EditService changes a service's scheduler, flags and persistence (ipvsadm
// -E). A scheduler of the same name goes on where it is, whatever flags it is
// given: those that read flags have nothing to remember. What ipvsadm has no word
// for stays as it is.
func (d *Director) EditService(s lvs.VirtualService) error {
	d.applying.Lock()
	defer d.applying.Unlock()
	if svc := d.rules.Load().services[s.ServiceKey]; svc != nil {
		s.Sources, s.ClampMSS = svc.config.Sources, svc.config.ClampMSS
	}
	return d.editService(s)
}

func (d *Director) editService(s lvs.VirtualService) error {
	s.Servers = nil
	if err := d.refuse(lvs.Ruleset{Services: []lvs.VirtualService{s}}); err != nil {
		return err
	}
	svc := d.rules.Load().services[s.ServiceKey]
	if svc == nil {
		return lvs.ErrNoService
	}
	svc.mu.Lock()
	moved, err := d.reconfigure(svc, s)
	svc.mu.Unlock()
	if moved {
		d.setServices(d.rules.Load().services) // other addresses to answer for
	}
	return err
}

// reconfigure gives a service another configuration. It reports whether there are
// other addresses to answer for. svc.mu is held.
func (d *Director) reconfigure(svc *service, s lvs.VirtualService) (moved bool, err error) {
	s.Servers = nil
	if s.Scheduler != svc.config.Scheduler || s.Flags != svc.config.Flags && sched.ReadsFlags(s.Scheduler) {
		scheduler, err := d.newScheduler(&s, svc.dests)
		if err != nil {
			return false, err
		}
		svc.scheduler = scheduler
	}
	moved = !slices.Equal(svc.config.Sources.Addrs, s.Sources.Addrs)
	svc.configure(s)
	return moved, nil
}

// DeleteService removes a service and its servers (ipvsadm -D).
func (d *Director) DeleteService(k lvs.ServiceKey) error {
	d.applying.Lock()
	defer d.applying.Unlock()
	return d.deleteService(k)
}

func (d *Director) deleteService(k lvs.ServiceKey) error {
	next := maps.Clone(d.rules.Load().services)
	svc := next[k]
	if svc == nil {
		return lvs.ErrNoService
	}
	delete(next, k)
	d.setServices(next)
	d.purge(d.retire(svc))
	return nil
}

// retire ends a service that packets do not find any more, and returns the servers
// that it had.
func (d *Director) retire(svc *service) []*lvs.Destination {
	svc.mu.Lock()
	defer svc.mu.Unlock()
	gone := svc.dests
	for _, dest := range gone {
		dest.SetAvailable(false)
		d.servers.remove(svc.key, dest)
	}
	d.retired[svc.key] = append(slices.Clone(gone), svc.removed...)
	for _, dest := range d.retired[svc.key] {
		dest.Total.Store(nil)
	}
	d.past = d.past.Plus(svc.stats.Read())
	svc.dests, svc.scheduler = nil, nil
	return gone
}

// Flush removes every service (ipvsadm -C).
func (d *Director) Flush() {
	d.applying.Lock()
	defer d.applying.Unlock()
	for k := range d.rules.Load().services {
		d.deleteService(k) // it is there
	}
}

func (d *Director) setServices(services map[lvs.ServiceKey]*service) {
	d.rules.Store(newRules(services, d.rules.Load().marks))
	d.announce.Store(true)
}

// AddServer adds a real server at the head of a service's list (ipvsadm -a).
func (d *Director) AddServer(k lvs.ServiceKey, rs lvs.RealServer) error {
	d.applying.Lock()
	defer d.applying.Unlock()
	if err := d.refuseServerSources(k, rs); err != nil {
		return err
	}
	return d.onServer(k, rs, d.addServer)
}

func (d *Director) addServer(svc *service, rs lvs.RealServer) error {
	if find(svc.dests, rs.ServerKey) != nil {
		return lvs.ErrServerExists
	}
	dest := d.destination(svc, rs)
	svc.change(append([]*lvs.Destination{dest}, svc.dests...))
	return nil
}

// destination returns a server's entry for a service that has none of it: the one
// that it had before, or a new one.
func (d *Director) destination(svc *service, rs lvs.RealServer) *lvs.Destination {
	dest := find(svc.removed, rs.ServerKey)
	if dest == nil {
		old := d.dests.Load().all
		dest = lvs.NewDestination(svc.key, rs, uint32(len(old)))
		dest.Total.Store(&svc.stats)
		d.dests.Store(&destinations{append(slices.Clip(old), dest)})
	} else {
		svc.removed = without(svc.removed, dest)
		dest.Readd(rs)
	}
	d.servers.add(svc.key, dest)
	return dest
}

// EditServer changes a real server's weight, method and thresholds (ipvsadm
// -e).
func (d *Director) EditServer(k lvs.ServiceKey, rs lvs.RealServer) error {
	d.applying.Lock()
	defer d.applying.Unlock()
	if err := d.refuseServerSources(k, rs); err != nil {
		return err
	}
	return d.onServer(k, rs, editServer)
}

func editServer(svc *service, rs lvs.RealServer) error {
	dest := find(svc.dests, rs.ServerKey)
	if dest == nil {
		return lvs.ErrNoServer
	}
	dest.Edit(rs)
	svc.change(svc.dests)
	return nil
}

// onServer checks a server against its service and runs an edit under the
// service's lock.
func (d *Director) onServer(k lvs.ServiceKey, rs lvs.RealServer, edit func(*service, lvs.RealServer) error) error {
	svc := d.rules.Load().services[k]
	if svc == nil {
		return lvs.ErrNoService
	}
	svc.mu.Lock()
	defer svc.mu.Unlock()
	checked := svc.config
	checked.Servers = []lvs.RealServer{rs}
	if err := d.refuse(lvs.Ruleset{Services: []lvs.VirtualService{checked}}); err != nil {
		return err
	}
	return edit(svc, rs)
}

// DeleteServer removes a real server (ipvsadm -d). Its connections stay, unless
// expire_nodest_conn is set.
func (d *Director) DeleteServer(k lvs.ServiceKey, server lvs.ServerKey) error {
	d.applying.Lock()
	defer d.applying.Unlock()
	return d.deleteServer(k, server)
}

func (d *Director) deleteServer(k lvs.ServiceKey, server lvs.ServerKey) error {
	svc := d.rules.Load().services[k]
	if svc == nil {
		return lvs.ErrNoService
	}
	svc.mu.Lock()
	dest := find(svc.dests, server)
	if dest == nil {
		svc.mu.Unlock()
		return lvs.ErrNoServer
	}
	dest.SetAvailable(false)
	d.servers.remove(k, dest)
	svc.removed = append(svc.removed, dest)
	svc.change(without(svc.dests, dest))
	svc.mu.Unlock()
	d.purge([]*lvs.Destination{dest})
	return nil
}

// purge ends the connections of removed servers when expire_nodest_conn says
// so.
func (d *Director) purge(gone []*lvs.Destination) {
	if d.tunables.Load().ExpireNodestConn == 0 {
		return
	}
	lost := map[uint32]bool{}
	for _, dest := range gone {
		lost[dest.ID] = true
	}
	// Templates after connections: those that connections hold stay.
	for _, table := range []*conntrack.Table{d.table, d.templates} {
		table.RemoveIf(func(c *conntrack.Conn) bool { return lost[c.DestID] })
	}
}

// SetTimeouts changes the timeouts of TCP, of TCP after a FIN, and of UDP
// (ipvsadm --set); 0 keeps one as it is.
func (d *Director) SetTimeouts(tcp, tcpFin, udp time.Duration) { d.table.SetTimeouts(tcp, tcpFin, udp) }

// SetMarks replaces the rules that give packets firewall marks.
func (d *Director) SetMarks(marks []lvs.MarkRule) {
	d.applying.Lock()
	defer d.applying.Unlock()
	d.setMarks(marks)
}

func (d *Director) setMarks(marks []lvs.MarkRule) {
	d.rules.Store(newRules(d.rules.Load().services, slices.Clone(marks)))
	d.announce.Store(true)
}

// SetLocal names addresses, besides the VIPs, that the director answers for as
// a host without listeners does.
func (d *Director) SetLocal(prefixes []netip.Prefix) {
	copied := slices.Clone(prefixes)
	d.local.Store(&copied)
}

// refuse reports what is wrong with a ruleset, or with the engine for it.
func (d *Director) refuse(r lvs.Ruleset) error {
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
	return nil
}
