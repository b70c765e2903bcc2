package dataplane

import (
	"slices"
	"sync"
	"sync/atomic"

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
	// onePacket: datagrams are scheduled one by one. It may be read without mu.
	onePacket atomic.Bool

	mu        sync.Mutex
	config    lvs.VirtualService // without the servers
	scheduler sched.Scheduler    // nil: the service was removed
	dests     []*lvs.Destination // newest first
	removed   []*lvs.Destination // may come back, with counters and connections
	bounded   bool               // a server has an upper threshold
}

// rules is what packets are matched against; it is replaced as a whole.
type rules struct {
	services  map[lvs.ServiceKey]*service
	vips      map[packet.Addr]struct{}
	order     []packet.Addr            // the VIPs, sorted
	sources   map[packet.Addr]struct{} // of FullNAT services
	announced []packet.Addr            // VIPs and sources, sorted
	marks     []lvs.MarkRule           // the first that matches counts
	filter    vipFilter
}

// newRules indexes services.
func newRules(services map[lvs.ServiceKey]*service, marks []lvs.MarkRule) *rules {
	r := &rules{services: services, vips: map[packet.Addr]struct{}{}, marks: marks}
	written := lvs.Ruleset{Marks: marks}
	for key, svc := range services {
		written.Services = append(written.Services, lvs.VirtualService{ServiceKey: key, Sources: svc.config.Sources})
	}
	for _, vip := range written.VIPs() {
		r.vips[vip] = struct{}{}
	}
	sources := written.SourceAddrs()
	r.sources = map[packet.Addr]struct{}{}
	for _, a := range sources {
		r.sources[a] = struct{}{}
	}
	for vip := range r.vips {
		r.order = append(r.order, vip)
		word, mask := r.filter.bit(vip)
		r.filter[word] |= mask
	}
	slices.SortFunc(r.order, compareAddrs)
	r.announced = append(slices.Clone(r.order), sources...)
	slices.SortFunc(r.announced, compareAddrs)
	return r
}

func compareAddrs(a, b packet.Addr) int {
	switch {
	case a.Less(b):
		return -1
	case b.Less(a):
		return 1
	}
	return 0
}

// mark returns the packet's firewall mark, 0 for none.
func (r *rules) mark(p *packet.Packet) uint32 {
	for i := range r.marks {
		if r.marks[i].Matches(p) {
			return r.marks[i].Mark
		}
	}
	return 0
}

// match finds the service of a packet: by its firewall mark, then by address
// and port, then, for a port that data connections of FTP use, the FTP service
// of the address, then by address alone.
func (r *rules) match(p *packet.Packet, mark uint32) *service {
	f := &p.Flow
	if mark != 0 {
		if svc := r.services[lvs.ServiceKey{Mark: mark, V6: !f.Dst.Is4()}]; svc != nil {
			return svc
		}
	}
	key := lvs.ServiceKey{Proto: f.Proto, VIP: f.Dst, Port: f.DstPort}
	if svc := r.services[key]; svc != nil {
		return svc
	}
	if f.Proto == packet.TCP && (f.DstPort == ftpDataPort || f.DstPort >= unprivileged) {
		key.Port = ftpPort
		if svc := r.services[key]; svc != nil {
			return svc
		}
	}
	key.Port = 0
	return r.services[key]
}

// dataOfFTP reports whether a packet that the service was found for belongs to a
// data connection of FTP, whose control connections the service takes. Only a
// persistent service has a server for it.
func (s *service) dataOfFTP(f *packet.Flow) bool {
	return s.key.Mark == 0 && s.key.Port == ftpPort && f.DstPort != ftpPort
}

// destinations lists every destination that a connection can refer to.
// Entries are only ever added.
type destinations struct{ all []*lvs.Destination }

func (s *service) change(dests []*lvs.Destination) {
	s.dests, s.bounded = dests, anyBounded(dests)
	s.scheduler.Update(dests)
}

func find(dests []*lvs.Destination, key lvs.ServerKey) *lvs.Destination {
	i := slices.IndexFunc(dests, func(x *lvs.Destination) bool { return x.Server == key })
	if i < 0 {
		return nil
	}
	return dests[i]
}

func without(dests []*lvs.Destination, gone *lvs.Destination) []*lvs.Destination {
	return slices.DeleteFunc(slices.Clone(dests), func(x *lvs.Destination) bool { return x == gone })
}

// schedule chooses a destination for a new connection; e, unless nil, is filled in
// first. It returns nil when none is available.
func (s *service) schedule(req sched.Request, e *sched.Explanation) *lvs.Destination {
	if s.scheduler == nil {
		return nil // removed a moment ago
	}
	if e != nil {
		s.scheduler.Explain(req, e)
	}
	return s.scheduler.Schedule(req)
}

// bind counts a new connection of a destination.
func (s *service) bind(dest *lvs.Destination) {
	dest.Bind(false)
	s.stats.Conns.Add(1)
}
