package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"
	"github.com/vishvananda/netlink"

	"pktdirector/control"
	"pktdirector/dataplane"
	"pktdirector/testbed"
	"pktdirector/testbed/traffic"
)

// killsEnv has TestKilledAtRandomMoments kill another number of times: "50". A second
// number is the seed of a test to repeat, as far as its moments go.
const killsEnv = "PKTDIRECTOR_KILLS"

// A director is killed at random moments, while it starts, too, with long connections, a
// stream of short ones, and edits by hand. It always starts again; what was in its last
// snapshot is there: connections, counters and rules; and in the end nothing is left on
// the host.
func TestKilledAtRandomMoments(t *testing.T) {
	kills, seed := 5, rand.Uint64()
	if testing.Short() {
		kills = 3
	}
	if text := os.Getenv(killsEnv); text != "" {
		if n, err := fmt.Sscan(text, &kills, &seed); n < 1 || kills < 1 {
			t.Fatalf("%s=%q (%v): write KILLS [SEED]", killsEnv, text, err)
		}
	}
	t.Logf("to repeat it: %s=%q", killsEnv, fmt.Sprint(kills, seed))
	top := topology(t, "nat")
	for _, kind := range kinds(t, top) {
		t.Run(kind.String(), func(t *testing.T) {
			requireLink(t, top, kind)
			k := newKillLab(t, top, kind, seed)
			before := k.host()
			stop := k.short()
			for range kills {
				k.life()
			}
			k.last()
			stop()
			if diff := cmp.Diff(before, k.host()); diff != "" {
				t.Errorf("after the last stop (-before +after):\n%s", diff)
			}
			t.Logf("killed %d times, %d of them before it was ready; %d long connections went on over %d starts, at most %d at once; %d younger than the last snapshot were lost; %d short ones ended well, %d did not; %d edits",
				kills, k.early, k.went, k.ready, k.most, k.young, k.ended.Load(), k.failed.Load(), k.edits)
		})
	}
}

// killLab is a director on a lab's host, and those who use it.
type killLab struct {
	t            *testing.T
	l            *testbed.Lab
	rng          *rand.Rand
	hostName     string // the director's
	client       string
	target       traffic.Client
	server       string // of whose weight edits are
	file, socket string
	config       *control.Config
	api          *control.Client

	long   []longConnection
	weight int // that was set last

	early, ready, went, most, young, edits int
	ended, failed                          atomic.Int64
}

// longConnection is one that is kept open. Its client's port may have been a short one's
// before.
type longConnection struct {
	*traffic.Connections
	opened time.Time
}

func newKillLab(t *testing.T, top *testbed.Topology, kind testbed.LinkKind, seed uint64) *killLab {
	t.Helper()
	l := lab(t, top, kind, func(*testbed.Lab) bool { return false })
	dir := t.TempDir()
	k := &killLab{t: t, l: l, rng: rand.New(rand.NewPCG(seed, 7)), hostName: top.With(testbed.Director)[0].Name, client: top.With(testbed.Client)[0].Name,
		target: traffic.Client{Target: top.Target(top.HTTP), Timeout: time.Minute},
		server: fmt.Sprintf("%s:%d", top.With(testbed.RealServer)[0].Addr(), top.HTTP.Listen()),
		file:   filepath.Join(dir, "director.yaml"), socket: filepath.Join(dir, "d.sock"), weight: 1}
	text := "control: " + k.socket + "\nsnapshot: {every: 1}\n" + top.DirectorYAML(kind)
	if err := os.WriteFile(k.file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	var err error
	if k.config, err = control.Parse(k.file, []byte(text)); err != nil {
		t.Fatal(err)
	}
	k.api = control.NewClient(k.socket)
	t.Cleanup(func() {
		for _, c := range k.long {
			c.Close()
		}
	})
	return k
}

// host lists all that a director may leave on its host, and in its folder beside the
// snapshot.
func (k *killLab) host() (found []string) {
	k.t.Helper()
	if err := k.l.Do(k.hostName, func() (err error) {
		if found, err = changeable(); err != nil {
			return err
		}
		tables, err := (&nftables.Conn{}).ListTables()
		for _, t := range tables {
			found = append(found, "nftables table "+t.Name)
		}
		routes, err2 := netlink.RouteList(nil, netlink.FAMILY_ALL)
		for _, r := range routes {
			found = append(found, fmt.Sprint("route ", r.Dst, " by ", r.LinkIndex))
		}
		addrs, err3 := netlink.AddrList(nil, netlink.FAMILY_ALL)
		for _, a := range addrs {
			found = append(found, "address "+a.String())
		}
		proxies, err4 := netlink.NeighProxyList(0, netlink.FAMILY_ALL)
		for _, n := range proxies {
			found = append(found, "proxy "+n.String())
		}
		return errors.Join(err, err2, err3, err4)
	}); err != nil {
		k.t.Fatal(err)
	}
	slices.Sort(found)
	return append(found, besideSnapshots(filepath.Dir(k.socket))...)
}

// short opens connections one after the other until it is told to stop. Those that a
// kill comes upon may fail.
func (k *killLab) short() (stop func()) {
	ctx, cancel := context.WithCancel(k.t.Context())
	var done sync.WaitGroup
	client := k.target
	client.Timeout = 2 * time.Second
	for range 4 {
		done.Go(func() {
			for ctx.Err() == nil {
				var c *traffic.Connections
				err := k.l.Do(k.client, func() (err error) { c, err = client.Open(ctx, 1); return err })
				if c != nil {
					err = errors.Join(err, c.Close())
				}
				if err == nil {
					k.ended.Add(1)
				} else {
					k.failed.Add(1)
				}
			}
		})
	}
	stop = func() { cancel(); done.Wait() }
	k.t.Cleanup(stop)
	return stop
}

// director is one that was started.
type killable struct {
	cmd   *exec.Cmd
	ready chan struct{} // closed when it is
	ended chan struct{} // closed when its log ends
	mu    sync.Mutex
	log   strings.Builder
}

func (d *killable) said() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.log.String()
}

