package dataplane

import (
	"pktdirector/conntrack"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/sched"
)

// Outlook is what would become of a client's first packet.
type Outlook struct {
	Flow packet.Flow
	Mark uint32
	// Service is the one that the packet is for, found by Found; zero: none.
	Service lvs.ServiceKey
	Found   Found
	// Existing is the entry that the packet meets; Reopens: it would make way, and
	// the packet be scheduled anew.
	Existing *ConnStatus
	Reopens  bool
	// Template is the client's, which decides; nil: none. Abandoned: it is there and
	// would not count, since its server is gone or quiesced.
	Template  *ConnStatus
	Abandoned bool
	Decision  *Decision // how a server would be chosen; nil: it does not come to that
	Server    lvs.ServerKey
	Method    lvs.Method
	// Link is the index of the link that the packet would leave by, to NextHop, or
	// -1. Resolved: the next hop's MAC is known, or not needed.
	Link     int
	NextHop  packet.Addr
	Resolved bool
	// Verdict is the one the packet would get; Forwarded where it would go. Throttled:
	// drop_packet is at work and drops one in so many; Full: as many connections as may
	// be are there, so another would have to make way.
	Verdict   Verdict
	Throttled int64
	Full      bool
}

// Foresee tells what would become of the packet p, a client's first, if it came now.
// It changes nothing: no entry, count, scheduler's place or neighbour. p was parsed. What
// is decided by chance or by what other packets do meanwhile may come otherwise.
func (d *Director) Foresee(p *packet.Packet) Outlook {
	w := d.NewWorker()
	w.now = d.Now()
	o := Outlook{Flow: p.Flow, Link: -1}
	o.Verdict = w.foresee(p, &o)
	return o
}

// foresee goes the way of step, connection, start and forward.
func (w *Worker) foresee(p *packet.Packet, o *Outlook) Verdict {
	rules := w.d.rules.Load()
	if w.d.standby.Load() {
		return StandingBy
	}
	if len(rules.services) == 0 {
		return w.foreseeUnknown(p, false)
	}
	if w.d.localVIPs && !w.d.serves(p.Flow.Dst) {
		return NotOurs
	}
	slot := w.d.table.Lock(p.Flow.Proto, p.Flow.Src, p.Flow.SrcPort)
	defer slot.Unlock()
	if c := slot.Request(&p.Flow); c != nil && c.Flags&conntrack.NoClientPort == 0 {
		there := statusOf(w.d.table, c)
		o.Existing = &there
		dest := w.d.dests.Load().all[c.DestID]
		if o.Reopens = w.reopens(c, p); !o.Reopens {
			o.Service, o.Server, o.Method = dest.Service, lvs.ServerKey{RIP: c.Dest, Port: c.DestPort}, c.Method
			if !dest.Available() {
				return DestinationGone
			}
			return w.foreseeWay(p, c, o)
		}
	}
	o.Mark = rules.mark(p)
	svc := rules.match(p, o.Mark)
	if svc == nil || !w.mayStart(p) {
		return w.foreseeUnknown(p, svc != nil)
	}
	o.Service, o.Found = svc.key, foundBy(svc.key, &p.Flow)
	if w.forged(p) {
		return ForgedSource
	}
	o.Throttled, o.Full = w.throttling(), w.d.table.Len() >= w.d.table.Max()
	dest, persistent, refused := w.foreseeChoice(svc, p, o)
	if dest == nil {
		if refused == NoService {
			return w.foreseeUnknown(p, false)
		}
		return refused
	}
	c := w.entryFor(svc.key, persistent, dest, &p.Flow)
	o.Server, o.Method = lvs.ServerKey{RIP: c.Dest, Port: c.DestPort}, c.Method
	if taken := slot.Reply(&packet.Flow{Proto: c.Proto, Src: c.Dest, SrcPort: c.DestPort, Dst: c.Client, DstPort: c.ClientPort}); c.Method == lvs.Masq && taken != nil && (o.Existing == nil || taken.Virtual != c.Virtual || taken.VirtualPort != c.VirtualPort) {
		return ReplyTaken
	}
	return w.foreseeWay(p, &c, o)
}

// foreseeChoice tells which destination a new connection would get, and whether of a
// persistent service; without one, the verdict.
func (w *Worker) foreseeChoice(svc *service, p *packet.Packet, o *Outlook) (dest *lvs.Destination, persistent bool, refused Verdict) {
	svc.mu.Lock()
	defer svc.mu.Unlock()
	persistent = svc.config.Persist > 0
	if svc.scheduler == nil || svc.dataOfFTP(&p.Flow) && !persistent {
		return nil, persistent, NoService
	}
	o.Decision = &Decision{Service: svc.key, Mark: o.Mark, Flow: p.Flow, Found: o.Found}
	if persistent {
		key := templateFlow(&svc.config, &p.Flow)
		slot := w.d.templates.Lock(key.Proto, key.Src, 0)
		defer slot.Unlock()
		if t := slot.Request(&key); t != nil {
			there := statusOf(w.d.templates, t)
			o.Template = &there
			if o.Abandoned = !w.valid(t); !o.Abandoned {
				dest = w.d.dests.Load().all[t.DestID]
				o.Decision.Template, o.Decision.Pick = true, dest
				sched.Bound(svc.dests, dest, &o.Decision.Explanation)
				return dest, true, pending
			}
		}
	}
	svc.scheduler.Explain(w.request(&p.Flow), &o.Decision.Explanation)
	o.Decision.Pick = o.Decision.Explanation.Picked()
	return o.Decision.Pick, persistent, NoDestination
}

// foreseeWay tells how a packet would go on to its connection's server.
func (w *Worker) foreseeWay(p *packet.Packet, c *conntrack.Conn, o *Outlook) Verdict {
	switch {
	case c.Flags&conntrack.Local != 0:
		if at := w.hostLink(); at >= 0 && c.DestPort == c.VirtualPort {
			o.Link, o.Resolved = at, true
			return Delivered
		}
		return LocalNode
	case c.Method == lvs.Masq && c.Client == c.Dest:
		return Hairpin
	}
	hop, ok := w.nextHop(c.Dest, p)
	if !ok {
		return NoRoute
	}
	o.Link, o.NextHop, o.Resolved = hop.link, hop.addr, hop.layer3
	if hop.layer3 && c.Method == lvs.Route {
		return NeedsEthernet
	}
	if !hop.layer3 {
		_, o.Resolved, _ = w.mac(neighbourKey{hop.addr, hop.link, hop.vlan})
	}
	return Forwarded
}

// foreseeUnknown is unknown without an answer.
func (w *Worker) foreseeUnknown(p *packet.Packet, served bool) Verdict {
	switch {
	case !w.d.serves(p.Flow.Dst), !served && w.d.host.Load().owns(p.Flow.Dst):
		return NotOurs
	case w.forged(p):
		return ForgedSource
	case served:
		return NoConnection
	}
	return NoService
}
