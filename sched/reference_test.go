package sched_test

import (
	"math/big"
	"slices"
	"sort"

	"pktdirector/packet"
)

// The models of this file are textbook versions of the schedulers: slow, plain
// and without a helper of the package under test. Random sequences of commands
// and connections must give the same picks.

// server is a model's view of a destination.
type server struct {
	id            int
	weight, last  int64 // last: the last weight above 0
	active, inact int64
	upper, lower  int64 // thresholds
	full          bool
	addr          packet.Addr
	removed       bool
}

// judge sets full by the thresholds: at the upper one it becomes full, below the
// lower one, or below three quarters of the upper one, it is full no more.
func (s *server) judge() {
	n := s.active + s.inact
	low := 4*n < 3*s.upper
	if s.lower > 0 {
		low = n < s.lower
	}
	if s.upper == 0 {
		s.full = false
	} else if n >= s.upper {
		s.full = true
	} else if low {
		s.full = false
	}
}

func (s *server) eligible() bool { return s.weight > 0 && !s.full }

// client is a packet as a model sees it.
type client struct {
	src, dst uint32
	port     uint16
	now, old int // seconds; old: how long lblc and lblcr remember
}

// model is a slow scheduler. list is newest first; changed is called after
// each change of it.
type model interface {
	changed(list []*server)
	pick(list []*server, c client) *server
}

// ---- rr

type slowRR struct {
	order []*server // all that ever stood in the list, with gaps closed
	last  *server
}

func (m *slowRR) changed(list []*server) {
	if m.last != nil && !slices.Contains(list, m.last) {
		i := slices.Index(m.order, m.last)
		m.last = nil
		for i--; i >= 0; i-- {
			if slices.Contains(list, m.order[i]) {
				m.last = m.order[i]
				break
			}
		}
	}
	m.order = slices.Clone(list)
}

func (m *slowRR) pick(list []*server, _ client) *server {
	start := slices.Index(list, m.last) + 1
	round := append(slices.Clone(list[start:]), list[:start]...)
	for _, s := range round {
		if s.eligible() {
			m.last = s
			return s
		}
	}
	return nil
}

// ---- wrr, one level and one server at a time

type slowWRR struct {
	at    int
	level int64
}

func slowGCD(list []*server) (g, top int64) {
	for _, s := range list {
		top = max(top, s.weight)
	}
	for g = top; g > 1; g-- {
		if !slices.ContainsFunc(list, func(s *server) bool { return s.weight%g != 0 }) {
			break
		}
	}
	return max(g, 1), top
}

func (m *slowWRR) changed(list []*server) {
	g, top := slowGCD(list)
	start := max(top-g+1, 0)
	m.at = 0
	if m.level == 0 || m.level > start {
		m.level = start
	} else if g > 1 {
		m.level = m.level - m.level%g + 1
	}
}

func (m *slowWRR) pick(list []*server, _ client) *server {
	if !slices.ContainsFunc(list, (*server).eligible) {
		return nil
	}
	g, top := slowGCD(list)
	for {
		if m.at == len(list) {
			m.at = 0
			if m.level -= g; m.level <= 0 {
				m.level = top - g + 1
			}
			continue
		}
		s := list[m.at]
		m.at++
		if s.eligible() && s.weight >= m.level {
			return s
		}
	}
}

// ---- least something, in exact fractions

type slowLeast struct{ cost func(*server) *big.Rat }

func (slowLeast) changed([]*server) {}

func (m slowLeast) pick(list []*server, _ client) *server {
	var usable []*server
	for _, s := range list {
		if s.eligible() {
			usable = append(usable, s)
		}
	}
	sort.SliceStable(usable, func(i, j int) bool { return m.cost(usable[i]).Cmp(m.cost(usable[j])) < 0 })
	if len(usable) == 0 {
		return nil
	}
	return usable[0]
}

func slowOverhead(s *server) *big.Rat { return big.NewRat(256*s.active+s.inact, 1) }
func slowWLC(s *server) *big.Rat      { return big.NewRat(256*s.active+s.inact, s.weight) }
func slowSED(s *server) *big.Rat      { return big.NewRat(s.active+1, s.weight) }

type slowNQ struct{}

func (slowNQ) changed([]*server) {}

func (slowNQ) pick(list []*server, c client) *server {
	for _, s := range list {
		if s.eligible() && s.active == 0 {
			return s
		}
	}
	return slowLeast{slowSED}.pick(list, c)
}

