package dataplane

import (
	"pktdirector/conntrack"
	"pktdirector/packet"
)

// lookaheadSize is how many packets a worker looks at before it takes the first: what
// that brings into the processor's cache must still be there at the last one's turn.
const lookaheadSize = 64

// lookahead is what a worker found out about the packets in front of it: see
// conntrack.Key.
type lookahead struct {
	of [lookaheadSize]preview
}

// preview is what is known of one packet before its turn.
type preview struct {
	parsed bool
	result packet.ParseError
	keyed  bool
	dir    conntrack.Direction // a guess
	key    conntrack.Key
}

// lookAhead parses the packets that come next, and fetches the entries that they will
// need. It changes nothing that others see.
func (w *Worker) lookAhead(batch []*packet.Packet) {
	rules, standby := w.d.rules.Load(), w.d.standby.Load()
	for i, p := range batch {
		l := &w.ahead.of[i]
		l.parsed, l.keyed = false, false
		if standby || p.Class != packet.ToUs || p.Truncated || p.EtherType == packet.EtherARP {
			continue
		}
		l.parsed, l.result = true, packet.Parse(p)
		if l.result != packet.ParseOK || p.Frag != packet.Whole {
			continue
		}
		switch p.Flow.Proto {
		case packet.TCP, packet.UDP, packet.SCTP:
		default:
			continue
		}
		l.keyed = true
		if rules.mayBeVIP(p.Flow.Dst) {
			l.dir, l.key = conntrack.Request, w.d.table.RequestKey(&p.Flow)
		} else {
			l.dir, l.key = conntrack.Reply, w.d.table.ReplyKey(&p.Flow)
		}
		l.key.FetchShard()
	}
	for i := range batch {
		if l := &w.ahead.of[i]; l.keyed {
			l.key.FetchCell()
		}
	}
	for i := range batch {
		if l := &w.ahead.of[i]; l.keyed {
			l.key.FetchEntry()
		}
	}
}

// vipFilter says of most addresses that are no VIP that they are none: one bit for each
// value of a hash.
type vipFilter [64]uint64

func (v *vipFilter) bit(a packet.Addr) (word int, mask uint64) {
	hi, lo := a.Words()
	h := (hi ^ lo) * 0x9e3779b97f4a7c15 >> (64 - 12)
	return int(h >> 6), 1 << (h & 63)
}

// mayBeVIP reports whether packets to an address may be requests. With marks, any may.
func (r *rules) mayBeVIP(a packet.Addr) bool {
	word, mask := r.filter.bit(a)
	return r.filter[word]&mask != 0 || len(r.marks) > 0
}
