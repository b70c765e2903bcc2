package dataplane

import (
	"math/bits"

	"pktdirector/conntrack"
	"pktdirector/lvs"
)

// tallySlots is how many destinations a worker counts for at a time: a power of two.
const tallySlots = 64

// Both are counted by the bits of a word.
const _ = uint(64-numVerdicts) + uint(64-tallySlots)

// tally is what a worker counted since the batch began. Others see it when the batch
// ends: counters that several workers share are touched once a batch, not with each
// packet.
type tally struct {
	verdicts [numVerdicts]uint64
	servers  [tallySlots]serverTally // by destination number
	// Which of them are not zero, one bit each.
	ended, served uint64
}

// serverTally is what was counted for one destination, and its service.
type serverTally struct {
	dest    *lvs.Destination
	packets [2]uint64 // by direction
	bytes   [2]uint64
}

// settled counts a packet's verdict.
func (t *tally) settled(v Verdict, n uint64) {
	t.verdicts[v] += n
	t.ended |= 1 << v
}

// count adds n packets to their destination's and service's statistics.
func (t *tally) count(dest *lvs.Destination, dir conntrack.Direction, n, bytes uint64) {
	at := dest.ID % tallySlots
	s := &t.servers[at]
	if s.dest != dest {
		s.flush()
		s.dest = dest
		t.served |= 1 << at
	}
	s.packets[dir] += n
	s.bytes[dir] += bytes
}

// flush adds it to what all see.
func (s *serverTally) flush() {
	if s.dest == nil {
		return
	}
	total := s.dest.Total.Load()
	if n := s.packets[conntrack.Request]; n > 0 {
		s.dest.Stats.In(n, s.bytes[conntrack.Request])
		if total != nil {
			total.In(n, s.bytes[conntrack.Request])
		}
	}
	if n := s.packets[conntrack.Reply]; n > 0 {
		s.dest.Stats.Out(n, s.bytes[conntrack.Reply])
		if total != nil {
			total.Out(n, s.bytes[conntrack.Reply])
		}
	}
	*s = serverTally{}
}

// flush adds the batch's counts to what all see.
func (w *Worker) flush() {
	t := &w.tally
	for ; t.ended != 0; t.ended &= t.ended - 1 {
		v := bits.TrailingZeros64(t.ended)
		w.d.verdicts[v].Add(t.verdicts[v])
		t.verdicts[v] = 0
	}
	for ; t.served != 0; t.served &= t.served - 1 {
		t.servers[bits.TrailingZeros64(t.served)].flush()
	}
}
