package sched_test

import (
	"encoding/binary"
	"flag"
	"math/big"
	"math/bits"
	"slices"
	"sort"
	"testing"
	"time"

	"pgregory.net/rapid"

	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/sched"
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

// ---- dh and sh

// slowBucket is the top 8 bits of a 32-bit product.
func slowBucket(v uint32) int {
	product := new(big.Int).Mul(big.NewInt(int64(v)), big.NewInt(0x61C88647))
	product.Mod(product, big.NewInt(1<<32))
	return int(product.Rsh(product, 24).Int64())
}

type slowHash struct {
	weighted, port, fallback, byDst bool
	table                           []*server
}

func (m *slowHash) changed(list []*server) {
	m.table = nil
	for len(list) > 0 && len(m.table) < 256 {
		for _, s := range list {
			n := int64(1)
			if m.weighted {
				n = max(1, s.weight)
			}
			for range n {
				m.table = append(m.table, s)
			}
		}
	}
	if len(m.table) > 256 {
		m.table = m.table[:256]
	}
}

func (m *slowHash) pick(_ []*server, c client) *server {
	if m.table == nil {
		return nil
	}
	key := c.src
	if m.byDst {
		key = c.dst
	}
	if m.port {
		key += uint32(c.port)
	}
	h := slowBucket(key)
	if s := m.table[h]; s.eligible() {
		return s
	}
	if m.fallback {
		for k := range 256 {
			if s := m.table[((h+k)%256+h)%256]; s.eligible() {
				return s
			}
		}
	}
	return nil
}

// ---- mh, after the Maglev paper's pseudocode

// slowSip is SipHash with c compression and d finalisation rounds over bytes.
func slowSip(data []byte, k0, k1 uint64, c, d int) uint64 {
	v := [4]uint64{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573}
	rounds := func(n int) {
		for range n {
			v[0] += v[1]
			v[2] += v[3]
			v[1] = bits.RotateLeft64(v[1], 13)
			v[3] = bits.RotateLeft64(v[3], 16)
			v[1] ^= v[0]
			v[3] ^= v[2]
			v[0] = bits.RotateLeft64(v[0], 32)
			v[2] += v[1]
			v[0] += v[3]
			v[1] = bits.RotateLeft64(v[1], 17)
			v[3] = bits.RotateLeft64(v[3], 21)
			v[1] ^= v[2]
			v[3] ^= v[0]
			v[2] = bits.RotateLeft64(v[2], 32)
		}
	}
	padded := append(slices.Clone(data), make([]byte, 7-len(data)%8)...)
	padded = append(padded, byte(len(data)))
	for i := 0; i < len(padded); i += 8 {
		m := binary.LittleEndian.Uint64(padded[i:])
		v[3] ^= m
		rounds(c)
		v[0] ^= m
	}
	v[2] ^= 0xff
	rounds(d)
	return v[0] ^ v[1] ^ v[2] ^ v[3]
}

// The test vector of the SipHash paper, appendix A: SipHash-2-4.
func TestTheSlowSipHashIsSipHash(t *testing.T) {
	key, data := make([]byte, 16), make([]byte, 15)
	for i := range key {
		key[i] = byte(i)
	}
	for i := range data {
		data[i] = byte(i)
	}
	if got := slowSip(data, binary.LittleEndian.Uint64(key), binary.LittleEndian.Uint64(key[8:]), 2, 4); got != 0xa129ca6149be45e5 {
		t.Errorf("%#x", got)
	}
}

func slowMaglevHash(v uint32, key uint64) int {
	return int(uint32(slowSip(binary.LittleEndian.AppendUint32(nil, v), key, key, 1, 3)))
}

type slowMaglev struct {
	port, fallback bool
	table          []*server
}

func (m *slowMaglev) changed(list []*server) {
	const size = 4093
	m.table = nil
	var g, top int64
	for _, s := range list {
		top = max(top, s.last)
	}
	for g = top; g > 1; g-- {
		if !slices.ContainsFunc(list, func(s *server) bool { return s.last%g != 0 }) {
			break
		}
	}
	if top == 0 {
		return
	}
	shift := max(0, bits.Len64(uint64(top/g))-6)
	// Where each server is in its permutation: the paper's offset, skip and next.
	next := make([]int, len(list))
	offset, skip := make([]int, len(list)), make([]int, len(list))
	for i, s := range list {
		key := s.addr.V4() + 80
		offset[i], skip[i] = slowMaglevHash(key, 2654435761)%size, slowMaglevHash(key, 2654446892)%(size-1)+1
	}
	permutation := func(i, n int) int { return (offset[i] + n*skip[i]) % size }
	m.table = make([]*server, size)
	for filled := 0; ; {
		for i, s := range list {
			turns := s.last / g >> shift
			if s.last > 0 {
				turns = max(turns, 1)
			}
			for range turns {
				at := permutation(i, next[i])
				for m.table[at] != nil {
					next[i]++
					at = permutation(i, next[i])
				}
				m.table[at] = s
				next[i]++
				if filled++; filled == size {
					return
				}
			}
		}
	}
}

func (m *slowMaglev) pick(_ []*server, c client) *server {
	if m.table == nil {
		return nil
	}
	key := c.src
	if m.port {
		key += uint32(c.port)
	}
	h := slowMaglevHash(key, 2654435761) % 4093
	if m.table[h].eligible() {
		return m.table[h]
	}
	if m.fallback {
		for k := range 4093 {
			offset := uint32((h + k) % 4093)
			if s := m.table[slowMaglevHash(key+offset, 2654435761)%4093]; s.eligible() {
				return s
			}
		}
	}
	return nil
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

// reference is one scheduler beside its model. flagged schedulers are tried
// with each of their flags.
type reference struct {
	name    string
	flagged bool
	model   func(lvs.SchedFlags) model
}

func references() []reference {
	plain := func(name string, m func() model) reference {
		return reference{name: name, model: func(lvs.SchedFlags) model { return m() }}
	}
	least := func(name string, cost func(*server) *big.Rat) reference {
		return plain(name, func() model { return slowLeast{cost} })
	}
	memory := func() slowMemory { return slowMemory{entries: map[uint32]*slowEntry{}} }
	return []reference{
		plain("rr", func() model { return new(slowRR) }),
		plain("wrr", func() model { return new(slowWRR) }),
		least("lc", slowOverhead),
		least("wlc", slowWLC),
		least("sed", slowSED),
		plain("nq", func() model { return slowNQ{} }),
		plain("fo", func() model { return slowHeavy{} }),
		plain("ovf", func() model { return slowHeavy{overflow: true} }),
		plain("dh", func() model { return &slowHash{byDst: true} }),
		plain("lblc", func() model { return &slowLBLC{memory()} }),
		plain("lblcr", func() model { return &slowLBLCR{memory()} }),
		plain("twos", func() model { return new(slowTwos) }),
		plain("none", func() model { return slowNone{} }),
		{"sh", true, func(f lvs.SchedFlags) model {
			return &slowHash{weighted: true, port: f&lvs.FlagPort != 0, fallback: f&lvs.FlagFallback != 0}
		}},
		{"mh", true, func(f lvs.SchedFlags) model {
			return &slowMaglev{port: f&lvs.FlagPort != 0, fallback: f&lvs.FlagFallback != 0}
		}},
	}
}

// TestSchedulersAgreeWithTheirModels runs 10,000 random sequences for each
// scheduler: servers that come, go, come back and are edited, thresholds,
// connections that begin, change and end, and time that passes.
func TestSchedulersAgreeWithTheirModels(t *testing.T) {
	checks := flag.Lookup("rapid.checks")
	was := checks.Value.String()
	defer checks.Value.Set(was)
	for _, ref := range references() {
		n := "10000"
		switch {
		case testing.Short():
			n = "200"
		case underRace && ref.name == "mh":
			n = "1000" // each change fills 4,093 places twice; no other goroutine is there
		}
		checks.Value.Set(n)
		t.Run(ref.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { compare(t, ref) })
		})
	}
}

