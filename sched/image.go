package sched

import (
	"slices"

	"pktdirector/image"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// Remembering is a Scheduler whose answer depends on more than its destinations:
// on its place in the round, or on what it gave before.
type Remembering interface {
	Scheduler
	// Carry writes what is remembered into an image of a director, or reads it
	// back. Destinations are named by their IDs; byID returns nil for one that
	// is not there. Update must have been called.
	Carry(x *image.Codec, byID func(uint32) *lvs.Destination)
}

// carryDest carries a destination by its ID; nil is 0.
func carryDest(x *image.Codec, d **lvs.Destination, byID func(uint32) *lvs.Destination) {
	var name uint64
	if *d != nil {
		name = uint64((*d).ID) + 1
	}
	image.Num(x, &name)
	if !x.Reads() {
		return
	}
	*d = nil
	if name == 0 {
		return
	}
	if name <= 1<<32 {
		*d = byID(uint32(name - 1))
	}
	if *d == nil {
		x.Fail("a scheduler remembers destination %d, which is not there", name-1)
	}
}

// Carry implements Remembering.
func (s *roundRobin) Carry(x *image.Codec, byID func(uint32) *lvs.Destination) {
	carryDest(x, &s.last, byID)
	if s.last != nil && !slices.Contains(s.dests, s.last) {
		x.Fail("rr stands at %s, which is not in its list", s.last.Server)
		s.last = nil
	}
}

// Carry implements Remembering.
func (s *weightedRoundRobin) Carry(x *image.Codec, _ func(uint32) *lvs.Destination) {
	image.Num(x, &s.at)
	image.Num(x, &s.level)
	if s.at < -1 || s.at >= max(len(s.dests), 1) || s.level < 0 || s.level > s.start {
		x.Fail("wrr stands at %d of %d, level %d of %d", s.at, len(s.dests), s.level, s.start)
		s.at, s.level = -1, s.start
	}
}

// Carry implements Remembering.
func (s *twoChoices) Carry(x *image.Codec, _ func(uint32) *lvs.Destination) { image.Num(x, &s.state) }

// Carry implements Remembering.
func (s *localityLeastConnection) Carry(x *image.Codec, byID func(uint32) *lvs.Destination) {
	s.memory.carry(x, func(x *image.Codec, d **lvs.Destination) {
		if carryDest(x, d, byID); x.Reads() && *d == nil {
			x.Fail("lblc remembers nothing for an address")
		}
	})
}

// Carry implements Remembering.
func (s *localityWithReplication) Carry(x *image.Codec, byID func(uint32) *lvs.Destination) {
	s.memory.carry(x, func(x *image.Codec, r *replicas) {
		image.Num(x, &r.changed)
		image.List(x, &r.members, 8, func(x *image.Codec, d **lvs.Destination) {
			if carryDest(x, d, byID); x.Reads() && *d == nil {
				x.Fail("lblcr remembers nothing for an address")
			}
		})
	})
}

// carry carries all entries; value carries what one remembers.
func (l *locality[E]) carry(x *image.Codec, value func(*image.Codec, *E)) {
	image.Num(x, &l.next)
	image.Num(x, &l.looks)
	if l.next < 0 {
		x.Fail("the next look at what is remembered is at %v", l.next)
		l.next = 0
	}
	n := x.Count(len(l.entries), 24)
	if !x.Reads() {
		for a, e := range l.entries {
			x.Addr(&a)
			image.Num(x, &e.used)
			value(x, &e.value)
		}
		return
	}
	l.entries = nil
	for range n {
		var a packet.Addr
		x.Addr(&a)
		e := l.add(a, 0)
		image.Num(x, &e.used)
		if value(x, &e.value); x.Err() != nil {
			return
		}
	}
}
