package control

import (
	"cmp"
	"container/heap"
	"iter"
	"net/netip"
	"slices"
	"strings"
)

// SortKeys are what connections can be sorted by: addresses, states and what is
// left of an entry's life the smallest first, all others the largest first.
func SortKeys() []string {
	return []string{"client", "vip", "server", "state", "expires", "age", "idle", "packets", "bytes"}
}

// ranked is a connection with what it is sorted by.
type ranked struct {
	Connection
	addr   netip.Addr
	number int64
	text   string
	came   int // in the order of the table
}

// ranking compares connections.
type ranking struct {
	by   string
	back bool
}

func newRanking(sort string) ranking {
	by, back := strings.CutPrefix(sort, "-")
	return ranking{by, back}
}

func (r ranking) rank(c Connection, came int) ranked {
	one := ranked{Connection: c, came: came}
	end := func(addr string, port uint16) {
		one.addr, _ = netip.ParseAddr(addr) // the director wrote it
		one.number = int64(port)
	}
	largest := func(n uint64) { one.number = -int64(min(n, 1<<62)) }
	switch r.by {
	case "client":
		end(c.Client, c.ClientPort)
	case "vip":
		end(c.VIP, c.Port)
	case "server":
		end(c.Destination, c.DestinationPort)
	case "state":
		one.text = c.State
	case "expires":
		one.number = c.Expires
	case "age":
		one.number = -c.Age
	case "idle":
		one.number = -c.Idle
	case "packets":
		largest(c.Requests.packets() + c.Replies.packets())
	case "bytes":
		largest(c.Requests.bytes() + c.Replies.bytes())
	}
	return one
}

func (r ranking) compare(a, b ranked) int {
	n := cmp.Or(a.addr.Compare(b.addr), cmp.Compare(a.number, b.number), cmp.Compare(a.text, b.text))
	if r.back {
		n = -n
	}
	return cmp.Or(n, cmp.Compare(a.came, b.came))
}

// firstOf sorts connections and returns the first most, 0 for all, with memory for
// no more.
func (r ranking) firstOf(all iter.Seq[Connection], most int) []Connection {
	h := worst{ranking: r}
	came := 0
	for c := range all {
		came++
		one := r.rank(c, came)
		switch {
		case most == 0 || len(h.list) < most:
			heap.Push(&h, one)
		case r.compare(one, h.list[0]) < 0:
			h.list[0] = one
			heap.Fix(&h, 0)
		}
	}
	slices.SortFunc(h.list, r.compare)
	sorted := make([]Connection, len(h.list))
	for i := range h.list {
		sorted[i] = h.list[i].Connection
	}
	return sorted
}

// worst is a heap with the last of the connections in front.
type worst struct {
	ranking
	list []ranked
}

func (h *worst) Len() int           { return len(h.list) }
func (h *worst) Less(i, j int) bool { return h.compare(h.list[i], h.list[j]) > 0 }
func (h *worst) Swap(i, j int)      { h.list[i], h.list[j] = h.list[j], h.list[i] }
func (h *worst) Push(x any)         { h.list = append(h.list, x.(ranked)) }
func (h *worst) Pop() any           { return nil } // nobody does