// TestEverySchedulerHasAModel keeps the list of models complete.
func TestEverySchedulerHasAModel(t *testing.T) {
	var modelled []string
	for _, ref := range references() {
		modelled = append(modelled, ref.name)
	}
	slices.Sort(modelled)
	if names := sched.Names(); !slices.Equal(modelled, names) {
		t.Errorf("models of %v, schedulers %v", modelled, names)
	}
}

// comparison is one scheduler and its model with the same servers.
type comparison struct {
	t     *rapid.T
	s     sched.Scheduler
	m     model
	list  []*server
	dests []*lvs.Destination
	gone  []*lvs.Destination
	of    map[*lvs.Destination]*server
	now   int
	old   int // of lblc's and lblcr's memory, seconds
}

func compare(t *rapid.T, ref reference) {
	var flags lvs.SchedFlags
	if ref.flagged {
		flags = rapid.SampledFrom([]lvs.SchedFlags{0, lvs.FlagPort, lvs.FlagFallback, lvs.FlagPort | lvs.FlagFallback}).Draw(t, "flags")
	}
	s, err := sched.New(ref.name, sched.Config{Flags: flags}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &comparison{t: t, s: s, m: ref.model(flags), of: map[*lvs.Destination]*server{}}
	c.old = rapid.SampledFrom([]int{60, 3600, 86400}).Draw(t, "expiration")
	for range rapid.IntRange(5, 40).Draw(t, "events") {
		op := rapid.IntRange(0, 11).Draw(t, "op")
		if len(c.list) == 0 && op > 1 {
			op = 0
		}
		switch op {
		case 0:
			c.add()
		case 1:
			c.addAgain()
		case 2:
			c.remove()
		case 3, 4:
			c.edit()
		case 5:
			c.end()
		case 6:
			c.now += rapid.SampledFrom([]int{1, 61, 1800, 90000}).Draw(t, "seconds")
		default:
			c.connect()
		}
	}
}

func (c *comparison) update() {
	c.s.Update(slices.Clone(c.dests))
	c.m.changed(c.list)
}

func (c *comparison) which() int { return rapid.IntRange(0, len(c.list)-1).Draw(c.t, "which") }

// settings draws what an administrator may set of a server.
func (c *comparison) settings(key lvs.ServerKey) lvs.RealServer {
	rs := lvs.RealServer{ServerKey: key, Weight: rapid.IntRange(0, 9).Draw(c.t, "weight")}
	if rapid.IntRange(0, 7).Draw(c.t, "heavy") == 0 {
		rs.Weight *= 150
	}
	if rapid.IntRange(0, 3).Draw(c.t, "limited") == 0 {
		rs.Upper = uint32(rapid.IntRange(1, 5).Draw(c.t, "upper"))
		rs.Lower = uint32(rapid.IntRange(0, int(rs.Upper)).Draw(c.t, "lower"))
	}
	return rs
}

func (s *server) set(rs lvs.RealServer) {
	s.weight, s.upper, s.lower = int64(rs.Weight), int64(rs.Upper), int64(rs.Lower)
	if rs.Weight > 0 {
		s.last = s.weight
	}
	s.judge()
}

func (c *comparison) add() {
	n := len(c.of)
	rs := c.settings(lvs.ServerKey{RIP: packet.AddrFrom4([]byte{10, 2, 0, byte(n)}), Port: 80})
	d, s := lvs.NewDestination(lvs.ServiceKey{}, rs, uint32(n)), &server{id: n, addr: rs.RIP}
	s.set(rs)
	c.of[d] = s
	c.head(d)
}

func (c *comparison) head(d *lvs.Destination) {
	c.dests, c.list = append([]*lvs.Destination{d}, c.dests...), append([]*server{c.of[d]}, c.list...)
	c.update()
}

// addAgain brings back a server that was removed, with its connections.
func (c *comparison) addAgain() {
	if len(c.gone) == 0 {
		c.add()
		return
	}
	d := c.gone[0]
	c.gone = c.gone[1:]
	rs := c.settings(d.Server)
	d.Readd(rs)
	s := c.of[d]
	s.removed, s.last = false, 0
	s.set(rs)
	c.head(d)
}

func (c *comparison) remove() {
	i := c.which()
	c.list[i].removed = true
	c.dests[i].SetAvailable(false)
	c.gone = append(c.gone, c.dests[i])
	c.dests, c.list = slices.Delete(slices.Clone(c.dests), i, i+1), slices.Delete(slices.Clone(c.list), i, i+1)
	c.update()
}

func (c *comparison) edit() {
	i := c.which()
	rs := c.settings(c.dests[i].Server)
	c.dests[i].Edit(rs)
	c.list[i].set(rs)
	c.update()
}

// end makes a connection inactive; one that is goes.
func (c *comparison) end() {
	i := c.which()
	switch d, s := c.dests[i], c.list[i]; {
	case s.active > 0:
		d.Move(false)
		s.active--
		s.inact++
	case s.inact > 0:
		d.Unbind(false)
		s.inact--
		if s.upper > 0 {
			s.judge()
		}
	}
}

func (c *comparison) connect() {
	who := client{
		src: 0xc6336400 + uint32(rapid.IntRange(0, 255).Draw(c.t, "client")), dst: 0xc0000200 + uint32(rapid.IntRange(0, 2).Draw(c.t, "vip")),
		port: rapid.Uint16().Draw(c.t, "port"), now: c.now, old: c.old,
	}
	keep := time.Duration(c.old) * time.Second
	r := sched.Request{
		Flow: packet.Flow{Src: v4(who.src), SrcPort: who.port, Dst: v4(who.dst), DstPort: 80},
		Now:  time.Duration(c.now) * time.Second, LBLCExpiration: keep, LBLCRExpiration: keep,
	}
	var e sched.Explanation
	c.s.Explain(r, &e)
	got, want := c.s.Schedule(r), c.m.pick(c.list, who)
	if e.Picked() != got {
		c.t.Fatalf("explained %v, picked %v", e.Picked(), got)
	}
	if c.of[got] != want {
		c.t.Fatalf("picked %+v, the model %+v", c.of[got], want)
	}
	if got != nil {
		got.Bind(true)
		want.active++
		want.judge()
	}
}

func v4(a uint32) packet.Addr { return packet.AddrFrom4(binary.BigEndian.AppendUint32(nil, a)) }
