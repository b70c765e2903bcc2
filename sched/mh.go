package sched

import (
	"math/bits"

	"pktdirector/lvs"
	"pktdirector/packet"
)

// maglev is mh, consistent hashing after Google's Maglev paper (section 3.4).
// Each destination has a permutation of the table's places, made by two keyed
// hashes of its address and port. Round the list, each takes the next free
// places of its permutation, as many in a row as its share of the weights, until
// the table is full. The client's address, with FlagPort its port too, picks the
// place.
//
// Shares go by the last weight above 0: a destination set to 0 keeps its places,
// and its clients are refused, or with FlagFallback sent where hashing with
// other offsets leads.
type maglev struct {
	fallback
	dests []*lvs.Destination
	table []*lvs.Destination
	flags lvs.SchedFlags
}

const (
	maglevSize = 4093 // a prime; the kernel's default, table index 12
	// maglevShift bounds the turns of one destination: half the table index.
	maglevShift = 6
	maglevKey1  = 2654435761
	maglevKey2  = 2654446892
)

// maglevHash is the kernel's keyed hash of an address and port.
func maglevHash(a packet.Addr, port uint16, key uint64, offset uint32) uint32 {
	// Both halves of the kernel's 128-bit key are the same number.
	return sipHash13(offset+uint32(port)+fold(a), key)
}

func (s *maglev) Update(dests []*lvs.Destination) {
	s.dests = dests
	turns := maglevTurns(dests)
	if turns == nil {
		s.table = nil
		return
	}
	type walk struct{ at, step int }
	walks := make([]walk, len(dests))
	for i, d := range dests {
		walks[i] = walk{
			at:   int(maglevHash(d.Server.RIP, d.Server.Port, maglevKey1, 0) % maglevSize),
			step: int(maglevHash(d.Server.RIP, d.Server.Port, maglevKey2, 0)%(maglevSize-1)) + 1,
		}
	}
	table := make([]*lvs.Destination, maglevSize)
	for filled := 0; filled < maglevSize; {
		for i, d := range dests {
			w := &walks[i]
			for n := int64(0); n < turns[i] && filled < maglevSize; n++ {
				for table[w.at] != nil {
					w.at = (w.at + w.step) % maglevSize
				}
				table[w.at] = d
				filled++
			}
		}
	}
	s.table = table
}

// maglevTurns returns how many places each destination takes in a row, or nil
// when nobody takes any.
func maglevTurns(dests []*lvs.Destination) []int64 {
	var divisor, largest int64
	for _, d := range dests {
		if w := d.LastWeight(); w > 0 {
			divisor = gcd(w, divisor)
			largest = max(largest, w)
		}
	}
	if divisor == 0 {
		return nil
	}
	shift := max(0, bits.Len64(uint64(largest/divisor))-maglevShift)
	turns := make([]int64, len(dests))
	for i, d := range dests {
		if w := d.LastWeight(); w > 0 {
			turns[i] = max(1, w/divisor>>shift)
		}
	}
	return turns
}

func (s *maglev) Schedule(r Request) *lvs.Destination {
	d, h, found := s.choose(r)
	s.fell = d != nil && found != h
	return d
}

// choose returns the pick, the place that the client leads to, and the pick's.
func (s *maglev) choose(r Request) (pick *lvs.Destination, h, found int) {
	var port uint16
	if s.flags&lvs.FlagPort != 0 {
		port = r.Flow.SrcPort
	}
	place := func(offset uint32) int {
		return int(maglevHash(r.Flow.Src, port, maglevKey1, offset) % maglevSize)
	}
	h = place(0)
	pick, found = pickFrom(s.table, h, s.flags&lvs.FlagFallback != 0, func(k int) int { return place(uint32((h + k) % maglevSize)) })
	return pick, h, found
}

func (s *maglev) Explain(r Request, e *Explanation) {
	pick, at, found := s.choose(r)
	e.Rule = "the owner of the table's place of the client's address"
	if s.flags&lvs.FlagPort != 0 {
		e.Rule = "the owner of the table's place of the client's address and port"
	}
	explainBucket(e, s.dests, s.table, at, found, pick)
}
