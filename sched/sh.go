package sched

import "pktdirector/lvs"

// sourceHashing is sh. A table of 256 buckets is filled round the list, each
// destination taking as many buckets in a row as its weight (one when that is
// 0); the client's address picks the bucket, with FlagPort together with its
// port. A bucket whose destination is not eligible refuses; with FlagFallback
// other buckets are tried, from 2h mod 256 on.
type sourceHashing struct {
	fallback
	dests []*lvs.Destination
	table []*lvs.Destination
	flags lvs.SchedFlags
}

func (s *sourceHashing) Update(dests []*lvs.Destination) {
	s.dests, s.table = dests, nil
	if len(dests) == 0 {
		return
	}
	s.table = make([]*lvs.Destination, buckets)
	at, taken := 0, int64(0)
	for i := range s.table {
		s.table[i] = dests[at]
		if taken++; taken >= dests[at].Weight() {
			at, taken = (at+1)%len(dests), 0
		}
	}
}

// key returns the number that is hashed, without offset.
func (s *sourceHashing) key(r Request) uint32 {
	key := fold(r.Flow.Src)
	if s.flags&lvs.FlagPort != 0 {
		key += uint32(r.Flow.SrcPort)
	}
	return key
}

func (s *sourceHashing) Schedule(r Request) *lvs.Destination {
	d, h, found := s.choose(r)
	s.fell = d != nil && found != h
	return d
}

// choose returns the pick, the bucket that the client leads to, and the pick's.
func (s *sourceHashing) choose(r Request) (pick *lvs.Destination, h, found int) {
	h = int(hash32(s.key(r), bucketBits))
	pick, found = pickFrom(s.table, h, s.flags&lvs.FlagFallback != 0, func(k int) int { return ((h+k)%buckets + h) % buckets })
	return pick, h, found
}

func (s *sourceHashing) Explain(r Request, e *Explanation) {
	pick, bucket, found := s.choose(r)
	e.Rule = "the owner of the bucket of the client's address"
	if s.flags&lvs.FlagPort != 0 {
		e.Rule = "the owner of the bucket of the client's address and port"
	}
	explainBucket(e, s.dests, s.table, bucket, found, pick)
}
