package dataplane

import (
	"sync"

	"pktdirector/conntrack"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/sched"
)

// Observed says of what workers keep records, for those who watch. Nothing is
// kept, and next to nothing done, while nobody does.
type Observed uint32

// What can be observed.
const (
	ObserveDecisions Observed = 1 << iota // Worker.Decisions
	ObserveStates                         // Worker.States
	ObserveDrops                          // Worker.Drops
	ObservePackets                        // Worker.Packets
)

// Observe has workers keep records of these from their next batch on, and of
// nothing else but what Options.Decisions says.
func (d *Director) Observe(what Observed) {
	if d.observed.Swap(uint32(what))&uint32(ObserveStates) == 0 && !d.history.on() {
		d.endings.take(nil) // of the last time
	}
}

// StateChange is a connection that began, moved on to another state, or ended.
type StateChange struct {
	Service                           lvs.ServiceKey // whose server the connection has
	Proto                             packet.Proto
	Client, Virtual, Dest             packet.Addr
	ClientPort, VirtualPort, DestPort uint16
	Before, After                     conntrack.State // the same where Ended
	Direction                         conntrack.Direction
	Began, Ended                      bool
}

// Drop is a packet that went nowhere.
type Drop struct {
	Verdict Verdict
	Flow    packet.Flow // zero where it was not read: an ARP packet, one cut short
	// Service and Server are those of the packet's connection; where it has none,
	// Service is the one that the packet was for. Zero: none.
	Service  lvs.ServiceKey
	Server   lvs.ServerKey
	Decision uint64 // Decision.ID, where the packet led to one
	Flags    uint8  // of TCP
	Bytes    int    // IP length of what there was of it
}

// Records reports whether the worker keeps records of its last batch.
func (w *Worker) Records() bool {
	return len(w.Decisions)+len(w.States)+len(w.Drops)+len(w.Packets) > 0 || w.Missed > 0
}

// beginRecords forgets the last batch's.
func (w *Worker) beginRecords() {
	w.observed = Observed(w.d.observed.Load())
	w.listened = w.observed
	if w.d.history.on() {
		w.observed |= ObserveStates | ObserveDrops
	}
	w.Decisions, w.States, w.Drops, w.Missed = w.Decisions[:0], w.States[:0], w.Drops[:0], 0
	w.Packets, w.seen = w.Packets[:0], w.seen[:0]
	w.about.packet = nil
}

// endRecords adds the ends of connections that are not a packet's doing.
func (w *Worker) endRecords() {
	if w.observed&ObserveStates != 0 {
		w.States, w.Missed = w.d.endings.take(w.States)
	}
	if w.d.history.on() {
		w.remember()
	}
	if w.observed&ObservePackets != 0 {
		w.seeOut()
	}
}

func (w *Worker) observeDrop(p *packet.Packet, v Verdict) {
	if w.observed&ObserveDrops == 0 || !v.Drop() {
		return
	}
	drop := Drop{Verdict: v, Bytes: p.Len()}
	if v != Truncated && p.EtherType != packet.EtherARP && p.Flow.Src.IsValid() {
		drop.Flow, drop.Flags = p.Flow, p.TCPFlags
		rules := w.d.rules.Load()
		switch svc := rules.match(p, rules.mark(p)); {
		case w.about.packet == p && w.about.dest != nil:
			drop.Service, drop.Server = w.about.dest.Service, w.about.dest.Server
		case svc != nil:
			drop.Service = svc.key
		}
		if w.about.packet == p {
			drop.Decision = w.about.decision
		}
	}
	w.Drops = append(w.Drops, drop)
}

// about is what the engine found out about the packet that it has at hand.
type about struct {
	packet   *packet.Packet // of another packet, nothing here counts
	dest     *lvs.Destination
	decision uint64 // Decision.ID; 0: it led to none
	// With ObservePackets, its connection, and the state that it found it in.
	conn   conntrack.Conn
	dir    conntrack.Direction
	before conntrack.State
}