func (k *killLab) start() *killable {
	k.t.Helper()
	program(k.t)
	d := &killable{cmd: exec.Command(executable(k.t), "run", "-c", k.file), ready: make(chan struct{}), ended: make(chan struct{})}
	log, stderr, err := os.Pipe()
	if err != nil {
		k.t.Fatal(err)
	}
	d.cmd.Stderr = stderr
	err = k.l.Start(k.hostName, d.cmd)
	stderr.Close()
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { d.cmd.Process.Kill(); d.cmd.Wait() })
	go func() {
		defer close(d.ended)
		defer log.Close()
		is := false
		for lines := bufio.NewReader(log); ; {
			line, err := lines.ReadString('\n')
			d.mu.Lock()
			d.log.WriteString(line)
			d.mu.Unlock()
			if strings.Contains(line, `"msg":"ready"`) && !is {
				is = true
				close(d.ready)
			}
			if err != nil {
				return
			}
		}
	}()
	return d
}

// kill ends the director as nothing else does.
func (d *killable) kill() {
	d.cmd.Process.Kill()
	d.cmd.Wait()
	<-d.ended
}

// life starts a director, has it work, and kills it.
func (k *killLab) life() {
	k.t.Helper()
	promised := k.promised()
	d := k.start()
	if k.rng.IntN(4) == 0 {
		select {
		case <-d.ready:
		case <-d.ended:
			k.t.Fatalf("the director ended by itself:\n%s", d.said())
		case <-time.After(time.Duration(k.rng.IntN(400)) * time.Millisecond):
			k.early++
		}
		d.kill()
		return
	}
	k.check(d, promised)
	// A new connection and a new rule, which will be in a snapshot, or not.
	k.open()
	k.edit()
	time.Sleep(time.Duration(k.rng.IntN(2500)) * time.Millisecond) // the moment is random
	d.kill()
}

// last is the last life: the director is not killed.
func (k *killLab) last() {
	k.t.Helper()
	promised := k.promised()
	d := k.start()
	k.check(d, promised)
	k.open()
	k.edit()
	stop := func(d *killable) {
		d.cmd.Process.Signal(syscall.SIGTERM)
		if err := d.cmd.Wait(); err != nil {
			k.t.Errorf("stopped: %v\n%s", err, d.said())
		}
		<-d.ended
	}
	stop(d)
	// A clean stop loses nothing, however young it is.
	all := k.promised()
	all.taken = time.Now().Add(time.Hour)
	k.kept(all)
	if want := fmt.Sprintf("%s=%d", k.server, k.weight); !strings.Contains(all.rules, want) {
		k.t.Errorf("the snapshot of a clean stop has\n%s\nwant %s", all.rules, want)
	}
	d = k.start()
	k.check(d, all)
	stop(d)
}

