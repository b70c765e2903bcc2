package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"pktdirector/capture/judge"
	"pktdirector/testbed"
	"pktdirector/testbed/nstest"
)

var keepCaptures = flag.Bool("keep-captures", false, "write the labs' captures into capture/judge/testdata")

// filmed is a lab whose director's interfaces are captured.
type filmed struct {
	*testbed.Lab
	t      *testing.T
	files  []string
	cmds   []*exec.Cmd
	served map[string]int // connections by the server that answered
	failed int
}

// film builds a lab, starts servers and a director whose configuration is changed by
// config, and captures on each of its interfaces, or on all as one, so many bytes of
// a packet.
func film(t *testing.T, name string, config func(string) string, all bool, snaplen int) *filmed {
	t.Helper()
	if _, err := exec.LookPath("tcpdump"); err != nil {
		nstest.Require(t, "tcpdump is missing: apt-get install tcpdump")
	}
	nstest.New(t)
	top, err := testbed.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	lab, err := testbed.Build(top, testbed.Options{Link: testbed.AFPacket, Program: program(t)})
	if err != nil {
		t.Fatal(err)
	}
	l := &filmed{Lab: lab, t: t, served: map[string]int{}}
	t.Cleanup(func() {
		if err := lab.Close(); err != nil {
			t.Error(err)
		}
	})
	dir := t.TempDir()
	names := []string{"any"}
	if !all {
		names = nil
		for _, nic := range top.With(testbed.Director)[0].NICs {
			names = append(names, nic.Segment)
		}
	}
	for _, nic := range names {
		const buffer = "32768" // KiB: a slot of the ring is as large as the snaplen
		file := filepath.Join(dir, nic+".pcap")
		l.files = append(l.files, file)
		cmd := exec.Command("tcpdump", "-i", nic, "-s", strconv.Itoa(snaplen), "-B", buffer, "-U", "-w", file, "-Z", "root", "--immediate-mode")
		if err := lab.Start("director", cmd); err != nil {
			t.Fatal(err)
		}
		l.cmds = append(l.cmds, cmd)
	}
	for i := 0; len(l.files) > 0; i++ {
		if fileThere(l.files) {
			break
		}
		if i > 200 {
			t.Fatal("tcpdump does not begin")
		}
		time.Sleep(25 * time.Millisecond)
	}
	if err := lab.StartServers(t.Context()); err != nil {
		t.Fatal(err)
	}
	if config == nil {
		if _, err := lab.StartDirector(t.Context()); err != nil {
			t.Fatal(err)
		}
		return l
	}
	file := filepath.Join(dir, "director.yaml")
	if err := os.WriteFile(file, []byte(config(top.DirectorYAML(testbed.AFPacket))), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program(t), "run", "-c", file)
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := lab.Start("director", cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
	})
	ready := make(chan bool, 1)
	go func() { // ends with the director
		var said strings.Builder
		b := make([]byte, 4096)
		for {
			n, err := log.Read(b)
			said.Write(b[:n])
			if strings.Contains(said.String(), "ready") {
				select {
				case ready <- true:
				default:
				}
			}
			if err != nil {
				return
			}
		}
	}()
	select {
	case <-ready:
	case <-time.After(20 * time.Second):
		t.Fatal("the director is not ready")
	}
	return l
}

// fileThere reports whether every capture has begun.
func fileThere(files []string) bool {
	for _, f := range files {
		if info, err := os.Stat(f); err != nil || info.Size() < 24 {
			return false
		}
	}
	return true
}

