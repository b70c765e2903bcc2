package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pktdirector/conntrack"
	"pktdirector/control"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/testbed"
)

// stormEnv has TestStorm run at another size: "2000 200 500 3" are 2,000 short
// connections a second, 200 long ones, 500 edits and 3 upgrades. A fifth number is the
// seed of a storm to repeat.
const stormEnv = "PKTDIRECTOR_STORM"

type stormSize struct {
	rate, long, edits, upgrades int
	seed                        uint64
}

func sizeOfStorm(t *testing.T) stormSize {
	s := stormSize{200, 40, 60, 1, rand.Uint64()}
	if testing.Short() {
		s = stormSize{100, 10, 25, 1, s.seed}
	}
	if text := os.Getenv(stormEnv); text != "" {
		n, err := fmt.Sscan(text, &s.rate, &s.long, &s.edits, &s.upgrades, &s.seed)
		if n < 4 || s.rate < 1 || s.long < 1 || s.edits < 1 || s.upgrades < 0 {
			t.Fatalf("%s=%q (%v): write RATE LONG EDITS UPGRADES [SEED]", stormEnv, text, err)
		}
	}
	return s
}

// Not one connection fails that the kernel's rules would have kept, while a director
// is edited in every way there is, reloaded and upgraded.
func TestStorm(t *testing.T) {
	size := sizeOfStorm(t)
	t.Logf("to repeat it: %s=%q", stormEnv, fmt.Sprint(size.rate, size.long, size.edits, size.upgrades, size.seed))
	s := newStorm(t, size)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	begin, quiet := make(chan struct{}), make(chan struct{})
	sockets := make(chan error, 1)
	go func() { sockets <- s.client.sockets(ctx, size.rate, begin, quiet, rand.New(rand.NewPCG(size.seed, 1))) }()
	s.openLong(size.long, size.seed)
	close(begin)

	first := s.client.now()
	for i := range size.edits {
		for range size.upgrades*(i+1)/size.edits - size.upgrades*i/size.edits {
			s.upgrade()
		}
		s.edit()
		time.Sleep(time.Duration(s.script.rng.IntN(200)) * time.Millisecond) // edits come at any time of a connection
		select {
		case err := <-sockets:
			t.Fatalf("the client: %v", err)
		default:
		}
	}
	lasted := s.client.now() - first
	close(quiet) // the short ones that began go on
	s.write(s.script.restoreAll(s.model.run), "all is there again", s.reloadByAPI)
	close(s.client.finish)
	s.await()
	stop()
	if err := <-sockets; err != nil {
		t.Fatalf("the client: %v", err)
	}
	s.report(lasted)
}

// storm is a director, what is done to it, and who watches.
type storm struct {
	t       *testing.T
	lab     *testbed.Lab
	host    string // the director's
	file    string
	api     *control.Client
	script  *stormScript
	model   *stormModel
	servers *stormServers
	client  *stormClient
	longs   sync.WaitGroup
}

func newStorm(t *testing.T, size stormSize) *storm {
	top := topology(t, "nat")
	l := lab(t, top, testbed.AFPacket, func(*testbed.Lab) bool { return false })
	dir := t.TempDir()
	s := &storm{t: t, lab: l, host: top.With(testbed.Director)[0].Name, file: filepath.Join(dir, "director.yaml"),
		api:     control.NewClient(filepath.Join(dir, "s")),
		script:  &stormScript{rng: rand.New(rand.NewPCG(size.seed, 2))},
		servers: &stormServers{index: map[netip.AddrPort]int{}, met: map[netip.AddrPort]uint32{}},
	}
	for i := range 4 {
		for _, h := range top.With(testbed.RealServer) {
			port := uint16(9001 + i)
			if err := s.servers.listen(l, h.Name, netip.AddrPortFrom(h.Addr(), port)); err != nil {
				t.Fatal(err)
			}
			s.script.pool = append(s.script.pool, lvs.ServerKey{RIP: packet.AddrFrom(h.Addr()), Port: port})
		}
	}
	if err := s.servers.watch(l, s.host, top.With(testbed.Director)[0].NICs[1].Segment); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.servers.close)
	for _, port := range []uint16{80, 443, 25} {
		s.script.main = append(s.script.main, stormServiceKey(top.VIP, port))
	}
	for port := range uint16(4) {
		s.script.beside = append(s.script.beside, stormServiceKey(top.VIP, 8001+port))
	}

	links, _, _ := strings.Cut(top.DirectorYAML(testbed.AFPacket), "services:\n")
	c, err := control.Parse("storm", []byte("control: "+filepath.Join(dir, "s")+"\n"+links+"services: []\n"))
	if err != nil {
		t.Fatal(err)
	}
	c.Timeouts = control.DefaultTimeouts()
	first := s.script.restoreAll(*c)
	first.Ruleset.Services[1].Persist = 30 * time.Second
	first.Ruleset.Services[2].Scheduler, first.Ruleset.Services[2].Flags = "mh", lvs.FlagFallback
	if err := os.WriteFile(s.file, []byte(first.Export().Config), 0o644); err != nil {
		t.Fatal(err)
	}
	d := startRun(t, l, s.host, s.file)
	log := new(stormLog)
	go io.Copy(log, d.log)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the director's log:\n%s", log)
		}
		if now, err := s.api.Health(context.WithoutCancel(t.Context())); err == nil { // a successor is no child of ours
			syscall.Kill(now.PID, syscall.SIGKILL)
		}
	})
	s.model = newStormModel(first, s.script.pool, slices.Concat(s.script.main, s.script.beside))
	s.client = s.newClient(top)
	return s
}

