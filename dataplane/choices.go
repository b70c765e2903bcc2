package dataplane

import (
	"sync/atomic"

	"pktdirector/conntrack"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/sched"
)

// Choices counts how servers were chosen for new connections. Each choice is one
// of Scheduled, Fallback, Template and None. An operator's reset of counters
// (ipvsadm -Z) leaves them alone.
type Choices struct {
	Scheduled uint64 // the scheduler chose
	Fallback  uint64 // the scheduler chose another place of its table than the client's (sh-fallback, mh-fallback)
	Template  uint64 // the client's template decided
	None      uint64 // no server was available

	// Overloaded counts the scheduler's choices for which a server with weight
	// above 0 was left out, since it was over its upper threshold.
	Overloaded uint64
	// Abandoned counts the clients that got another server than their
	// template's, which was removed, or quiesced with expire_quiescent_template.
	Abandoned uint64
	// Reused counts the connections that were over and began anew by
	// conn_reuse_mode, Expired those that expire_nodest_conn ended when their
	// client sent on.
	Reused, Expired uint64
}

// choices are the counters behind Choices. Only packets without a connection
// touch them.
type choices struct {
	scheduled, fallback, template, none    atomic.Uint64
	overloaded, abandoned, reused, expired atomic.Uint64
}

// Choices reads how servers were chosen since the engine's start.
func (d *Director) Choices() Choices {
	c := &d.choices
	return Choices{
		Scheduled: c.scheduled.Load(), Fallback: c.fallback.Load(), Template: c.template.Load(), None: c.none.Load(),
		Overloaded: c.overloaded.Load(), Abandoned: c.abandoned.Load(), Reused: c.reused.Load(), Expired: c.expired.Load(),
	}
}

// choose has the service's scheduler choose, and counts how. svc.mu is held.
func (w *Worker) choose(svc *service, f *packet.Flow, d *Decision) *lvs.Destination {
	c := &w.d.choices
	if svc.bounded && anyOverloaded(svc.dests) {
		c.overloaded.Add(1)
	}
	dest := svc.schedule(w.request(f), d.explain())
	switch {
	case dest == nil:
		c.none.Add(1)
	case sched.FellBack(svc.scheduler):
		c.fallback.Add(1)
	default:
		c.scheduled.Add(1)
	}
	return dest
}

// anyOverloaded reports whether a threshold alone keeps one of the servers from
// new connections.
func anyOverloaded(dests []*lvs.Destination) bool {
	for _, d := range dests {
		if d.Overloaded() && d.Weight() > 0 {
			return true
		}
	}
	return false
}

// anyBounded reports whether one of the servers has an upper threshold.
func anyBounded(dests []*lvs.Destination) bool {
	for _, d := range dests {
		if upper, _ := d.Thresholds(); upper != 0 {
			return true
		}
	}
	return false
}

// reopened counts an entry that made way for its client's new connection.
func (w *Worker) reopened(c *conntrack.Conn) {
	dest := w.d.dests.Load().all[c.DestID]
	if w.d.tunables.Load().ExpireNodestConn != 0 && (!dest.Available() || dest.Weight() == 0) {
		w.d.choices.expired.Add(1)
		return
	}
	w.d.choices.reused.Add(1)
}
