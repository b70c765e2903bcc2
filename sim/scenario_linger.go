package sim

import (
	"slices"
	"time"

	"pktdirector/conntrack"
)

// A kernel ends a connection that is told to end now (its server was removed, its
// client opened it anew) from a timer, a moment later: for one more event it may
// still be listed, with no time left, and stand in its server's counts. So may
// one whose time was up an instant ago.

// lingering returns the entries that ended during an event and that a kernel may
// still show after it.
func lingering(before, after []Entry, now time.Duration) []Entry {
	there := map[string]*Entry{}
	for i := range after {
		there[after[i].key()] = &after[i]
	}
	var list []Entry
	for _, e := range before {
		then := there[e.key()]
		replaced := then != nil && then.State == conntrack.SynRecv.String() && e.State != then.State
		if then == nil || replaced {
			list = append(list, e)
		}
	}
	// One whose time was up longer ago is gone from the kernel's table, too.
	return slices.DeleteFunc(list, func(e Entry) bool { return e.ends < now-time.Duration(late*float64(time.Second)) })
}

// withoutLingering takes the entries out of a recorded table that only linger.
func withoutLingering(want []Entry, got *Result) []Entry {
	left := slices.Clone(got.lingering)
	return slices.DeleteFunc(slices.Clone(want), func(e Entry) bool {
		i := slices.IndexFunc(left, func(l Entry) bool { return l.key() == e.key() })
		if e.Expires != 0 || i < 0 {
			return false
		}
		left = slices.Delete(left, i, i+1)
		return true
	})
}

// sameTable compares recorded services with a result's, whose servers may count
// fewer connections by those that linger.
func sameTable(want []Row, got *Result) bool {
	if slices.Equal(tableLines(want), tableLines(got.Table)) {
		return true
	}
	if len(got.lingering) == 0 || len(want) != len(got.Table) {
		return false
	}
	more := map[string]int64{}
	for _, e := range got.lingering {
		more[e.Dest]++
	}
	for _, row := range want {
		i := slices.IndexFunc(got.Table, func(r Row) bool { return r.Service == row.Service })
		if i < 0 || len(got.Table[i].Servers) != len(row.Servers) {
			return false
		}
		for j, w := range row.Servers {
			g := got.Table[i].Servers[j]
			active, inact := w.Active-g.Active, w.InAct-g.InAct
			if w.Addr != g.Addr || w.Weight != g.Weight || active < 0 || inact < 0 || active+inact > more[w.Addr] {
				return false
			}
		}
	}
	return true
}
