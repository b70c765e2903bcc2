package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pktdirector/control"
	"pktdirector/dataplane"
	"pktdirector/dataplane/link"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// reloadBench is a whole director without a host, and its file.
type reloadBench struct {
	*reloader
	t       testing.TB
	told    *logText
	fail    func(lvs.Ruleset) error // what the host says to a ruleset; nil: nothing
	offHost lvs.Ruleset             // what the host is kept off now
}

// logText is a log to read while it is written.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// count returns how often text stands in the log.
func (l *logText) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// since returns the messages of the log from now on, and forgets them.
func (l *logText) since() (messages []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		_, after, _ := strings.Cut(line, "msg=")
		messages = append(messages, strings.TrimSpace(after))
	}
	l.text.Reset()
	return messages
}

// String returns all of the log.
func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

const fileHead = "links: [{name: eth0}, {name: eth1}]\n"

// newReloadBench starts a director of a file.
func newReloadBench(t testing.TB, text string) *reloadBench {
	t.Helper()
	b := &reloadBench{t: t, told: &logText{}}
	file := filepath.Join(t.TempDir(), "director.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := loadConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(b.told, nil))
	s := &source{director: newDirector(1, 1<<16), config: c}
	s.events = newEvents(s.director)
	if err := configure(s.director, c); err != nil {
		t.Fatal(err)
	}
	admin := newAdministration(s, planOf(c), func(r lvs.Ruleset) error {
		if b.fail != nil {
			if err := b.fail(r); err != nil {
				return err
			}
		}
		b.offHost = r
		return nil
	}, log)
	if b.reloader, err = newReloader(file, c, admin, log); err != nil {
		t.Fatal(err)
	}
	b.offHost = s.director.Ruleset()
	return b
}

func (b *reloadBench) director() *dataplane.Director { return b.admin.director.Director }

// write makes text the file, as an editor does.
func (b *reloadBench) write(text string) {
	b.t.Helper()
	if err := os.WriteFile(b.file+".new", []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Rename(b.file+".new", b.file); err != nil {
		b.t.Fatal(err)
	}
}

// byHand runs a command of ipvsadm.
func (b *reloadBench) byHand(line string) {
	b.t.Helper()
	if a := b.admin.Ipvsadm(control.Line{Args: strings.Fields(line)}); a.Code != 0 {
		b.t.Fatalf("ipvsadm %s: %s", line, a.Stderr)
	}
}

// reloaded loads text and expects these lines as the plan.
func (b *reloadBench) reloaded(text string, want ...string) {
	b.t.Helper()
	b.write(text)
	report, err := b.Reload("a test", false)
	if err != nil {
		b.t.Fatal(err)
	}
	var plan strings.Builder
	if err := control.WritePlan(&plan, report.Drift, report.Steps); err != nil {
		b.t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Join(want, "\n"), strings.TrimSpace(plan.String())); diff != "" {
		b.t.Errorf("the plan (-want +got):\n%s", diff)
	}
}

// table lists what is balanced, as ipvsadm saves it, with all settings.
func (b *reloadBench) table() []string {
	saved := b.admin.commander.Do([]string{"-S", "-n"}, "").Stdout
	lines := strings.Split(strings.TrimSpace(saved), "\n")
	slices.Sort(lines)
	tcp, fin, udp := b.director().Timeouts()
	return append(lines, fmt.Sprint(tcp, fin, udp, b.director().SettingValues(), b.director().Ruleset().Marks))
}

// tableOf is the table of a director that is started with text.
func tableOf(t *testing.T, text string) []string { return newReloadBench(t, text).table() }

// stream is a director with 10 established connections to R1 and R2 over links in
// memory, and packets of them.
type stream struct {
	b          *reloadBench
	client     *link.Pipe
	arrived    atomic.Int64
	sent       int64
	clientInfo dataplane.LinkInfo
}

const (
	caseVIP    = "203.0.113.80"
	caseClient = "198.51.100.10"
)

// newStream starts it.
func newStream(b *reloadBench) *stream {
	t := b.t
	t.Helper()
	s := &stream{b: b, clientInfo: dataplane.LinkInfo{Name: "front", MAC: packet.MAC{2, 0, 0, 0, 0, 0xfe}, MTU: 1500}}
	backInfo := dataplane.LinkInfo{Name: "back", MAC: packet.MAC{2, 0, 0, 0, 1, 0xfe}, MTU: 1500}
	front, client := link.NewPipe(s.clientInfo, dataplane.LinkInfo{MAC: packet.MAC{2, 0, 0, 0, 0, 1}, MTU: 65535}, link.PipeOptions{Depth: 1 << 14})
	back, servers := link.NewPipe(backInfo, dataplane.LinkInfo{MAC: packet.MAC{2, 0, 0, 0, 1, 1}, MTU: 65535}, link.PipeOptions{Depth: 1 << 14})
	s.client = client
	d := b.director()
	d.SetHost(dataplane.HostTable{
		Routes: []dataplane.Route{
			{Dst: netip.MustParsePrefix("198.51.100.0/24"), Link: 0}, {Dst: netip.MustParsePrefix("192.0.2.0/24"), Link: 1},
		},
		Addrs: []dataplane.LinkAddr{{Link: 0, Prefix: netip.MustParsePrefix("198.51.100.254/24")}, {Link: 1, Prefix: netip.MustParsePrefix("192.0.2.254/24")}},
	})
	for i := range byte(20) {
		d.Learn(dataplane.Neighbour{Link: 1, Addr: packet.AddrFrom4([]byte{192, 0, 2, i}), MAC: packet.MAC{2, 0, 0, 0, 1, 1}, Permanent: true})
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := link.Run(ctx, d, []dataplane.Link{front, back}, slog.New(slog.DiscardHandler)); err != nil {
			t.Error(err)
		}
	})
	running.Go(func() {
		reader := servers.Readers()[0]
		batch := make([]*packet.Packet, 64)
		for i := range batch {
			batch[i] = &packet.Packet{Buf: make([]byte, 1<<12)}
		}
		for {
			n, err := reader.Read(batch)
			if err != nil {
				return
			}
			for _, p := range batch[:n] {
				if p.EtherType == packet.EtherIPv4 {
					s.arrived.Add(1)
				}
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		front.Close()
		back.Close()
		servers.Close()
		running.Wait()
	})
	return s
}

// send sends a segment of the n-th connection.
func (s *stream) send(n int, flags uint8) {
	p := packettest.Build(s.b.t, packettest.Spec{Src: fmt.Sprintf("%s:%d", caseClient, 40000+n), Dst: caseVIP + ":80", Flags: flags, Seq: 1000, Payload: make([]byte, 10)})
	p.DstMAC = s.clientInfo.MAC
	s.client.NewWriter().Write([]*packet.Packet{p})
	s.sent++
}

// settled waits until all that was sent has arrived, and returns how many packets
// did not.
func (s *stream) settled() int64 {
	for range 500 {
		if s.arrived.Load() == s.sent {
			return 0
		}
		time.Sleep(5 * time.Millisecond)
	}
	return s.sent - s.arrived.Load()
}

// establish opens connections, in DR, where the director sees the client's segments
// alone.
func (s *stream) establish(n int) {
	for i := range n {
		s.send(i, packet.SYN)
		s.send(i, packet.ACK)
	}
	if lost := s.settled(); lost != 0 {
		s.b.t.Fatalf("%d packets lost before anything was changed", lost)
	}
}

// during sends 1,000 packets a second of n connections until the returned function
// is called.
func (s *stream) during(n int) (stop func()) {
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			case <-tick.C:
				s.send(i%n, packet.ACK)
			}
		}
	})
	return func() { close(done); running.Wait() }
}

