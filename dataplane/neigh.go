package dataplane

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"pktdirector/packet"
)

// Limits of the neighbour cache.
const (
	// neighbourQueue is how many packets wait for one neighbour's answer.
	neighbourQueue = 32
	// neighbourWaiting is how many packets wait altogether.
	neighbourWaiting = 1024
	// neighbourEntries is how many neighbours are remembered.
	neighbourEntries = 16384
	// neighbourAsking is how many unknown neighbours are asked for at a time.
	// Whoever makes the director talk to addresses that nobody has fills no
	// more than that.
	neighbourAsking = 512
	// neighbourSearch is how many entries are looked at for one to forget.
	neighbourSearch = 64
	// askEvery is the time between two requests for one neighbour.
	askEvery = time.Second
	// askTimes is how many requests stay unanswered before the waiting
	// packets are dropped.
	askTimes = 3
	// confirmedFor is how long an answer is trusted before the neighbour is
	// asked again, while its old address stays in use.
	confirmedFor = 30 * time.Second
)

// neighbourKey is a next hop on one link (and VLAN, where the link has many).
type neighbourKey struct {
	addr packet.Addr
	link int
	vlan uint16
}

type neighbour struct {
	mac       packet.MAC
	known     bool
	fromHost  bool // the host's kernel said so; no answer of its own yet
	permanent bool // the operator said so, on the host: never asked for, never overridden
	vital     bool // a gateway, or the way to a real server: outside the limits that strangers fill
	confirmed time.Duration
	asked     time.Duration
	tries     int
	waiting   []*packet.Packet
}

// neighbours finds the MAC of a next hop. What the host's kernel knows is
// taken as a hint; otherwise the engine asks by ARP or ND itself, once a second,
// while a bounded number of packets waits. Whoever was asked and whoever
// announces itself (gratuitous ARP) is believed, the latest last.
type neighbours struct {
	mu      sync.RWMutex
	entries map[neighbourKey]*neighbour
	waiting int           // packets that wait for neighbours that are not vital
	now     time.Duration // of the latest packet or tick
	open    int           // entries that are being asked for
	woken   bool          // the host found one that packets wait for
	changes atomic.Uint64 // of MACs that were known, counted under mu
}

func (n *neighbours) init() { n.entries = map[neighbourKey]*neighbour{} }

// Learn takes a hint from the host's neighbour table. It never overrides an
// answer that the engine got itself and still trusts.
func (d *Director) Learn(hint Neighbour) {
	n := &d.neighbours
	n.mu.Lock()
	defer n.mu.Unlock()
	key := neighbourKey{hint.Addr, hint.Link, hint.VLAN}
	e := n.entries[key]
	switch {
	case hint.MAC.IsZero():
		if e != nil && e.fromHost {
			e.known, e.fromHost, e.permanent = false, false, false
			n.changes.Add(1)
		}
	case e == nil:
		if e = n.add(key, hint.Permanent); e != nil {
			e.mac, e.known, e.fromHost, e.permanent, e.confirmed = hint.MAC, true, true, hint.Permanent, n.now
		}
	case hint.Permanent || !e.known || e.fromHost || n.now-e.confirmed > confirmedFor:
		// Packets that wait leave at the next tick.
		e.mac, e.known, e.fromHost, e.permanent, e.confirmed = hint.MAC, true, true, hint.Permanent, n.now
		if e.tries > 0 {
			e.tries = 0
			n.open--
		}
		n.woken = true
		n.changes.Add(1)
	}
}

// lookup returns a neighbour's MAC, and the engine time at which it should be
// asked for again.
func (n *neighbours) lookup(key neighbourKey) (mac packet.MAC, until time.Duration, known bool) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	e := n.entries[key]
	if e == nil || !e.known {
		return packet.MAC{}, 0, false
	}
	if e.permanent {
		return e.mac, math.MaxInt64, true
	}
	return e.mac, e.confirmed + confirmedFor + 1, true
}

// add makes an entry. One that must be there always has room; another takes
// the place of one that can be spared when there are too many, or is nil. n.mu is
// held.
func (n *neighbours) add(key neighbourKey, must bool) *neighbour {
	if !must && len(n.entries) >= neighbourEntries && !n.forgetOne() {
		return nil
	}
	e := &neighbour{}
	n.entries[key] = e
	return e
}

// remove forgets an entry. n.mu is held.
func (n *neighbours) remove(key neighbourKey) {
	delete(n.entries, key)
	n.changes.Add(1)
}

// send puts a packet on its way to the next hop: at once, or when the
// neighbour has answered.
func (w *Worker) send(p *packet.Packet, h hop, done Verdict) Verdict {
	p.Link = h.link
	p.Tagged = h.vlan != 0
	if h.layer3 {
		w.out = append(w.out, p)
		return done
	}
	key := neighbourKey{h.addr, h.link, h.vlan}
	mac, known, stale := w.mac(key)
	if !known {
		return w.wait(p, key, h.vital, done)
	}
	if stale {
		w.refresh(key)
	}
	p.DstMAC = mac
	w.out = append(w.out, p)
	return done
}

