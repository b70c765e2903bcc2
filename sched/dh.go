package sched

import "pktdirector/lvs"

// A table of 256 buckets, as dh and sh use it.
const (
	bucketBits = 8
	buckets    = 1 << bucketBits
)

// destinationHashing is dh. A table of 256 buckets is dealt round the list,
// whatever the weights; the destination address picks the bucket. A bucket whose
// destination is not eligible refuses.
type destinationHashing struct {
	dests []*lvs.Destination
	table []*lvs.Destination // nil without destinations
}

func (s *destinationHashing) Update(dests []*lvs.Destination) {
	s.dests, s.table = dests, nil
	if len(dests) == 0 {
		return
	}
	s.table = make([]*lvs.Destination, buckets)
	for i := range s.table {
		s.table[i] = dests[i%len(dests)]
	}
}

func (s *destinationHashing) bucket(r Request) int {
	return int(hash32(fold(r.Flow.Dst), bucketBits))
}

func (s *destinationHashing) Schedule(r Request) *lvs.Destination {
	if s.table == nil {
		return nil
	}
	if d := s.table[s.bucket(r)]; d.Eligible() {
		return d
	}
	return nil
}

func (s *destinationHashing) Explain(r Request, e *Explanation) {
	e.Rule = "the owner of the bucket of the destination address"
	explainBucket(e, s.dests, s.table, s.bucket(r), s.bucket(r), s.Schedule(r))
}

// pickFrom returns the eligible destination that owns place h of a table, and
// the place; with fallback, when that one is not eligible, the first eligible one
// of the places that next leads to.
func pickFrom(table []*lvs.Destination, h int, fallback bool, next func(k int) int) (*lvs.Destination, int) {
	if table == nil {
		return nil, h
	}
	if d := table[h]; d.Eligible() {
		return d, h
	}
	if fallback {
		for k := range table {
			if at := next(k); table[at].Eligible() {
				return table[at], at
			}
		}
	}
	return nil, h
}

// explainBucket explains a pick from a table of buckets. The packet leads to
// bucket; the pick owns the bucket found.
func explainBucket(e *Explanation, dests, table []*lvs.Destination, bucket, found int, pick *lvs.Destination) {
	e.Bucket, e.Buckets, e.Fallback, e.Tie = bucket, len(table), found, tieOwner
	e.each(dests, func(_ *lvs.Destination, c *Candidate) { c.Why = "does not own the bucket" })
	for i := range e.Candidates {
		switch c := &e.Candidates[i]; {
		case c.Dest == pick && found != bucket:
			c.Picked, c.Why = true, "owns the bucket that fallback found"
		case c.Dest == pick:
			c.Picked, c.Why = true, "owns the bucket"
		case table != nil && c.Dest == table[bucket] && pick == nil:
			c.Why = "owns the bucket, and refuses: " + c.Why
		case table != nil && c.Dest == table[bucket]:
			c.Why = "owns the bucket, but " + c.Why
		}
	}
}
