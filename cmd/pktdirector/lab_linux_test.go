package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"pktdirector/lvs"
	"pktdirector/testbed"
	"pktdirector/testbed/nstest"
)

func topology(t testing.TB, name string) *testbed.Topology {
	t.Helper()
	top, err := testbed.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return top
}

// lab builds a lab with its servers, and its director unless before, which is
// called when the servers run, returns false.
func lab(t testing.TB, top *testbed.Topology, kind testbed.LinkKind, before func(*testbed.Lab) bool) *testbed.Lab {
	t.Helper()
	nstest.Enter(t)
	l, err := testbed.Build(top, testbed.Options{Program: program(t), Link: kind})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := l.StartServers(t.Context()); err != nil {
		t.Fatal(err)
	}
	if before != nil && !before(l) {
		return l
	}
	if _, err := l.StartDirector(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l
}

// kinds returns the links that a topology's director can work on.
func kinds(t testing.TB, top *testbed.Topology) []testbed.LinkKind {
	if top.Mode.Method == lvs.Route {
		return []testbed.LinkKind{testbed.AFPacket}
	}
	return []testbed.LinkKind{testbed.AFPacket, testbed.Tundev}
}

func requireLink(t testing.TB, top *testbed.Topology, kind testbed.LinkKind) {
	t.Helper()
	if err := kind.Check(top); err != nil {
		nstest.Require(t, err.Error())
	}
}

func TestDemo(t *testing.T) {
	for _, name := range testbed.Names() {
		top := topology(t, name)
		for _, kind := range kinds(t, top) {
			t.Run(name+" over "+kind.String(), func(t *testing.T) {
				requireLink(t, top, kind)
				out, err := demo(t, top, kind)
				if err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				for _, want := range []string{
					top.Picture, "IP Virtual Server version 1.2.1",
					"60 connections: rs1 (weight 1) 10, rs2 (weight 2) 20, rs3 (weight 3) 30",
					"0 RST", "at both ends",
				} {
					if !strings.Contains(out, want) {
						t.Errorf("output lacks %q:\n%s", want, out)
					}
				}
			})
		}
	}
}

// demo shows a lab.
func demo(t *testing.T, top *testbed.Topology, kind testbed.LinkKind) (string, error) {
	t.Helper()
	nstest.Enter(t)
	var out strings.Builder
	d := testbed.Demo{Topology: top, Out: &out, Bytes: 20_000_000,
		Options: testbed.Options{Program: program(t), Link: kind}}
	err := d.Run(t.Context())
	return out.String(), err
}

// A demonstration that cannot fail shows nothing. Where only is set, the
// first failure is the only one: that check alone decides on the exit code.
func TestDemoFails(t *testing.T) {
	nstest.New(t) // ends the test where there can be no namespaces
	tests := map[string]struct {
		lab, sabotage string
		only          bool
		want          []string // in the output
	}{
		"director stopped": {"nat", "director-stopped", false,
			[]string{"FAIL  ARP for the VIP", "FAIL  60 connections", "FAIL  the director ended"}},
		"director killed": {"dr", "director-killed", false,
			[]string{"FAIL  60 connections", "FAIL  the director ended"}},
		"VIP missing on a server": {"dr", "vip-missing", false,
			[]string{"FAIL  60 connections", "timeout"}},
		"VIP missing on a server behind a tunnel": {"tun", "vip-missing", false,
			[]string{"FAIL  60 connections"}},
		"ARP open on a server": {"dr", "arp-open", false,
			[]string{"FAIL  ARP for the VIP", "02:00:00:00:06:02", "02:00:00:00:06:0b"}},
		"untranslated replies": {"nat-onearm", "replies-lost", false,
			[]string{"FAIL  60 connections"}},
		"NAT whose replies go past the director": {"nat-onearm", "replies-past", true,
			[]string{"FAIL  frames from the VIP", "with NAT every reply passes the director"}},
		"DR whose replies pass the director": {"dr", "replies-via-director", true,
			[]string{"FAIL  frames from the VIP", "with dr no reply passes the director"}},
		"a reset": {"dr", "reset", true,
			[]string{"FAIL  1 RST at the client"}},
		"loss": {"nat", "loss", true,
			[]string{"TCP segments were retransmitted", "something on the way loses packets"}},
	}
	file := program(t)
	show := func(lab, sabotage string) result {
		return runFile(file, "", "lab", "demo", lab, "--bytes", "3000000", "--sabotage", sabotage)
	}
	// Those that wait for what never comes wait together, first; the others
	// are busy, and are to fail for one reason alone.
	var waiting sync.WaitGroup
	var mu sync.Mutex
	ended := map[string]result{}
	for name, tt := range tests {
		if !tt.only {
			waiting.Go(func() {
				r := show(tt.lab, tt.sabotage)
				mu.Lock()
				defer mu.Unlock()
				ended[name] = r
			})
		}
	}
	waiting.Wait()
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, there := ended[name]
			if !there {
				got = show(tt.lab, tt.sabotage)
			}
			if got.code != exitFailed {
				t.Errorf("exit code %d; want %d", got.code, exitFailed)
			}
			for _, want := range tt.want {
				if !strings.Contains(got.out, want) {
					t.Errorf("output lacks %q", want)
				}
			}
			if n := strings.Count(got.out, "FAIL"); tt.only && n != 1 {
				t.Errorf("%d checks failed, want one", n)
			}
			if t.Failed() {
				t.Logf("%s%s", got.out, got.err)
			}
		})
	}
}