// newClient gives the lab's client more addresses: a port is used once.
func (s *storm) newClient(top *testbed.Topology) *stormClient {
	h := top.With(testbed.Client)[0]
	c := &stormClient{lab: s.lab, host: h.Name, want: make(chan chan stormSocket), finish: make(chan struct{}),
		open: map[*os.File]netip.AddrPort{}, began: time.Now()}
	err := s.lab.Do(h.Name, func() error {
		for i := range byte(16) {
			a := netip.AddrFrom4([4]byte{203, 0, 113, 200 + i})
			c.addrs = append(c.addrs, a)
			if err := (testbed.AddAddr{Dev: h.NICs[0].Segment, Prefix: netip.PrefixFrom(a, 32)}).Apply(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	main, beside := s.script.main, s.script.beside
	c.pick = func(rng *rand.Rand) lvs.ServiceKey {
		if rng.IntN(16) == 0 {
			return beside[rng.IntN(len(beside))]
		}
		return main[rng.IntN(len(main))]
	}
	return c
}

// openLong opens the long connections and waits until each has met its server.
func (s *storm) openLong(n int, seed uint64) {
	var made sync.WaitGroup
	rng := rand.New(rand.NewPCG(seed, 3))
	for range n {
		key, own := s.client.pick(rng), rand.New(rand.NewPCG(rng.Uint64(), 0))
		made.Add(1)
		s.longs.Go(func() { s.client.long(key, own, made.Done) })
	}
	made.Wait()
}

// stormDrain is how long connections may take to their end once all is there again:
// a packet that was dropped is sent again after up to two minutes.
const stormDrain = 4 * time.Minute

// await waits until every connection has ended.
func (s *storm) await() {
	done := make(chan struct{})
	go func() {
		s.client.running.Wait()
		s.longs.Wait()
		close(done)
	}()
	select {
	case <-done:
		return
	case <-time.After(stormDrain):
	}
	hang := s.client.hanging()
	s.t.Logf("%d connections hang though all servers are there again", len(hang)) // each is judged as one that failed
	told := 0
	for local, is := range hang {
		if told++; told > 10 {
			break
		}
		s.t.Logf("   %s: %s", local, is)
		client := conntrack.Peer{Net: netip.PrefixFrom(local.Addr(), 32), Port: local.Port()}
		for c, err := range s.api.SelectConnections(s.t.Context(), control.ConnQuery{Filter: conntrack.Filter{Client: client}}) {
			s.t.Logf("   of %s the director has %+v %v", local, c, err)
		}
	}
	s.client.cut()
	select {
	case <-done:
	case <-time.After(time.Minute):
		s.t.Fatal("connections do not end by their deadline, either")
	}
}

// report judges every connection.
func (s *storm) report(lasted time.Duration) {
	const told = 3 // of those that failed alike
	alike, excused := map[string]int{}, map[string]int{}
	kept := map[bool]int{}
	failed := 0
	s.servers.mu.Lock()
	defer s.servers.mu.Unlock()
	for i := range s.client.ended {
		c := &s.client.ended[i]
		c.met = s.servers.met[c.local]
		wrong := ""
		if c.err == nil {
			kept[c.long]++
			wrong = s.model.wrongServer(c)
		} else if by := s.model.excuse(c); by != "" {
			excused[by]++
		} else {
			wrong = "the kernel's rules would have kept it"
		}
		if wrong == "" {
			continue
		}
		failed++
		kind := fmt.Sprint(c.long, c.connected == 0, wrong, c.err)
		if alike[kind]++; alike[kind] <= told {
			about := []string{stormName(c.service)}
			for _, i := range c.servers() {
				about = append(about, s.script.pool[i].String())
			}
			s.t.Errorf("%s\n   %s\n%s", c, wrong, s.model.before(c.ended, about...))
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(alike)) {
		if alike[kind] > told {
			s.t.Errorf("%d connections failed so, of which some are told: %s", alike[kind], kind)
		}
	}
	s.t.Logf("%d short connections in %v (%.0f a second; one began up to %v late, %d did not begin since %d were open), %d exchanges on all, %d edits",
		s.client.started.Load(), lasted.Round(time.Millisecond), float64(s.client.started.Load())/lasted.Seconds(), s.client.lag.Round(time.Millisecond),
		s.client.held, stormOpen, s.client.exchanges.Load(), len(s.model.edits))
	s.t.Logf("kept: %d short, %d long; failed: %d", kept[false], kept[true], failed)
	for _, by := range slices.Sorted(maps.Keys(excused)) {
		s.t.Logf("ended by the kernel's rules, too: %d: %s", excused[by], by)
	}
}

// stormLog keeps the end of a log.
type stormLog struct {
	mu   sync.Mutex
	text []byte
}

func (l *stormLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	if over := len(l.text) - 8<<10; over > 0 {
		l.text = l.text[over:]
	}
	return len(p), nil
}

func (l *stormLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}