// ---- fo and ovf

type slowHeavy struct{ overflow bool }

func (slowHeavy) changed([]*server) {}

func (m slowHeavy) pick(list []*server, c client) *server {
	var usable []*server
	for _, s := range list {
		if !m.overflow || s.active <= s.weight {
			usable = append(usable, s)
		}
	}
	return slowLeast{func(s *server) *big.Rat { return big.NewRat(-s.weight, 1) }}.pick(usable, c)
}

// ---- lblc and lblcr

func slowOverloaded(s *server, list []*server) bool {
	return s.active > s.weight && slices.ContainsFunc(list, func(o *server) bool { return 2*o.active < o.weight })
}

// slowMemory remembers servers by destination address, a set of them for
// lblcr. Every minute it is looked through; every thirtieth time, what was not
// used for long goes.
type slowMemory struct {
	entries           map[uint32]*slowEntry
	nextLook, lookNum int
}

type slowEntry struct {
	set           []*server
	used, changed int
}

func (m *slowMemory) look(c client) *slowEntry {
	for len(m.entries) > 0 && m.nextLook <= c.now {
		if m.lookNum++; m.lookNum%30 == 0 {
			for address, e := range m.entries {
				if m.nextLook-e.used > c.old {
					delete(m.entries, address)
				}
			}
		}
		m.nextLook += 60
	}
	if len(m.entries) == 0 {
		m.nextLook = c.now + 60
	}
	if e := m.entries[c.dst]; e != nil {
		e.used = c.now
		return e
	}
	return &slowEntry{used: c.now}
}

type slowLBLC struct{ slowMemory }

func (*slowLBLC) changed([]*server) {}

func (m *slowLBLC) pick(list []*server, c client) *server {
	e := m.look(c)
	if len(e.set) > 0 {
		if s := e.set[0]; !s.removed && s.weight > 0 && !slowOverloaded(s, list) {
			return s
		}
	}
	s := slowLeast{slowWLC}.pick(list, c)
	if s != nil {
		e.set = []*server{s}
		m.entries[c.dst] = e
	}
	return s
}

type slowLBLCR struct{ slowMemory }

func (*slowLBLCR) changed([]*server) {}

func (m *slowLBLCR) pick(list []*server, c client) *server {
	e := m.look(c)
	usable := slices.DeleteFunc(slices.Clone(e.set), func(s *server) bool { return s.removed })
	least := slowLeast{slowWLC}.pick(usable, c)
	if len(e.set) > 1 && c.now-e.changed > c.old {
		weighted := slices.DeleteFunc(slices.Clone(e.set), func(s *server) bool { return s.weight == 0 })
		sort.SliceStable(weighted, func(i, j int) bool { return slowWLC(weighted[i]).Cmp(slowWLC(weighted[j])) > 0 })
		if len(weighted) > 0 {
			at := slices.Index(e.set, weighted[0])
			e.set, e.changed = slices.Delete(e.set, at, at+1), c.now
		}
	}
	if least != nil && !slowOverloaded(least, list) {
		return least
	}
	s := slowLeast{slowWLC}.pick(list, c)
	if s != nil && !slices.Contains(e.set, s) {
		e.set, e.changed = append([]*server{s}, e.set...), c.now
		m.entries[c.dst] = e
	}
	return s
}

// ---- none and twos

type slowNone struct{}

func (slowNone) changed([]*server) {}

func (slowNone) pick([]*server, client) *server { return nil }

type slowTwos struct{ state uint64 }

func (*slowTwos) changed([]*server) {}

func (m *slowTwos) pick(list []*server, _ client) *server {
	var total int64
	for _, s := range list {
		if s.eligible() {
			total += s.weight
		}
	}
	if total == 0 {
		return nil
	}
	draw := func() *server {
		m.state += 0x9e3779b97f4a7c15
		z := m.state
		z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
		z = (z ^ (z >> 27)) * 0x94d049bb133111eb
		z ^= z >> 31
		r := new(big.Int).Mul(new(big.Int).SetUint64(z), big.NewInt(total+1))
		left := r.Rsh(r, 64).Int64()
		for _, s := range list {
			if s.eligible() {
				if left -= s.weight; left <= 0 {
					return s
				}
			}
		}
		return nil
	}
	a, b := draw(), draw()
	if slowWLC(b).Cmp(slowWLC(a)) < 0 {
		return b
	}
	return a
}