// ask asks for the server's name from the address and port, both of which may be
// zero, and sends extra bytes as the body.
func (l *filmed) ask(from netip.AddrPort, extra int) (server string, err error) {
	target := l.Topology.Target(l.Topology.HTTP)
	err = l.Do("client", func() error {
		d := net.Dialer{Timeout: 3500 * time.Millisecond}
		if from.IsValid() {
			d.LocalAddr = net.TCPAddrFromAddrPort(from)
			d.Control = func(_, _ string, c syscall.RawConn) error {
				return c.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
			}
		}
		c, err := d.DialContext(context.Background(), "tcp4", target)
		if err != nil {
			return err
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(4 * time.Second))
		request := "GET / HTTP/1.1\r\nHost: lab\r\n\r\n" // the client ends the connection
		if extra > 0 {
			request = fmt.Sprintf("PUT /upload HTTP/1.1\r\nHost: lab\r\nContent-Length: %d\r\n\r\n%s", extra, strings.Repeat("x", extra))
		}
		if _, err := io.WriteString(c, request); err != nil {
			return err
		}
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return err
		}
		b, err := io.ReadAll(answer.Body)
		server = strings.TrimSpace(string(b))
		if extra > 0 && err == nil {
			var told struct{ Server string }
			err = json.Unmarshal(b, &told)
			server = told.Server
		}
		return err
	})
	if err != nil {
		l.failed++
	} else {
		l.served[server]++
	}
	return server, err
}