func caseFile(protocol, servers string) string {
	return fileHead + "services:\n  - {vip: " + caseVIP + ", protocol: " + protocol + ", port: 80, scheduler: rr, method: dr, servers: [" + servers + "]}\n"
}

// Field case 24.
func TestReloadEditsInPlace(t *testing.T) {
	b := newReloadBench(t, caseFile("tcp", "{address: 192.0.2.1, weight: 1}, {address: 192.0.2.2, weight: 1}"))
	s := newStream(b)
	s.establish(10)
	stop := s.during(10)
	time.Sleep(50 * time.Millisecond)
	next := caseFile("tcp", "{address: 192.0.2.1, weight: 9}, {address: 192.0.2.2, weight: 1}, {address: 192.0.2.3, weight: 1}")
	b.reloaded(next,
		"~ server 192.0.2.1:80 of tcp "+caseVIP+":80: weight 1 -> 9",
		"+ server 192.0.2.3:80 of tcp "+caseVIP+":80: weight 1, method dr")
	time.Sleep(50 * time.Millisecond)
	stop()
	if lost := s.settled(); lost != 0 {
		t.Errorf("%d packets of %d lost", lost, s.sent)
	}
	list := b.director().Status()
	if len(list) != 1 || list[0].Stats.Conns != 10 || b.director().Table().Connections != 10 {
		t.Errorf("%d entries, %+v: want 10 entries, and 10 connections counted", b.director().Table().Connections, list)
	}
	weights := map[string]int64{}
	for _, d := range list[0].Destinations {
		weights[d.Server.String()] = d.Weight
		if want := map[string]int64{"192.0.2.1:80": 5, "192.0.2.2:80": 5}[d.Server.String()]; d.Active+d.InAct != want || d.Stats.Conns != uint64(want) {
			t.Errorf("%s has %d connections and counted %d, want %d", d.Server, d.Active+d.InAct, d.Stats.Conns, want)
		}
	}
	if diff := cmp.Diff(map[string]int64{"192.0.2.1:80": 9, "192.0.2.2:80": 1, "192.0.2.3:80": 1}, weights); diff != "" {
		t.Errorf("weights (-want +got):\n%s", diff)
	}

	b.told.since()
	b.reloaded(next)
	if got := b.told.since(); len(got) != 1 || !strings.Contains(got[0], "steps=0") {
		t.Errorf("the same file again: the log says %q; want one line of no step", got)
	}

	b.reloaded(caseFile("udp", "{address: 192.0.2.1, weight: 1}"), "- service tcp "+caseVIP+":80",
		"+ service udp "+caseVIP+":80: scheduler rr", "+ server 192.0.2.1:80 of udp "+caseVIP+":80: weight 1, method dr")
	if list := b.director().Status(); len(list) != 1 || list[0].Service.Proto != packet.UDP {
		t.Errorf("from TCP to UDP: %+v", list)
	}
	if got := b.told.since(); len(got) != 4 {
		t.Errorf("the log says %q, want 3 steps and the end", got)
	}
}

