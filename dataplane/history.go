package dataplane

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"pktdirector/packet"
)

// historyServers is for how many servers the history keeps why they won or lost; of
// a service with more it keeps who won.
const historyServers = 32

// Note is one thing that the history keeps: one of its three is there.
type Note struct {
	At       time.Duration // engine time
	Decision *Decision
	State    *StateChange
	Drop     *Drop
}

// history keeps the latest decisions and state changes in one ring, and the latest
// drops in another, so that a flood of drops pushes no connection out. Workers add to
// it with each new connection, and once a batch where one moved on or ended, or a
// packet was dropped. Its lock is taken last of all.
type history struct {
	mu    sync.Mutex
	conns ring[connNote]
	drops ring[dropNote]
}

// connNote is a decision, or else a state change.
type connNote struct {
	at       time.Duration
	decision bool
	Decision Decision
	State    StateChange
}

type dropNote struct {
	at   time.Duration
	Drop Drop
}

// ring keeps the latest of what is added. It takes memory as it fills, and none any more
// when it is full.
type ring[T any] struct {
	list []T
	most int
	next int // to write over, once it is full
}

// add returns where the next goes: what was there is to be written over.
func (r *ring[T]) add() *T {
	if len(r.list) < r.most {
		var none T
		r.list = append(r.list, none)
		return &r.list[len(r.list)-1]
	}
	at := &r.list[r.next]
	r.next = (r.next + 1) % r.most
	return at
}

// each yields all, the oldest first.
func (r *ring[T]) each(yield func(*T)) {
	for i := range r.list {
		yield(&r.list[(r.next+i)%len(r.list)])
	}
}

// dropShare is how many notes of connections stand beside one of drops.
const dropShare = 4

func (h *history) init(notes int) {
	h.conns.most, h.drops.most = notes, (notes+dropShare-1)/dropShare
}

func (h *history) on() bool { return h.conns.most > 0 }

// decided adds a decision. Its candidates are copied to where those of an older one
// were.
func (h *history) decided(now time.Duration, d *Decision) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.conns.add()
	room := n.Decision.Explanation.Candidates[:0]
	n.at, n.decision, n.Decision = now, true, *d
	if len(d.Explanation.Candidates) <= historyServers {
		room = append(room, d.Explanation.Candidates...)
	}
	n.Decision.Explanation.Candidates = room
}

// remember adds the other records of the worker's batch.
func (w *Worker) remember() {
	if len(w.States)+len(w.Drops) == 0 {
		return
	}
	h := &w.d.history
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range w.States {
		n := h.conns.add()
		n.at, n.decision, n.State = w.now, false, w.States[i]
	}
	for i := range w.Drops {
		if w.Drops[i].Flow.Src.IsValid() {
			*h.drops.add() = dropNote{w.now, w.Drops[i]}
		}
	}
}

// History returns what is kept of the connections from f's source, a client, to f's
// destination, a VIP, the oldest first. What an order of packets alone decides, an
// order of kinds does: decisions, state changes, drops.
func (d *Director) History(f packet.Flow) []Note {
	h := &d.history
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []Note
	h.conns.each(func(n *connNote) {
		switch {
		case n.decision && n.Decision.Flow == f:
			d := n.Decision
			d.Explanation.Candidates = slices.Clone(d.Explanation.Candidates)
			list = append(list, Note{At: n.at, Decision: &d})
		case !n.decision && n.State.flow() == f:
			s := n.State
			list = append(list, Note{At: n.at, State: &s})
		}
	})
	h.drops.each(func(n *dropNote) {
		if n.Drop.about(f) {
			d := n.Drop
			list = append(list, Note{At: n.at, Drop: &d})
		}
	})
	slices.SortStableFunc(list, func(a, b Note) int { return cmp.Compare(a.At, b.At) })
	return list
}

// flow is from the client to the VIP.
func (s *StateChange) flow() packet.Flow {
	return packet.Flow{Proto: s.Proto, Src: s.Client, SrcPort: s.ClientPort, Dst: s.Virtual, DstPort: s.VirtualPort}
}

// about reports whether the packet is of a connection of f, one way or the other. A
// reply has the real server's address, or the VIP.
func (d *Drop) about(f packet.Flow) bool {
	reply := d.Flow.Proto == f.Proto && d.Flow.Dst == f.Src && d.Flow.DstPort == f.SrcPort
	return d.Flow == f || reply && (d.Flow.Src == f.Dst || d.Server.RIP.IsValid() && (d.Service.VIP == f.Dst || d.Service.Mark != 0))
}