// What "lab demo" refuses, and what it does not call a success.
func TestDemoCommandLine(t *testing.T) {
	nstest.New(t)
	small := []string{"--bytes", "100000", "--conns", "7"}
	for name, tt := range map[string]struct {
		args []string
		code int
		want string
	}{
		"connections that are no multiple of the weights": {append([]string{"nat"}, small...), 0, "7 connections: "},
		"no connection":              {[]string{"nat", "--conns", "0"}, exitUsage, "--conns 0: at least 1"},
		"fewer than none":            {[]string{"nat", "--conns", "-6"}, exitUsage, "--conns -6: at least 1"},
		"no byte":                    {[]string{"nat", "--bytes", "0"}, exitUsage, "--bytes 0: at least 1"},
		"an unknown lab":             {[]string{"moon"}, exitUsage, `lab "moon" is not known`},
		"an unknown mishap":          {[]string{"nat", "--sabotage", "rain"}, exitUsage, `sabotage "rain" is not known`},
		"a lab that cannot be shown": {[]string{"dr", "--link", "tundev"}, exitFailed, "lab dr: could not be shown"},
	} {
		t.Run(name, func(t *testing.T) {
			got := pktdirector(t, "", append([]string{"lab", "demo"}, tt.args...)...)
			if got.code != tt.code || !strings.Contains(got.out+got.err, tt.want) {
				t.Errorf("got %+v, want exit code %d and %q", got, tt.code, tt.want)
			}
		})
	}
	t.Run("one of two cannot be shown", func(t *testing.T) {
		requireLink(t, topology(t, "nat"), testbed.Tundev)
		got := pktdirector(t, "", append([]string{"lab", "demo", "nat", "dr", "--link", "tundev"}, small...)...)
		if got.code != exitFailed || !strings.Contains(got.out, "ok    7 connections") || !strings.Contains(got.out, "skip  lab dr") {
			t.Errorf("got %+v, want nat shown, dr left out, and exit code 1", got)
		}
	})
}

func director(l *testbed.Lab) *testbed.Process {
	for _, p := range l.Processes() {
		if p.Args[0] == "run" {
			return p
		}
	}
	return nil
}

// The bulk test's size in bytes for each of its connections and directions.
const (
	bulkConns = 4
	bulkBytes = 1_000_000_000 / bulkConns
)