// Field case 68.
func TestReloadLeavesNothingBehind(t *testing.T) {
	two := caseFile("tcp", "{address: 192.0.2.1, weight: 1}, {address: 192.0.2.2, weight: 1}")
	one := caseFile("tcp", "{address: 192.0.2.1, weight: 1}")
	for _, policy := range []string{"restore", "keep"} {
		t.Run(policy, func(t *testing.T) {
			head := "drift: " + policy + "\n"
			b := newReloadBench(t, head+two)
			b.byHand("-e -t " + caseVIP + ":80 -r 192.0.2.2:80 -g -w 0")
			b.reloaded(head+one, "! server 192.0.2.2:80 of tcp "+caseVIP+":80: weight 1 -> 0 by hand: replaced", "- server 192.0.2.2:80 of tcp "+caseVIP+":80")
			if got := b.director().Status()[0].Destinations; len(got) != 1 {
				t.Errorf("the inhibited server that the file lost: %+v", got)
			}
			b.byHand("-D -t " + caseVIP + ":80")
			b.told.since()
			removed := "! service tcp " + caseVIP + ":80, removed by hand: "
			if policy == "keep" {
				b.reloaded(head+one, removed+"kept")
				if got := b.director().Status(); len(got) != 0 {
					t.Errorf("a service that was deleted by hand is back: %+v", got)
				}
				if got := b.told.since(); len(got) != 2 || !strings.Contains(got[0], removed+"kept") {
					t.Errorf("the log says %q", got)
				}
				return
			}
			b.reloaded(head+one, removed+"restored", "+ service tcp "+caseVIP+":80: scheduler rr", "+ server 192.0.2.1:80 of tcp "+caseVIP+":80: weight 1, method dr")
			if diff := cmp.Diff(tableOf(t, one), b.table()); diff != "" {
				t.Errorf("the table (-of the file +got):\n%s", diff)
			}
		})
	}
}

