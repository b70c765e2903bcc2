package conntrack

import (
	"errors"
	"math/bits"
	"sync/atomic"

	"pktdirector/packet"
)

// ErrTableFull is returned by Insert when the table holds as many entries as it
// may and none of them is worth less than a new one.
var ErrTableFull = errors.New("conntrack: the table is full of established connections")

// DefaultMax is the largest number of entries of a table that was not given
// another.
const DefaultMax = 1 << 20

// BytesPerEntry is the memory an entry needs at most, with its share of index
// and pages.
const BytesPerEntry = 256

// rank tells which entries make way in a full table, the worthless first.
type rank uint8

const (
	// kept entries never make way for others: established connections,
	// templates in use, and those of clients that proved to be real.
	kept rank = iota
	// halfOpen: nobody has proved yet to be real. A flood consists of these.
	// An entry that left the handshake by a FIN or RST stays half-open.
	halfOpen
	// finished: both sides, or an RST, ended an established connection.
	finished
	numRanks
)

// line is a queue of a shard's entries of one rank: the half-open by age, the
// finished by their last packet. Handles; 0: none.
type line struct{ first, last uint32 }

// limit bounds the number of a table's entries.
type limit struct {
	most    atomic.Int64
	entries atomic.Int64
	evicted atomic.Uint64
	// filled has, for each rank, a bit for each shard whose line has
	// entries, so that one is found without a search through shards.
	filled [numRanks][]atomic.Uint64
}

func (l *limit) init(shards int) {
	l.most.Store(DefaultMax)
	for r := range l.filled {
		l.filled[r] = make([]atomic.Uint64, (shards+63)/64)
	}
}

// SetMax sets the largest number of entries, from 1. A table that holds more
// does not lose any at once: as entries are made, two half-open ones end for
// each.
func (t *Table) SetMax(n int) { t.limit.most.Store(int64(max(n, 1))) }

// Max returns the largest number of entries.
func (t *Table) Max() int { return int(t.limit.most.Load()) }

// Evicted returns how many entries had to make way for new ones.
func (t *Table) Evicted() uint64 { return t.limit.evicted.Load() }

// Room reports whether an entry can be added, and sees to it: in a full table
// the oldest half-open entry of the slot's shard ends, or that of another; if
// there is none, the connection that ended longest ago.
func (l Slot) Room() bool {
	most := l.t.limit.most.Load()
	for range evictions {
		if l.t.limit.entries.Load() < most {
			return true
		}
		if !l.t.evict(l.s) {
			return false
		}
	}
	return l.t.limit.entries.Load() < most
}

// evictions is how many entries may end for a new one. It is more than one for
// a table whose limit was lowered to shrink.
const evictions = 2

// admit counts a new entry, or reports that there is no room for it. own is
// locked.
func (t *Table) admit(own *shard) bool {
	n, most := t.limit.entries.Add(1), t.limit.most.Load()
	for i := 0; n > most && i < evictions && t.evict(own); i++ {
		n = t.limit.entries.Load()
	}
	if n > most {
		t.limit.entries.Add(-1)
	}
	return n <= most
}

// evict ends the entry that is worth least. own is locked; no other shard is
// waited for, so two workers that look into each other's shards do not block.
func (t *Table) evict(own *shard) bool {
	for r := halfOpen; r < numRanks; r++ {
		if t.evictFirst(own, r) {
			return true
		}
		words := t.limit.filled[r]
		for i := range words {
			// Beginning behind own, so that no shard is plundered by all.
			at, turn := (own.no/64+i)%len(words), own.no%64+1
			for set := bits.RotateLeft64(words[at].Load(), -turn); set != 0; set &= set - 1 {
				s := &t.shards[at*64+(bits.TrailingZeros64(set)+turn)%64]
				if s == own || !s.mu.TryLock() {
					continue
				}
				done := t.evictFirst(s, r)
				s.mu.Unlock()
				if done {
					return true
				}
			}
		}
	}
	return false
}

// evictFirst ends the first entry of a locked shard's line that no other
// connection needs.
func (t *Table) evictFirst(s *shard, r rank) bool {
	for s.lines[r].first != 0 {
		c := s.conn(s.lines[r].first)
		if t.held != nil && t.held(c) {
			t.dequeue(s, c) // until its next packet
			continue
		}
		t.end(s, c)
		t.limit.evicted.Add(1)
		return true
	}
	return false
}

// rerank moves an entry to the line that its new state belongs into.
func (l Slot) rerank(c *Conn, dir Direction) {
	switch {
	case c.rank == halfOpen:
		if proved(c, dir) {
			l.t.dequeue(l.s, c)
		}
	case over(c.State):
		if l.s.lines[finished].last != c.self {
			l.t.enqueue(l.s, c, finished)
		}
	case c.rank == finished:
		// A SYN on a connection that was over begins a new one.
		l.t.enqueue(l.s, c, halfOpen)
	}
}

// proved reports whether a packet shows that both ends of a half-open entry
// exist, as far as the director can see it.
func proved(c *Conn, dir Direction) bool {
	if c.Proto == packet.UDP {
		return dir == Reply || c.packets[Request] > 1
	}
	return c.State == Established || c.State == SCTPEstablished
}

// over reports whether nothing more is to come in a state.
func over(s State) bool {
	return s == TimeWait || s == Close || s == SCTPClosed || s == SCTPRejected
}

// enqueue puts an entry at the end of a line, out of the one it stands in.
func (t *Table) enqueue(s *shard, c *Conn, r rank) {
	t.dequeue(s, c)
	q := &s.lines[r]
	c.rank, c.before, c.behind = r, q.last, 0
	if q.last != 0 {
		s.conn(q.last).behind = c.self
	} else {
		q.first = c.self
		t.limit.filled[r][s.no/64].Or(1 << (s.no % 64))
	}
	q.last = c.self
}

// dequeue takes an entry out of its line, if it stands in one.
func (t *Table) dequeue(s *shard, c *Conn) {
	if c.rank == kept {
		return
	}
	q := &s.lines[c.rank]
	if c.before != 0 {
		s.conn(c.before).behind = c.behind
	} else {
		q.first = c.behind
	}
	if c.behind != 0 {
		s.conn(c.behind).before = c.before
	} else {
		q.last = c.before
	}
	if q.first == 0 {
		t.limit.filled[c.rank][s.no/64].And(^uint64(1 << (s.no % 64)))
	}
	c.rank, c.before, c.behind = kept, 0, 0
}