// A gigabyte crosses the director in each direction, over four connections at
// once, and arrives as it was sent.
func TestGigabyte(t *testing.T) {
	size := int64(bulkBytes)
	if testing.Short() {
		size /= 20
	}
	for _, name := range testbed.Names() {
		for _, kind := range []string{"upload", "download"} {
			t.Run(name+" "+kind, func(t *testing.T) {
				l := lab(t, topology(t, name), testbed.AFPacket, nil)
				ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
				defer stop()
				start := time.Now()
				all, err := l.Transfer(ctx, kind, size, bulkConns)
				if err != nil {
					t.Fatal(err)
				}
				bytes := float64(size * int64(len(all)))
				t.Logf("%.0f MB in %v, %.2f Gbit/s", bytes/1e6, time.Since(start).Round(time.Millisecond),
					bytes*8/1e9/time.Since(start).Seconds())
			})
		}
	}
}

// The director's own host has the VIP, and its kernel neither answers ARP for
// it nor resets connections to it, until the director has gone.
func TestVIPOnTheDirectorsHost(t *testing.T) {
	top := topology(t, "dr")
	h := top.With(testbed.Director)[0]
	l := lab(t, top, testbed.AFPacket, func(l *testbed.Lab) bool {
		if err := l.Do(h.Name, func() error {
			return testbed.AddAddr{Dev: h.NICs[0].Segment, Prefix: netip.PrefixFrom(top.VIP, 32)}.Apply()
		}); err != nil {
			t.Fatal(err)
		}
		return true
	})
	client := top.With(testbed.Client)[0]
	resets, err := l.Tap(client.Name, client.NICs[0].Segment, testbed.Resets)
	if err != nil {
		t.Fatal(err)
	}
	defer resets.Close()
	open := func() (string, error) {
		return l.Output(t.Context(), client.Name, "lab", "client", "open", top.Target(top.HTTP), "-n", "50", "--timeout", "3s")
	}
	if out, err := open(); err != nil {
		t.Errorf("50 connections: %v\n%s", err, out)
	}
	if n, err := resets.Count(); err != nil || n != 0 {
		t.Errorf("%d RST, error %v, want none", n, err)
	}
	if err := director(l).Stop(); err != nil {
		t.Error(err)
	}
	if out, err := open(); err == nil || !strings.Contains(out, "refused") {
		t.Errorf("connection after the director has gone: error %v, want it refused by the host\n%s", err, out)
	}
}

// hostState is what a role configures.
type hostState struct {
	Links, Addrs, Routes []string
	Sysctls              map[string]string
}

// state reads the state of the calling thread's host.
func state() (hostState, error) {
	s := hostState{Sysctls: map[string]string{}}
	links, err := netlink.LinkList()
	if err != nil {
		return s, err
	}
	keys := []string{"ip_forward", "conf/all/rp_filter", "conf/all/arp_ignore", "conf/all/arp_announce"}
	for _, l := range links {
		a := l.Attrs()
		up := "down"
		if a.Flags&1 != 0 {
			up = "up"
		}
		mac := a.HardwareAddr.String()
		if strings.HasPrefix(a.Name, "tunl0") {
			mac = "" // the kernel draws it by lot
		}
		s.Links = append(s.Links, strings.Join([]string{a.Name, l.Type(), mac, up}, " "))
		keys = append(keys, "conf/"+a.Name+"/rp_filter")
		addrs, err := netlink.AddrList(l, netlink.FAMILY_V4)
		if err != nil {
			return s, err
		}
		for _, addr := range addrs {
			s.Addrs = append(s.Addrs, fmt.Sprintf("%s dev %s scope %d", addr.IPNet, a.Name, addr.Scope))
		}
		routes, err := netlink.RouteList(l, netlink.FAMILY_V4)
		if err != nil {
			return s, err
		}
		for _, r := range routes {
			s.Routes = append(s.Routes, fmt.Sprintf("%v via %v dev %s src %v", r.Dst, r.Gw, a.Name, r.Src))
		}
	}
	for _, key := range keys {
		b, err := os.ReadFile("/proc/sys/net/ipv4/" + key)
		if err != nil {
			return s, err
		}
		s.Sysctls[key] = strings.TrimSpace(string(b))
	}
	return s, nil
}