// randomFile draws a file in which R1 and R2 serve on, with whatever weight.
func randomFile(r *rand.Rand, policy string) string {
	var f strings.Builder
	f.WriteString("drift: " + policy + "\n" + fileHead)
	if r.IntN(2) == 0 {
		fmt.Fprintf(&f, "sysctl: {drop_entry: %d, sloppy_tcp: %d}\n", r.IntN(2), r.IntN(2))
	}
	if r.IntN(2) == 0 {
		fmt.Fprintf(&f, "timeouts: {tcp: %d}\n", 800+r.IntN(3))
	}
	f.WriteString("marks: [{fwmark: 7, dst: 203.0.113.81, protocol: tcp, port: 80}")
	if r.IntN(2) == 0 {
		f.WriteString(", {fwmark: 7, dst: 203.0.113.82, protocol: tcp}")
	}
	f.WriteString("]\nservices:\n")
	servers := func(first int) {
		for i := first; i < 8; i++ {
			if r.IntN(2) == 0 {
				fmt.Fprintf(&f, "      - {address: 192.0.2.%d, weight: %d, uthreshold: %d}\n", i, r.IntN(4), r.IntN(2)*100)
			}
		}
	}
	fmt.Fprintf(&f, "  - {vip: %s, protocol: tcp, port: 80, scheduler: %s, method: dr", caseVIP, []string{"rr", "wlc", "sh", "mh"}[r.IntN(4)])
	if r.IntN(2) == 0 {
		f.WriteString(", persistence_timeout: 300")
	}
	fmt.Fprintf(&f, ", servers: [{address: 192.0.2.1, weight: %d}, {address: 192.0.2.2, weight: %d}", r.IntN(3), r.IntN(3))
	if r.IntN(2) == 0 {
		f.WriteString(", {address: 192.0.2.3}")
	}
	f.WriteString("]}\n")
	for _, key := range []string{"vip: 203.0.113.80, protocol: udp, port: 53", "vip: 203.0.113.83, protocol: tcp, port: 443", "fwmark: 7"} {
		if r.IntN(3) == 0 {
			continue
		}
		body := strings.ReplaceAll(key, ", ", "\n    ")
		fmt.Fprintf(&f, "  - %s\n    scheduler: %s\n    method: dr\n", body, []string{"rr", "wrr"}[r.IntN(2)])
		before := f.Len()
		f.WriteString("    servers:\n")
		at := f.Len()
		servers(1)
		if f.Len() == at {
			text := f.String()[:before]
			f.Reset()
			f.WriteString(text)
		}
	}
	return f.String()
}

// handMade are commands that people and scripts run between reloads. Some meet
// nothing to change.
func handMade(r *rand.Rand) string {
	return []string{
		"-e -t " + caseVIP + ":80 -r 192.0.2.2:80 -g -w 0", "-a -t " + caseVIP + ":80 -r 192.0.2.9:80 -g", "-D -u " + caseVIP + ":53", "-d -t " + caseVIP + ":80 -r 192.0.2.3:80",
		"-A -t 203.0.113.99:80 -s rr", "-E -t " + caseVIP + ":80 -s lc", "--set 700 0 0", "-D -t 203.0.113.83:443",
	}[r.IntN(8)]
}