// wait queues a copy of p until the neighbour answers, and asks for it if
// nobody did within a second. The limits of all unknown neighbours together do
// not hold for vital ones, of which there are no more than the operator has
// servers and gateways.
func (w *Worker) wait(p *packet.Packet, key neighbourKey, vital bool, done Verdict) Verdict {
	n := &w.d.neighbours
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.entries[key]
	if e == nil {
		if !vital && n.open >= neighbourAsking {
			return NeighbourQueueFull
		}
		if e = n.add(key, vital); e == nil {
			return NeighbourQueueFull
		}
	}
	n.setVital(e, vital)
	if e.known { // answered a moment ago
		p.DstMAC = e.mac
		w.out = append(w.out, p)
		return done
	}
	w.ask(key, e)
	if len(e.waiting) >= neighbourQueue || !e.vital && n.waiting >= neighbourWaiting {
		return NeighbourQueueFull
	}
	kept := new(packet.Packet)
	kept.CopyFrom(p) // p's bytes may be a ring slot
	kept.Verdict = uint8(done)
	e.waiting = append(e.waiting, kept)
	if !e.vital {
		n.waiting++
	}
	return pending
}

// setVital notes that an entry turned out to be vital: what waits for it does
// not count any more. n.mu is held.
func (n *neighbours) setVital(e *neighbour, vital bool) {
	if vital && !e.vital {
		e.vital = true
		n.waiting -= len(e.waiting)
	}
}

// unwait takes the packets that waited for an entry. n.mu is held.
func (n *neighbours) unwait(e *neighbour) []*packet.Packet {
	list := e.waiting
	e.waiting = nil
	if !e.vital {
		n.waiting -= len(list)
	}
	return list
}

// refresh asks for a neighbour whose address was not confirmed for a while.
func (w *Worker) refresh(key neighbourKey) {
	n := &w.d.neighbours
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.entries[key]
	if e == nil || e.permanent || w.now-e.confirmed <= confirmedFor {
		return
	}
	w.ask(key, e)
}

// ask sends a request for a neighbour unless one went out within the last
// second. n.mu is held.
func (w *Worker) ask(key neighbourKey, e *neighbour) {
	n := &w.d.neighbours
	if e.tries > 0 && w.now-e.asked < askEvery {
		return
	}
	if e.tries == 0 {
		n.open++
	}
	e.asked = w.now
	e.tries++
	w.solicit(key)
}

// askNeighbours asks again for neighbours that did not answer, gives up on
// those that were asked often enough, and sends what waits for a neighbour that
// the host has found meanwhile.
func (w *Worker) askNeighbours() {
	n := &w.d.neighbours
	n.mu.Lock()
	defer n.mu.Unlock()
	n.now = max(n.now, w.now)
	if n.open == 0 && !n.woken {
		return
	}
	n.woken = false
	for key, e := range n.entries {
		if e.known && len(e.waiting) > 0 {
			w.release(e)
		}
		if !e.known && e.tries == 0 && len(e.waiting) > 0 {
			w.ask(key, e) // the host found it and lost it again
			continue
		}
		if e.tries == 0 || w.now-e.asked < askEvery {
			continue
		}
		if e.tries < askTimes && (!e.known || w.now-e.confirmed > confirmedFor) {
			w.ask(key, e)
			continue
		}
		e.tries = 0
		n.open--
		if e.known && w.now-e.confirmed <= confirmedFor {
			continue
		}
		for _, p := range n.unwait(e) {
			if Verdict(p.Verdict) != pending { // not of the engine's own
				w.settle(p, NoNeighbour)
			}
		}
		n.remove(key)
	}
}

// forgetOne makes room by forgetting a neighbour that nothing waits for: never
// a vital one, nor one that the operator made permanent.
func (n *neighbours) forgetOne() bool {
	looked := 0
	for key, e := range n.entries {
		if len(e.waiting) == 0 && e.tries == 0 && !e.vital && !e.permanent {
			n.remove(key)
			return true
		}
		if looked++; looked == neighbourSearch {
			return false
		}
	}
	return false
}

// confirm notes that a neighbour of interest has this MAC, and sends what
// waited for it. Machines that the director never sends to are not noted,
// unless they ask for a VIP: those are about to talk to it.
func (w *Worker) confirm(key neighbourKey, mac packet.MAC, asksForVIP bool) bool {
	n := &w.d.neighbours
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.entries[key]
	if e == nil && asksForVIP {
		e = n.add(key, false)
	}
	if e == nil || e.permanent {
		return false
	}
	if !e.known || e.mac != mac {
		n.changes.Add(1)
	}
	e.mac, e.known, e.fromHost, e.confirmed = mac, true, false, w.now
	if e.tries > 0 {
		e.tries = 0
		n.open--
	}
	w.release(e)
	return true
}

// release sends the packets that waited for e, in order. n.mu is held.
func (w *Worker) release(e *neighbour) {
	for _, p := range w.d.neighbours.unwait(e) {
		p.DstMAC = e.mac
		w.out = append(w.out, p)
		w.settle(p, Verdict(p.Verdict))
	}
}
