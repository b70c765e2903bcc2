package sched_test

import (
	"encoding/binary"
	"flag"
	"math/big"
	"math/bits"
	"slices"
	"sort"
	"testing"

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
	full          bool
	addr          packet.Addr
	removed       bool
}

func (s *server) eligible() bool { return s.weight > 0 && !s.full }

// client is a packet as a model sees it.
type client struct {
	src, dst uint32
	port     uint16
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
	next := make([]int, len(list))
	permutation := func(i, n int) int {
		key := list[i].addr.V4() + 80
		offset, skip := slowMaglevHash(key, 2654435761)%size, slowMaglevHash(key, 2654446892)%(size-1)+1
		return (offset + n*skip) % size
	}
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

type slowLBLC struct{ memory map[uint32]*server }

func (*slowLBLC) changed([]*server) {}

func (m *slowLBLC) pick(list []*server, c client) *server {
	if s := m.memory[c.dst]; s != nil && !s.removed && s.weight > 0 && !slowOverloaded(s, list) {
		return s
	}
	s := slowLeast{slowWLC}.pick(list, c)
	if s != nil {
		m.memory[c.dst] = s
	}
	return s
}

type slowLBLCR struct{ memory map[uint32][]*server }

func (*slowLBLCR) changed([]*server) {}

func (m *slowLBLCR) pick(list []*server, c client) *server {
	set := slices.DeleteFunc(slices.Clone(m.memory[c.dst]), func(s *server) bool { return s.removed })
	if s := (slowLeast{slowWLC}).pick(set, c); s != nil && !slowOverloaded(s, list) {
		return s
	}
	s := slowLeast{slowWLC}.pick(list, c)
	if s != nil && !slices.Contains(m.memory[c.dst], s) {
		m.memory[c.dst] = append([]*server{s}, m.memory[c.dst]...)
	}
	return s
}

// ---- twos

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

// reference is one scheduler beside its model.
type reference struct {
	name  string
	flags lvs.SchedFlags
	model func() model
}

func references() []reference {
	least := func(cost func(*server) *big.Rat) func() model { return func() model { return slowLeast{cost} } }
	list := []reference{
		{"rr", 0, func() model { return new(slowRR) }},
		{"wrr", 0, func() model { return new(slowWRR) }},
		{"lc", 0, least(slowOverhead)},
		{"wlc", 0, least(slowWLC)},
		{"sed", 0, least(slowSED)},
		{"nq", 0, func() model { return slowNQ{} }},
		{"fo", 0, func() model { return slowHeavy{} }},
		{"ovf", 0, func() model { return slowHeavy{overflow: true} }},
		{"dh", 0, func() model { return &slowHash{byDst: true} }},
		{"lblc", 0, func() model { return &slowLBLC{map[uint32]*server{}} }},
		{"lblcr", 0, func() model { return &slowLBLCR{map[uint32][]*server{}} }},
		{"twos", 0, func() model { return new(slowTwos) }},
	}
	for f := lvs.SchedFlags(0); f <= lvs.FlagFallback|lvs.FlagPort; f++ {
		port, fallback := f&lvs.FlagPort != 0, f&lvs.FlagFallback != 0
		list = append(list,
			reference{"sh", f, func() model { return &slowHash{weighted: true, port: port, fallback: fallback} }},
			reference{"mh", f, func() model { return &slowMaglev{port: port, fallback: fallback} }})
	}
	return list
}

// TestSchedulersAgreeWithTheirModels runs 10,000 random sequences of adds,
// removals, edits, connections that begin, change and end, for each scheduler.
func TestSchedulersAgreeWithTheirModels(t *testing.T) {
	checks := flag.Lookup("rapid.checks")
	was := checks.Value.String()
	defer checks.Value.Set(was)
	for _, ref := range references() {
		n := "10000"
		switch {
		case testing.Short():
			n = "200"
		case ref.name == "mh":
			n = "300" // each change fills 4,093 places twice
		}
		checks.Value.Set(n)
		t.Run(ref.name+flagNames(ref.flags), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { compare(t, ref) })
		})
	}
}

func flagNames(f lvs.SchedFlags) string {
	s := ""
	if f&lvs.FlagFallback != 0 {
		s += "+fallback"
	}
	if f&lvs.FlagPort != 0 {
		s += "+port"
	}
	return s
}

func compare(t *rapid.T, ref reference) {
	s, err := sched.New(ref.name, sched.Config{Flags: ref.flags}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := ref.model()
	var list []*server
	var dests []*lvs.Destination
	of := map[*lvs.Destination]*server{}
	update := func() {
		s.Update(slices.Clone(dests))
		m.changed(list)
	}
	weight := func() int { return rapid.IntRange(0, 9).Draw(t, "weight") }
	some := func() int { return rapid.IntRange(0, len(list)-1).Draw(t, "which") }
	added := 0
	for range rapid.IntRange(5, 40).Draw(t, "events") {
		op := rapid.IntRange(0, 9).Draw(t, "op")
		if len(list) == 0 {
			op = 0
		}
		switch op {
		case 0:
			w := weight()
			addr := packet.AddrFrom4([]byte{10, 2, 0, byte(added)})
			d := lvs.NewDestination(lvs.ServiceKey{}, lvs.RealServer{ServerKey: lvs.ServerKey{RIP: addr, Port: 80}, Weight: w}, uint32(added))
			sv := &server{id: added, weight: int64(w), last: int64(w), addr: addr}
			of[d] = sv
			added++
			dests, list = append([]*lvs.Destination{d}, dests...), append([]*server{sv}, list...)
			update()
		case 1:
			i := some()
			list[i].removed = true
			dests[i].SetAvailable(false)
			dests, list = slices.Delete(slices.Clone(dests), i, i+1), slices.Delete(slices.Clone(list), i, i+1)
			update()
		case 2:
			i, w := some(), weight()
			dests[i].SetWeight(w)
			list[i].weight = int64(w)
			if w > 0 {
				list[i].last = int64(w)
			}
			update()
		case 3: // a connection ends or goes inactive
			i := some()
			if list[i].active > 0 {
				dests[i].Move(false)
				list[i].active--
				list[i].inact++
			} else if list[i].inact > 0 {
				dests[i].Unbind(false)
				list[i].inact--
			}
		default:
			c := client{
				src: 0xc6336400 + uint32(rapid.IntRange(0, 255).Draw(t, "client")), dst: 0xc0000200 + uint32(rapid.IntRange(0, 2).Draw(t, "vip")),
				port: rapid.Uint16().Draw(t, "port"),
			}
			flow := packet.Flow{Src: v4(c.src), SrcPort: c.port, Dst: v4(c.dst), DstPort: 80}
			var e sched.Explanation
			s.Explain(sched.Request{Flow: flow}, &e)
			got, want := s.Schedule(sched.Request{Flow: flow}), m.pick(list, c)
			if e.Picked() != got {
				t.Fatalf("explained %v, picked %v", e.Picked(), got)
			}
			if of[got] != want {
				t.Fatalf("picked %+v, the model %+v", of[got], want)
			}
			if got != nil {
				got.Bind(true)
				want.active++
			}
		}
	}
}

func v4(a uint32) packet.Addr { return packet.AddrFrom4(binary.BigEndian.AppendUint32(nil, a)) }
