package sched

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"pktdirector/lvs"
	"pktdirector/packet"
)

// Housekeeping of lblc and lblcr.
const (
	localityEvery = 60 * time.Second // between two looks at the entries
	localityFull  = 30               // looks between two that drop what is long unused
	localityLimit = 16 * 1024        // entries that may stay; above, idle ones go
	localityIdle  = 6 * time.Minute  // how long those must be unused
)

// overloadedFor reports whether d has more active connections than its weight
// while another destination has fewer than half its own: then locality gives
// way. Weights are connection capacities here.
func overloadedFor(d *lvs.Destination, dests []*lvs.Destination) bool {
	if d.Active() <= d.Weight() {
		return false
	}
	for _, other := range dests {
		if other.Active()*2 < other.Weight() {
			return true
		}
	}
	return false
}

// locality remembers something per destination address, and forgets what is
// not used.
type locality[E any] struct {
	entries map[packet.Addr]*localEntry[E]
	next    time.Duration // of the next look
	looks   int
}

type localEntry[E any] struct {
	value E
	used  time.Duration
}

func (l *locality[E]) find(a packet.Addr, now time.Duration) *localEntry[E] {
	e := l.entries[a]
	if e != nil {
		e.used = now
	}
	return e
}

func (l *locality[E]) add(a packet.Addr, now time.Duration) *localEntry[E] {
	if l.entries == nil {
		l.entries = map[packet.Addr]*localEntry[E]{}
	}
	e := &localEntry[E]{used: now}
	l.entries[a] = e
	return e
}

// peek returns the entry that find would after the housekeeping due by now. It
// changes nothing.
func (l *locality[E]) peek(a packet.Addr, now, old time.Duration) *localEntry[E] {
	if l.next > now || len(l.entries) == 0 {
		return l.entries[a]
	}
	tidied := locality[E]{maps.Clone(l.entries), l.next, l.looks}
	tidied.tidy(now, old)
	return tidied.entries[a]
}

// tidy does the housekeeping that is due by now; entries unused for longer than
// old go.
func (l *locality[E]) tidy(now, old time.Duration) {
	if l.next == 0 || len(l.entries) == 0 {
		l.next = now + localityEvery
		return
	}
	for ; l.next <= now; l.next += localityEvery {
		l.looks++
		switch {
		case l.looks%localityFull == 0:
			l.drop(l.next, old, len(l.entries))
		case len(l.entries) > localityLimit:
			over := len(l.entries) - localityLimit
			l.drop(l.next, localityIdle, min(over*4/3, localityLimit/2))
		}
		if len(l.entries) == 0 {
			l.next = now
		}
	}
}

// drop forgets up to n entries that were unused for more than idle, the
// longest unused first.
func (l *locality[E]) drop(now, idle time.Duration, n int) {
	var unused []packet.Addr
	for a, e := range l.entries {
		if now-e.used > idle {
			unused = append(unused, a)
		}
	}
	if len(unused) > n {
		slices.SortFunc(unused, func(a, b packet.Addr) int {
			if c := cmp.Compare(l.entries[a].used, l.entries[b].used); c != 0 {
				return c
			}
			if a.Less(b) { // never by chance
				return -1
			}
			return 1
		})
		unused = unused[:n]
	}
	for _, a := range unused {
		delete(l.entries, a)
	}
}

// localityLeastConnection is lblc, for caches: each destination address stays
// with the destination it was first given to (by wlc) while that is available,
// has a weight and is not overloaded in the sense of overloadedFor.
type localityLeastConnection struct {
	dests  []*lvs.Destination
	memory locality[*lvs.Destination]
}

func (s *localityLeastConnection) Update(dests []*lvs.Destination) { s.dests = dests }

// remembered returns the entry's destination if it may still be used.
func (s *localityLeastConnection) remembered(e *localEntry[*lvs.Destination]) *lvs.Destination {
	if e == nil {
		return nil
	}
	if d := e.value; d.Available() && d.Weight() > 0 && !overloadedFor(d, s.dests) {
		return d
	}
	return nil
}

func (s *localityLeastConnection) Schedule(r Request) *lvs.Destination {
	s.memory.tidy(r.Now, r.LBLCExpiration)
	e := s.memory.find(r.Flow.Dst, r.Now)
	if d := s.remembered(e); d != nil {
		return d
	}
	d := cheapest(s.dests, wlcCost)
	if d == nil {
		return nil
	}
	if e == nil {
		e = s.memory.add(r.Flow.Dst, r.Now)
	}
	e.value = d
	return d
}

func (s *localityLeastConnection) Explain(r Request, e *Explanation) {
	pick := s.remembered(s.memory.peek(r.Flow.Dst, r.Now, r.LBLCExpiration))
	if pick == nil {
		explainCheapest(s.dests, wlcCost, wlcFormula, e)
		e.Rule = "no destination is bound to this address, or it gives way: " + e.Rule
		return
	}
	e.Rule, e.Tie = "the destination that this destination address is bound to", "there are none: an address has one destination"
	e.each(s.dests, func(d *lvs.Destination, c *Candidate) {
		c.Why = "the destination address is bound to another"
		c.Score = wlcCost(d)
	})
	e.pick(pick, "the destination address is bound to it")
}