// clients gives the client more addresses, and returns them.
func (l *filmed) clients(n int) []netip.Addr {
	l.t.Helper()
	host, err := l.Topology.Host("client")
	if err != nil {
		l.t.Fatal(err)
	}
	all := []netip.Addr{host.Addr()}
	err = l.Do("client", func() error {
		link, err := netlink.LinkByName(host.NICs[0].Segment)
		if err != nil {
			return err
		}
		for a := host.Addr().Next(); len(all) < n; a = a.Next() {
			if a == l.Topology.VIP {
				continue
			}
			addr, err := netlink.ParseAddr(netip.PrefixFrom(a, host.NICs[0].Address.Bits()).String())
			if err != nil {
				return err
			}
			if err := netlink.AddrAdd(link, addr); err != nil {
				return err
			}
			all = append(all, a)
		}
		return nil
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return all
}

// forget makes a host forget its neighbours.
func (l *filmed) forget(host string) {
	l.t.Helper()
	err := l.Do(host, func() error {
		list, err := netlink.NeighList(0, netlink.FAMILY_V4)
		for _, n := range list {
			if n.State&(netlink.NUD_PERMANENT|netlink.NUD_NOARP) == 0 {
				err = errors.Join(err, netlink.NeighDel(&n))
			}
		}
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

// stop ends the captures.
func (l *filmed) stop() {
	l.t.Helper()
	for _, cmd := range l.cmds {
		cmd.Process.Signal(syscall.SIGINT)
		if err := cmd.Wait(); err != nil {
			l.t.Fatal(err)
		}
	}
}

// end ends the captures and judges them.
func (l *filmed) end(name string) *judge.Report {
	l.t.Helper()
	l.stop()
	report, err := judged(l.t.Context(), l.files, &replayOptions{connections: 1000}, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	if *keepCaptures {
		for _, f := range l.files {
			b, err := os.ReadFile(f)
			if err != nil {
				l.t.Fatal(err)
			}
			to := filepath.Join("../../capture/judge/testdata/lab", name, filepath.Base(f))
			if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, b, 0o644)); err != nil {
				l.t.Fatal(err)
			}
		}
	}
	for _, f := range report.Findings {
		l.t.Logf("%s: %s %v", f.Code, f.Text, f.Packets)
	}
	return report
}

// lab is a lab of which captures are made: how, and what is to be found.
type labCase struct {
	name, lab, mode string
	code            judge.Code // empty: nothing
	config          func(string) string
	sabotage        string
	any             bool // captured as -i any does
	play            func(*filmed)
}

// roundRobin makes the scheduler rr and adds lines to a configuration.
func roundRobin(lines string) func(string) string {
	return func(s string) string { return strings.ReplaceAll(s, "scheduler: wlc", "scheduler: rr") + lines }
}

// some asks a few times.
func some(l *filmed) {
	for range 6 {
		l.ask(netip.AddrPort{}, 0)
	}
	l.ask(netip.AddrPort{}, 60_000)
}

// someOfAll asks by UDP, too.
func someOfAll(l *filmed) {
	some(l)
	if _, err := l.Output(l.t.Context(), "client", "lab", "client", "echo", l.Topology.Target(l.Topology.Echo), "-n", "6"); err != nil {
		l.t.Error(err)
	}
}

// knock tries a port of the VIP.
func (l *filmed) knock(port string) {
	_ = l.Do("client", func() error { // that it is refused is what it is for
		c, err := net.DialTimeout("tcp4", net.JoinHostPort(l.Topology.VIP.String(), port), time.Second)
		if err == nil {
			c.Close()
		}
		return err
	})
}

// down ends what serves on a host.
func (l *filmed) down(host string) {
	l.t.Helper()
	n := 0
	for _, p := range l.Processes() {
		if p.Host == host && strings.Contains(strings.Join(p.Args, " "), "serve") {
			n++
			if err := p.Stop(); err != nil {
				l.t.Fatal(err)
			}
		}
	}
	if n == 0 {
		l.t.Fatalf("nothing serves on %s", host)
	}
}

// unplug takes a host off its segment.
func (l *filmed) unplug(host string) {
	l.t.Helper()
	h, err := l.Topology.Host(host)
	if err != nil {
		l.t.Fatal(err)
	}
	err = l.Do(host, func() error {
		link, err := netlink.LinkByName(h.NICs[0].Segment)
		if err != nil {
			return err
		}
		return netlink.LinkSetDown(link)
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

func reusePorts(l *filmed) {
	host, _ := l.Topology.Host("client")
	reuse := testbed.Sysctl{Key: "net.ipv4.tcp_tw_reuse", Value: "1"}
	if err := l.Do("client", reuse.Apply); err != nil {
		l.t.Fatal(err)
	}
	for i, port := range []uint16{0, 1, 2, 3, 4, 5, 6, 7, 2, 7, 1, 0, 3, 6, 5, 4} {
		if i == 8 {
			time.Sleep(1200 * time.Millisecond) // TIME_WAIT is cut short after a second
		}
		l.ask(netip.AddrPortFrom(host.Addr(), 40000+port), 0)
	}
}

func labCases() []labCase {
	return []labCase{
		{name: "nat", lab: "nat", mode: "nat", play: someOfAll},
		{name: "nat-onearm", lab: "nat-onearm", mode: "nat", play: someOfAll},
		{name: "dr", lab: "dr", mode: "dr", play: someOfAll},
		{name: "tun", lab: "tun", mode: "tun", play: someOfAll},
		{name: "nat-any", lab: "nat", mode: "nat", any: true, play: someOfAll},
		{name: "tun-any", lab: "tun", mode: "tun", any: true, play: someOfAll},
		{name: "nat-closed-port", lab: "nat", mode: "nat", play: func(l *filmed) {
			some(l)
			l.knock("9999")
			l.knock("9999")
		}},
		{name: "server-down-nat", lab: "nat", mode: "nat", code: judge.ServerReset, play: func(l *filmed) { l.down("rs2"); some(l) }},
		{name: "server-down-dr", lab: "dr", mode: "dr", code: judge.ServerReset, play: func(l *filmed) {
			l.down("rs2")
			some(l)
			time.Sleep(500 * time.Millisecond) // a handshake would be through
			some(l)
		}},
		{name: "server-gone-nat", lab: "nat", mode: "nat", code: judge.ServerNoARP, play: func(l *filmed) { l.unplug("rs3"); some(l) }},
		{name: "server-gone-dr", lab: "dr", mode: "dr", code: judge.ServerNoARP, play: func(l *filmed) { l.unplug("rs3"); some(l) }},
		{name: "replies-via-director", lab: "dr", mode: "dr", code: judge.ReplyViaDirector, sabotage: "replies-via-director", play: some},
		{name: "no-server", lab: "nat", mode: "nat", code: judge.NoServer, play: func(l *filmed) {
			some(l)
			if out, code := exitCode(l.t, l.Lab, "director", "ipvsadm", "-C"); code != 0 {
				l.t.Fatal(out)
			}
			if out, code := exitCode(l.t, l.Lab, "director", "ipvsadm", "-A", "-t", l.Topology.Target(l.Topology.HTTP), "-s", "rr"); code != 0 {
				l.t.Fatal(out)
			}
			some(l)
		}},
		{name: "ports-reused", lab: "nat", mode: "nat", play: reusePorts},
		{name: "ports-reused-rr", lab: "nat", mode: "nat", play: reusePorts, config: roundRobin("")},
		{name: "arp-open", lab: "dr", mode: "dr", code: judge.ARPConflict, sabotage: "arp-open", play: func(l *filmed) {
			for range 6 {
				l.forget("router")
				l.ask(netip.AddrPort{}, 0)
			}
			time.Sleep(2 * time.Second)
		}},
		{name: "wrong-gateway", lab: "nat-onearm", mode: "nat", code: judge.ReplyBypass, sabotage: "replies-lost", play: some},
		{name: "vip-missing", lab: "dr", mode: "dr", code: judge.VIPMissing, sabotage: "vip-missing", play: some},
		{name: "vip-missing-tun", lab: "tun", mode: "tun", code: judge.VIPMissing, sabotage: "vip-missing", play: some},
		{name: "mtu-blackhole", lab: "nat", mode: "nat", code: judge.MTUBlackHole, sabotage: "mtu-blackhole", play: func(l *filmed) {
			for range 3 {
				l.ask(netip.AddrPort{}, 8_000)
			}
		}},
		{name: "port-reuse", lab: "nat", mode: "nat", code: judge.PortReuse, play: reusePorts,
			config: roundRobin("sysctl:\n  net.ipv4.vs.conn_reuse_mode: 0\n")},
		{name: "weight0", lab: "nat", mode: "nat", code: judge.WeightZero,
			config: func(s string) string {
				return strings.Replace(strings.Replace(s, "scheduler: wlc", "scheduler: rr\n    persistence_timeout: 600", 1), "weight: 2", "weight: 1", 1)
			},
			play: func(l *filmed) {
				all := l.clients(18)
				for _, a := range all[:6] {
					l.ask(netip.AddrPortFrom(a, 0), 0)
				}
				if out, code := exitCode(l.t, l.Lab, "director", "ipvsadm", "-e", "-t", "203.0.113.80:80", "-r", "10.0.0.13:8080", "-m", "-w", "0"); code != 0 {
					l.t.Fatal(out)
				}
				for i, a := range all {
					l.ask(netip.AddrPortFrom(a, 0), 0)
					l.ask(netip.AddrPortFrom(all[i%6], 0), 0)
				}
			}},
	}
}

// compareServers holds the servers that connections are said to have had against
// those that answered the client.
func (l *filmed) compareServers(r *judge.Report) {
	l.t.Helper()
	got := map[string]int{}
	for _, c := range r.Connections {
		for _, h := range l.Topology.With(testbed.RealServer) {
			if c.Protocol == "TCP" && c.Server == netip.AddrPortFrom(h.Addr(), l.Topology.HTTP.Listen()).String() {
				got[h.Name]++
			}
		}
	}
	if !maps.Equal(got, l.served) {
		l.t.Errorf("servers got %v, the client was answered by %v", got, l.served)
	}
}

// TestReplayJudgesLabs: captures of each lab, healthy and broken, taken on the
// director. What is wrong is found by name, and first; in healthy ones nothing is,
// and every connection's server is the one that answered the client.
func TestReplayJudgesLabs(t *testing.T) {
	program(t)
	for i, c := range labCases() {
		if testing.Short() && i%6 != 0 {
			continue // a part of them shows the races there are
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			l := film(t, c.lab, c.config, c.any, 96)
			breakIt, err := testbed.FindSabotage(c.sabotage)
			if err != nil {
				t.Fatal(err)
			}
			if breakIt != nil {
				if err := breakIt(l.Lab); err != nil {
					t.Fatal(err)
				}
			}
			c.play(l)
			time.Sleep(300 * time.Millisecond)
			r := l.end(c.name)
			if r.Mode != c.mode || r.VIP != l.Topology.VIP.String() {
				t.Errorf("mode %s, VIP %s; it is %s, %s", r.Mode, r.VIP, c.mode, l.Topology.VIP)
			}
			switch {
			case c.code == "" && len(r.Findings) > 0:
				t.Errorf("findings in a healthy lab: %v", r.Findings)
			case c.code != "" && (len(r.Findings) == 0 || r.Findings[0].Code != c.code):
				t.Errorf("findings %v, the first should be %s", r.Findings, c.code)
			}
			if c.code == "" && l.failed > 0 {
				t.Errorf("%d connections failed", l.failed)
			}
			if c.code == "" {
				l.compareServers(r)
			}
		})
	}
}