// Field case 68, and the stream of field case 24: 500 reloads at speed with random
// edits, and commands by hand in between.
func TestFiveHundredReloads(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	text := caseFile("tcp", "{address: 192.0.2.1}, {address: 192.0.2.2}")
	b := newReloadBench(t, text)
	s := newStream(b)
	s.establish(10)
	conns := b.director().Status()[indexOf(b, packet.TCP, 80)].Stats.Conns
	stop := s.during(10)
	for i := range 500 {
		if r.IntN(2) == 0 {
			b.admin.Ipvsadm(control.Line{Args: strings.Fields(handMade(r))}) // or refused
		}
		if i%10 == 3 {
			b.write("links: [")
			if _, err := b.Reload("a test", false); err == nil {
				t.Fatal("a file that is none was loaded")
			}
		}
		text = randomFile(r, "restore")
		b.write(text)
		if _, err := b.Reload("a test", false); err != nil {
			t.Fatalf("reload %d: %v\n%s", i, err, text)
		}
		if i%50 == 0 {
			if diff := cmp.Diff(tableOf(t, text), b.table()); diff != "" {
				t.Fatalf("reload %d (-table of the file +table):\n%s", i, diff)
			}
		}
	}
	stop()
	if lost := s.settled(); lost != 0 {
		t.Errorf("%d packets of %d lost in 500 reloads", lost, s.sent)
	}
	t.Logf("%d packets in 500 reloads", s.sent)
	if diff := cmp.Diff(tableOf(t, text), b.table()); diff != "" {
		t.Errorf("at the end (-table of the file +table):\n%s", diff)
	}
	if diff := cmp.Diff(b.director().Ruleset(), b.offHost, cmp.Comparer(func(a, b packet.Addr) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("what the host is kept off is not what is balanced:\n%s", diff)
	}
	if got := b.director().Status()[indexOf(b, packet.TCP, 80)].Stats.Conns; got != conns || b.director().Table().Connections != 10 {
		t.Errorf("%d connections counted and %d entries, want %d and 10", got, b.director().Table().Connections, conns)
	}
}

// New connections meet the servers of before or those of after, and never none. One
// that was given to a server at the moment of its removal has lost it, as any has.
func TestReloadOfAllServersRefusesNobody(t *testing.T) {
	files := []string{caseFile("tcp", "{address: 192.0.2.1}"), caseFile("tcp", "{address: 192.0.2.2}")}
	b := newReloadBench(t, files[0])
	s := newStream(b)
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for port := 0; port < 20000; port++ {
			select {
			case <-done:
				return
			default:
			}
			s.send(port, packet.SYN)
			if port%8 == 0 {
				time.Sleep(100 * time.Microsecond)
			}
		}
	})
	for i := range 400 {
		b.write(files[(i+1)%2])
		if _, err := b.Reload("a test", false); err != nil {
			t.Fatal(err)
		}
	}
	close(done)
	running.Wait()
	lost := s.settled()
	for _, v := range b.director().Verdicts() {
		switch v.Name {
		case "no_destination", "no_service":
			if v.Count != 0 {
				t.Errorf("%s: %d of %d new connections", v.Name, v.Count, s.sent)
			}
		case "destination_gone":
			if int64(v.Count) != lost || lost > s.sent/100 {
				t.Errorf("%d of %d new connections lost, %d of them with their server", lost, s.sent, v.Count)
			}
		}
	}
	t.Logf("%d connections in 400 reloads, %d to a server that was removed at that moment", s.sent, lost)
}

func indexOf(b *reloadBench, proto packet.Proto, port uint16) int {
	return slices.IndexFunc(b.director().Status(), func(s lvs.ServiceStatus) bool {
		return s.Service == lvs.ServiceKey{Proto: proto, VIP: packet.MustParseAddr(caseVIP), Port: port}
	})
}

// A reload that cannot be done in whole is not done at all, wherever it fails.
func TestReloadIsAllOrNothing(t *testing.T) {
	before := caseFile("tcp", "{address: 192.0.2.1, weight: 1}, {address: 192.0.2.2, weight: 1}")
	after := "sysctl: {drop_entry: 3}\ntimeouts: {udp: 9}\n" + strings.Replace(caseFile("udp", "{address: 192.0.2.3}"), "services:\n",
		"services:\n  - {vip: "+caseVIP+", protocol: tcp, port: 80, scheduler: wlc, method: dr, servers: [{address: 192.0.2.2, weight: 5}]}\n", 1)
	for _, c := range []struct{ name, text, want string }{
		{"no YAML", "links: [", "director.yaml:1:"},
		{"an unknown key", after + "colour: red\n", "colour: is not known here"},
		{"a setting out of range", strings.Replace(after, "drop_entry: 3", "drop_entry: 9", 1), `"9" is not a number from 0 to 3`},
		{"another link", strings.Replace(after, "{name: eth1}", "{name: eth2}", 1), "links[1]: eth2 is not as it was, which no reload can change: start the director anew"},
		{"a link less", strings.Replace(after, ", {name: eth1}", "", 1), "links[1]: eth1 is gone, which"},
		{"another socket", after + "control: /run/other.sock\n", "control: was /run/pktdirector/pktdirector.sock and is /run/other.sock, which"},
		{"a route", after + "routes: [{to: 10.0.0.0/8, via: 192.0.2.77, link: eth1}]\n", "routes[0]: 10.0.0.0/8 is new, which"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newReloadBench(t, before)
			was := b.table()
			b.write(c.text)
			if _, err := b.Reload("a test", false); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if diff := cmp.Diff(was, b.table()); diff != "" {
				t.Errorf("it changed (-before +after):\n%s", diff)
			}
			if got := b.told.since(); len(got) == 0 || !strings.Contains(got[0], "not reloaded") {
				t.Errorf("the log says %q", got)
			}
		})
	}
	// The host refuses the first, the second, ... time it is asked.
	for at := 1; ; at++ {
		b := newReloadBench(t, before)
		was, off := b.table(), b.offHost
		asked := 0
		refused := errors.New("the host refuses")
		b.fail = func(lvs.Ruleset) error {
			if asked++; asked == at {
				return refused
			}
			return nil
		}
		b.write(after)
		_, err := b.Reload("a test", false)
		if asked < at {
			if at < 3 {
				t.Errorf("the host was asked %d times alone", asked)
			}
			if err != nil {
				t.Error(err)
			}
			break
		}
		if !errors.Is(err, refused) || !strings.Contains(err.Error(), "nothing was changed") {
			t.Errorf("the host refuses the %d. time: %v", at, err)
		}
		if diff := cmp.Diff(was, b.table()); diff != "" {
			t.Errorf("the host refuses the %d. time, and the director changed (-before +after):\n%s", at, diff)
		}
		if len(b.offHost.Services) != len(off.Services) {
			t.Errorf("the host refuses the %d. time, and is kept off %v", at, b.offHost)
		}
		// Once it can be done, it is.
		b.fail = nil
		if _, err := b.Reload("a test", false); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(tableOf(t, after), b.table()); diff != "" {
			t.Errorf("the next reload (-file +table):\n%s", diff)
		}
	}
}

