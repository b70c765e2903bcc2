package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pktdirector/conntrack"
	"pktdirector/control"
	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// shown is a director without links, whose API is served, and its clock.
type shown struct {
	t      *testing.T
	d      *dataplane.Director
	w      *dataplane.Worker
	socket string
}

// newShown has two services of two servers each: TCP port 80 by NAT and, persistent,
// port 81 by DR.
func newShown(t *testing.T) *shown {
	t.Helper()
	d := newDirector(1, 1000)
	d.SetLinks([]dataplane.LinkInfo{{Name: "eth0", MTU: 1500}})
	d.SetHost(dataplane.HostTable{Routes: []dataplane.Route{{Dst: netip.MustParsePrefix("0.0.0.0/0"), Link: 0}}})
	var set lvs.Ruleset
	for port, m := range map[uint16]lvs.Method{80: lvs.Masq, 81: lvs.Route} {
		s := lvs.VirtualService{ServiceKey: lvs.ServiceKey{Proto: packet.TCP, VIP: packet.MustParseAddr("192.0.2.10"), Port: port}, Scheduler: "rr"}
		for _, rip := range []string{"10.2.0.1", "10.2.0.2"} {
			s.Servers = append(s.Servers, lvs.RealServer{ServerKey: lvs.ServerKey{RIP: packet.MustParseAddr(rip), Port: port}, Method: m, Weight: 1})
		}
		if port == 81 {
			s.Persist = 5 * time.Minute
		}
		set.Services = append(set.Services, s)
	}
	if err := d.Apply(set); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	src := &source{director: d, config: &control.Config{}, began: time.Now()}
	src.Admin = &administration{director: &guarded{Director: d}, log: log}
	s := &shown{t, d, d.NewWorker(), filepath.Join(t.TempDir(), "d.sock")}
	api, err := control.Listen(s.socket, src, log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- api.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

// syn has a client begin a connection at engine time now.
func (s *shown) syn(now time.Duration, from, to string) {
	p := packettest.Build(s.t, packettest.Spec{Src: from, Dst: to, Flags: packet.SYN})
	s.w.Process([]*packet.Packet{p}, now)
}

// run executes a command line and returns what it printed.
func (s *shown) run(args ...string) (string, error) {
	root := newRootCommand()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(io.Discard)
	root.SetArgs(append(args, "--control", s.socket))
	err := root.ExecuteContext(s.t.Context())
	return out.String(), err
}

func TestListingAndKillingConnections(t *testing.T) {
	s := newShown(t)
	s.syn(0, "198.51.100.7:40000", "192.0.2.10:80")
	s.syn(10*time.Second, "198.51.100.7:40001", "192.0.2.10:80")
	s.syn(20*time.Second, "198.51.100.8:40000", "192.0.2.10:81")
	s.w.Tick(30 * time.Second)
	for _, step := range []struct {
		args string
		want string // what is printed
	}{
		{"list --protocol tcp --kind connections --sort age", `Pro Client             VIP           Server      Forward State    Age Idle Expires InPkts InBytes OutPkts OutBytes
TCP 198.51.100.7:40000 192.0.2.10:80 10.2.0.2:80 Masq    SYN_RECV 30s  30s     30s      1      40       0        0
TCP 198.51.100.7:40001 192.0.2.10:80 10.2.0.1:80 Masq    SYN_RECV 20s  20s     40s      1      40       0        0
TCP 198.51.100.8:40000 192.0.2.10:81 10.2.0.2:81 Route   SYN_RECV 10s  10s     50s      1      40     n/a      n/a
`},
		{"list --kind templates", `Pro Client         VIP           Server      Forward State Age Idle Expires InPkts InBytes OutPkts OutBytes
TCP 198.51.100.8:0 192.0.2.10:81 10.2.0.2:81 Route   NONE  10s  10s   4m50s      -       -       -        -
`},
		{"list -c", `IPVS connection entries
pro expire state       source             virtual            destination
TCP 04:50  NONE        198.51.100.8:0     192.0.2.10:81      10.2.0.2:81
TCP 00:50  SYN_RECV    198.51.100.8:40000 192.0.2.10:81      10.2.0.2:81
TCP 00:30  SYN_RECV    198.51.100.7:40000 192.0.2.10:80      10.2.0.2:80
TCP 00:40  SYN_RECV    198.51.100.7:40001 192.0.2.10:80      10.2.0.1:80
`},
		{"list --vip 192.0.2.11 --json", "[]\n"},
		{"kill --younger 25s --dry-run", "would end 2 connections\n"},
		{"kill --service tcp-192.0.2.10-80 --server 10.2.0.2", "ended 1 connection\n"},
		{"kill --affinity --client 198.51.100.8", "ended 1 binding of clients\n"},
		{"kill 198.51.100.7:40001 192.0.2.10:80 tcp", "ended 1 connection\n"},
		{"kill --all --json", "{\n  \"connections\": 1,\n  \"templates\": 0\n}\n"},
		{"kill --all", "ended 0 connections\n"},
	} {
		got, err := s.run(strings.Fields(step.args)...)
		if step.args == "list -c" {
			got, step.want = sortedLines(got), sortedLines(step.want) // in the order of a hash
		}
		if err != nil || got != step.want {
			t.Errorf("%s: %v\n%swant\n%s", step.args, err, got, step.want)
		}
	}
	if _, err := s.run("kill", "198.51.100.7:40001", "192.0.2.10:80"); err == nil || !strings.Contains(err.Error(), "there is no connection from 198.51.100.7:40001 to 192.0.2.10:80") {
		t.Errorf("a connection that is not there: %v", err)
	}
}

func sortedLines(s string) string {
	lines := strings.SplitAfter(s, "\n")
	if len(lines) > 2 {
		rest := lines[2:]
		for i := range rest {
			for j := range rest[:i] {
				if rest[i] < rest[j] {
					rest[i], rest[j] = rest[j], rest[i]
				}
			}
		}
	}
	return strings.Join(lines, "")
}

// What makes no sense asks no director, and ends nothing.
func TestKillsThatMakeNoSense(t *testing.T) {
	s := newShown(t)
	s.syn(0, "198.51.100.7:40000", "192.0.2.10:80")
	for args, remedy := range map[string]string{
		"kill":                                                    "--all",
		"kill 198.51.100.7:40000":                                 "name both",
		"kill 198.51.100.7 192.0.2.10:80":                         "an address and a port",
		"kill 198.51.100.7:40000 192.0.2.0/24":                    "an address and a port",
		"kill 198.51.100.7:40000 [2001:db8::10]:80":               "two IP versions",
		"kill 198.51.100.7:40000 192.0.2.10:80 icmp":              "tcp, udp or sctp",
		"kill 198.51.100.7:40000 192.0.2.10:80 tcp x":             "at most 3",
		"kill 198.51.100.7:40000 192.0.2.10:80 --all":             "neither",
		"kill 198.51.100.7:40000 192.0.2.10:80 --server 10.2.0.1": "neither",
		"kill --all --client 198.51.100.7":                        "leave one of them out",
		"kill --affinity":                                         "--all",
		"kill --client web":                                       `--client: "web": write an address`,
		"kill --colour red":                                       "unknown flag",
		"kill --kind templates":                                   "unknown flag",
		"list --stats --client 198.51.100.7":                      "leave out --stats",
		"list --wide --rate":                                      "none of the others can be",
		"list --limit 0":                                          "from 1 on",
		"list --watch=0":                                          "0.1 to 86400",
		"list --watch=soon":                                       "0.1 to 86400",
		"list --older 2h --younger 1h":                            "older must be less than younger",
		"list --service web --json":                               "tcp-192.0.2.10-80",
		"list --state ESTABLISHED,OPEN":                           `"OPEN" is no state`,
		"kill --server 10.2.0.1/24":                               "write 10.2.0.0/24",
		"kill --older 0":                                          "above 0",
		"kill --client 198.51.100.7 --affinity --state GONE":      "no state",
	} {
		_, err := s.run(strings.Fields(args)...)
		if err == nil || !strings.Contains(err.Error(), remedy) {
			t.Errorf("%s: %v, want %q", args, err, remedy)
			continue
		}
		if code := (exitError{}); errors.As(err, &code) && code.code != exitUsage {
			t.Errorf("%s: exit code %d", args, code.code)
		}
	}
	if n := s.d.Table().Connections; n != 1 {
		t.Errorf("%d connections are left, want 1", n)
	}
	if n, _ := s.d.EndConns(conntrack.Filter{}, true); n != 1 {
		t.Errorf("%d", n)
	}
}