// promise is what is in a snapshot.
type promise struct {
	there   bool
	taken   time.Time               // when the snapshot was begun
	conns   map[netip.AddrPort]bool // clients
	rules   string
	counted uint64 // connections
}

// promised reads the snapshot that the next director will go on from.
func (k *killLab) promised() promise {
	k.t.Helper()
	b, err := restoreFile(snapshotFile(k.config), 1<<30, k.config, 1<<16)
	if errors.Is(err, os.ErrNotExist) {
		return promise{}
	}
	if err != nil {
		k.t.Fatalf("a director that was killed left a snapshot that is none: %v", err)
	}
	p := promise{true, time.Now().Add(-b.passed), map[netip.AddrPort]bool{}, rules(b.director), 0}
	b.director.Conns(func(c dataplane.ConnStatus) bool {
		p.conns[netip.AddrPortFrom(c.Client.Netip(), c.ClientPort)] = true
		return true
	})
	for _, s := range b.director.Status() {
		p.counted += s.Stats.Conns
	}
	return p
}

// kept sees whether a snapshot has what was opened before it was begun.
func (k *killLab) kept(p promise) {
	k.t.Helper()
	for _, c := range k.long {
		if p.keeps(c) && !p.conns[c.Addrs()[0]] {
			k.t.Errorf("a connection from %v is not in the snapshot, which was begun %v after it was opened", c.Addrs()[0], p.taken.Sub(c.opened))
		}
	}
}

// keeps reports whether a connection is older than the snapshot.
func (p promise) keeps(c longConnection) bool {
	const doubt = 50 * time.Millisecond // of when exactly the snapshot was begun
	return p.there && c.opened.Add(doubt).Before(p.taken)
}

// check waits until a director is ready, and sees whether it keeps what was promised.
func (k *killLab) check(d *killable, p promise) {
	k.t.Helper()
	select {
	case <-d.ready:
	case <-d.ended:
		k.t.Fatalf("the director did not start again:\n%s", d.said())
	}
	k.ready++
	if said := d.said(); p.there != strings.Contains(said, "goes on from a snapshot") || strings.Contains(said, "cannot be used") {
		k.t.Errorf("there was a snapshot: %t; the director says\n%s", p.there, said)
	}
	status, err := k.api.Status(k.t.Context())
	if err != nil {
		k.t.Fatal(err)
	}
	if status.Stats.Conns < p.counted {
		k.t.Errorf("%d connections are counted, %d were", status.Stats.Conns, p.counted)
	}
	if p.there {
		export, err := k.api.Export(k.t.Context())
		if err != nil {
			k.t.Fatal(err)
		}
		c, err := control.Parse("export", []byte(export.Config))
		if err != nil {
			k.t.Fatal(err)
		}
		if got := rulesText(c.Ruleset); got != p.rules {
			k.t.Errorf("balanced is\n%s\nthe snapshot had\n%s", got, p.rules)
		}
	}
	k.kept(p)
	var kept []longConnection
	for _, c := range k.long {
		err := c.Again()
		switch {
		case err == nil:
			kept = append(kept, c)
			if p.keeps(c) {
				k.went++
			}
			continue
		case p.keeps(c):
			k.t.Errorf("a connection that is in the snapshot: %v", err)
		default:
			k.young++
		}
		c.Close()
	}
	k.long = kept
	k.most = max(k.most, len(kept))
}

// open opens a long connection.
func (k *killLab) open() {
	k.t.Helper()
	if err := k.l.Do(k.client, func() error {
		c, err := k.target.Open(k.t.Context(), 1)
		if err != nil {
			c.Close()
			return err
		}
		k.long = append(k.long, longConnection{c, time.Now()})
		return nil
	}); err != nil {
		k.t.Fatalf("a long connection: %v", err)
	}
}

// edit changes a weight by hand.
func (k *killLab) edit() {
	k.t.Helper()
	k.weight++
	k.edits++
	answer, err := k.api.Ipvsadm(k.t.Context(), control.Line{Args: []string{"-e", "-t", k.target.Target, "-r", k.server, "-m", "-w", fmt.Sprint(k.weight)}})
	if err != nil || answer.Code != 0 {
		k.t.Fatalf("an edit: %v, %s", err, answer.Stderr)
	}
}