// Where there is nothing to do, the lists of a report are empty ones for JSON, too.
func TestAReportHasNoNull(t *testing.T) {
	b := newReloadBench(t, caseFile("tcp", "{address: 192.0.2.1, weight: 1}"))
	report, err := b.Reload("a test", false)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(report)
	if err != nil || strings.Contains(string(text), "null") {
		t.Errorf("%v: %s", err, text)
	}
}

// A dry run changes nothing, and tells of what only a start can change beside what
// a reload would do.
func TestADryRunChangesNothing(t *testing.T) {
	b := newReloadBench(t, caseFile("tcp", "{address: 192.0.2.1, weight: 1}"))
	was := b.table()
	b.write(strings.Replace(caseFile("tcp", "{address: 192.0.2.1, weight: 2}"), "name: eth1", "name: eth1, vlan: 7", 1))
	report, err := b.Reload("a test", true)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Steps) != 1 || len(report.Restart) != 1 || report.Restart[0].Place != "links[1]" || !report.DryRun {
		t.Errorf("got %+v", report)
	}
	if diff := cmp.Diff(was, b.table()); diff != "" {
		t.Errorf("a dry run changed (-before +after):\n%s", diff)
	}
	if got := b.told.since(); len(got) != 0 {
		t.Errorf("the log says %q", got)
	}
	b.write("links: [")
	if _, err := b.Reload("a test", true); err == nil {
		t.Error("a dry run of no file")
	}
}

// Settings and timeouts that leave the file are the defaults again; a defence that
// turned itself on is no drift.
func TestReloadTakesSettingsBack(t *testing.T) {
	b := newReloadBench(t, "sysctl: {drop_entry: 1, am_droprate: 5, conn_max: 1000}\ntimeouts: {tcp: 100, udp: 9}\n"+caseFile("tcp", ""))
	if err := b.director().SetTunable("drop_entry", "2"); err != nil {
		t.Fatal(err)
	}
	b.byHand("--set 0 77 0")
	if report, err := b.Drift(); err != nil || len(report.Drift) != 1 || report.Drift[0].String() != "! timeout tcpfin: 120 -> 77 by hand" {
		t.Errorf("drift %v, %v", report.Drift, err)
	}
	b.reloaded(caseFile("tcp", ""), "! timeout tcpfin: 120 -> 77 by hand: restored", "~ sysctl am_droprate: 5 -> 10", "~ sysctl conn_max: 1000 -> 0",
		"~ sysctl drop_entry: 1 -> 0", "~ timeout tcp: 100 -> 900", "~ timeout tcpfin: 77 -> 120", "~ timeout udp: 9 -> 300")
	if diff := cmp.Diff(tableOf(t, caseFile("tcp", "")), b.table()); diff != "" {
		t.Errorf("settings (-defaults +got):\n%s", diff)
	}
	if a := b.admin.Ipvsadm(control.Line{Args: []string{"-L", "--timeout"}}); a.Stdout != "Timeout (tcp tcpfin udp): 900 120 300\n" {
		t.Errorf("ipvsadm says %q", a.Stdout)
	}
	if got := b.director().Table().Max; got != 1<<16 {
		t.Errorf("the largest number of connections is %d", got)
	}
}