// beginDecision returns where the decision about a new connection is kept; nil where
// nobody wants it. What only the history wants is written over with the next one.
func (w *Worker) beginDecision(p *packet.Packet) *Decision {
	var d *Decision
	switch {
	case w.wantDecisions():
		d = new(Decision)
	case w.d.history.on():
		w.scratchDecision = Decision{Explanation: sched.Explanation{Candidates: w.scratchDecision.Explanation.Candidates[:0]}}
		d = &w.scratchDecision
	default:
		return nil
	}
	d.ID = w.d.decided.Add(1)
	w.about.packet, w.about.dest, w.about.decision = p, nil, d.ID
	return d
}

func (w *Worker) endDecision(d *Decision) {
	if w.wantDecisions() {
		w.Decisions = append(w.Decisions, *d)
	}
	if w.d.history.on() {
		w.d.history.decided(w.now, d)
	}
}

func (w *Worker) wantDecisions() bool { return w.d.decisions || w.listened&ObserveDecisions != 0 }

// explained is the decision if it is to tell of every candidate: where somebody asks
// for it, or few of them make it cheap.
func (w *Worker) explained(svc *service, d *Decision) *Decision {
	if w.wantDecisions() || len(svc.dests) <= historyServers {
		return d
	}
	return nil
}

// noteConnection keeps what connection the packet is of.
func (w *Worker) noteConnection(p *packet.Packet, c *conntrack.Conn, dest *lvs.Destination, dir conntrack.Direction) {
	if w.about.packet != p { // few stores: the history has each packet come by here
		w.about.packet, w.about.decision = p, 0
	}
	w.about.dest = dest
	if w.observed&ObservePackets != 0 {
		w.about.conn, w.about.dir, w.about.before = *c, dir, c.State
	}
}

// noteState keeps the state that the packet moved its connection on to.
func (w *Worker) noteState(c *conntrack.Conn) { w.about.conn.State = c.State }

func (w *Worker) observeState(c *conntrack.Conn, dest *lvs.Destination, was conntrack.State, dir conntrack.Direction) {
	if w.observed&ObserveStates == 0 {
		return
	}
	s := changeOf(c, dest)
	s.Before, s.After, s.Direction, s.Began = was, c.State, dir, was == conntrack.None || was == conntrack.SCTPNone
	w.States = append(w.States, s)
}

func changeOf(c *conntrack.Conn, dest *lvs.Destination) StateChange {
	return StateChange{
		Service: dest.Service, Proto: c.Proto, Client: c.Client, Virtual: c.Virtual, Dest: c.Dest,
		ClientPort: c.ClientPort, VirtualPort: c.VirtualPort, DestPort: c.DestPort,
		Before: c.State, After: c.State,
	}
}

// observeEnd notes a connection that expired, made way or was removed.
func (d *Director) observeEnd(c *conntrack.Conn) {
	if Observed(d.observed.Load())&ObserveStates == 0 && !d.history.on() || c.State == conntrack.None {
		return
	}
	s := changeOf(c, d.dests.Load().all[c.DestID])
	s.Ended = true
	d.endings.add(s)
}

// endings wait for the next worker that is done with a batch: a connection ends
// wherever its shard's lock is held.
type endings struct {
	mu   sync.Mutex
	list []StateChange
	lost uint64
}

// maxEndings is how many wait; those beyond are counted.
const maxEndings = 4096

func (e *endings) add(s StateChange) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.list) == maxEndings {
		e.lost++
		return
	}
	e.list = append(e.list, s)
}

// take appends what waits to list.
func (e *endings) take(list []StateChange) ([]StateChange, uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	list = append(list, e.list...)
	lost := e.lost
	e.list, e.lost = e.list[:0], 0
	return list, lost
}

// Drop reports whether a packet with the verdict goes nowhere: it is neither sent
// on, nor answered, nor left to the host or to another machine, nor noted.
func (v Verdict) Drop() bool {
	switch v {
	case pending, Forwarded, Replied, ErrorForwarded, TunnelError, AnsweredARP, AnsweredND, AnsweredEcho, Learned,
		NotOurs, OtherHost, Outgoing, Reassembled, LocalNode, StandingBy:
		return false
	}
	return true
}
