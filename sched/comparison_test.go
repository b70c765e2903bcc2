package sched_test

import (
	"encoding/binary"
	"flag"
	"math/big"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/sched"
)

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
