package main

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pktdirector/control"
	"pktdirector/dataplane"
	"pktdirector/image"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// imageNow is the bench's director as an image, made at engine time now and ago before
// the present.
func (b *reloadBench) imageNow(now, ago time.Duration) []byte {
	b.t.Helper()
	taken := momentNow()
	taken.wall, taken.uptime = taken.wall.Add(-ago), taken.uptime-ago
	if taken.uptime < 0 {
		taken.boot = "" // the host was started later than that
	}
	var file bytes.Buffer
	size, err := writeImage(&file, b.director(), now, func() (carried, func()) {
		return carriedBy(b.file, b.loaded.Load(), taken), func() {}
	})
	if err != nil || size != int64(file.Len()) {
		b.t.Fatalf("%d bytes of %d, %v", size, file.Len(), err)
	}
	return file.Bytes()
}

// restored is what begins from an image with the configuration that text is.
func (b *reloadBench) restored(file []byte, text string) *begun {
	b.t.Helper()
	c, err := control.Parse("director.yaml", []byte(text))
	if err != nil {
		b.t.Fatal(err)
	}
	parts, err := image.Parts(file)
	if err != nil {
		b.t.Fatal(err)
	}
	r, err := restore(parts, c, 1<<16)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// rules is what a director balances, in a line for each service.
func rules(d *dataplane.Director) string { return rulesText(d.Ruleset()) }

func rulesText(r lvs.Ruleset) string {
	var all []string
	for _, s := range r.Services {
		line := fmt.Sprintf("%s %s:", s.ServiceKey, s.Scheduler)
		for _, rs := range s.Servers {
			line += fmt.Sprintf(" %s=%d", rs.ServerKey, rs.Weight)
		}
		all = append(all, line)
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

func caseServices(services ...string) string {
	text := "services:\n"
	for i, servers := range services {
		text += fmt.Sprintf("  - {vip: 192.0.2.10, protocol: tcp, port: %d, scheduler: rr, method: dr, servers: [%s]}\n", 80+i, servers)
	}
	return text
}

// A director that was killed and starts again has the rules that it had; a file that was
// changed meanwhile counts as a reload of it would have.
func TestRestoreMergesAsAReloadDoes(t *testing.T) {
	one := caseServices("{address: 10.2.0.1, weight: 1}")
	for _, c := range []struct {
		name, was, is string
		hand          []string
		want          string
		fates         string // of what was changed by hand
	}{
		{"nothing was changed", fileHead + one, fileHead + one, nil,
			"TCP 192.0.2.10:80 rr: 10.2.0.1:80=1", ""},
		{"a service by hand, and the file as it was", fileHead + one, fileHead + one,
			[]string{"-A -t 192.0.2.11:80 -s wlc", "-a -t 192.0.2.11:80 -r 10.2.0.9 -g -w 3"},
			"TCP 192.0.2.10:80 rr: 10.2.0.1:80=1\nTCP 192.0.2.11:80 wlc: 10.2.0.9:80=3", "kept"},
		{"a weight by hand, and nothing but a comment in the file", fileHead + one, fileHead + "# new\n" + one,
			[]string{"-e -t 192.0.2.10:80 -r 10.2.0.1 -g -w 0"},
			"TCP 192.0.2.10:80 rr: 10.2.0.1:80=0", "kept"},
		{"all deleted by hand, and the file as it was", fileHead + one, fileHead + one,
			[]string{"-C"}, "", "kept"},
		{"a weight by hand, and another service in the file", fileHead + one, fileHead + caseServices("{address: 10.2.0.1, weight: 1}", "{address: 10.2.0.2, weight: 2}"),
			[]string{"-e -t 192.0.2.10:80 -r 10.2.0.1 -g -w 0"},
			"TCP 192.0.2.10:80 rr: 10.2.0.1:80=1\nTCP 192.0.2.10:81 rr: 10.2.0.2:81=2", "restored"},
		{"a weight by hand, and another service in a file that keeps", "drift: keep\n" + fileHead + one, "drift: keep\n" + fileHead + caseServices("{address: 10.2.0.1, weight: 1}", "{address: 10.2.0.2, weight: 2}"),
			[]string{"-e -t 192.0.2.10:80 -r 10.2.0.1 -g -w 0"},
			"TCP 192.0.2.10:80 rr: 10.2.0.1:80=0\nTCP 192.0.2.10:81 rr: 10.2.0.2:81=2", "kept"},
		{"a weight by hand that the file changed, too", "drift: keep\n" + fileHead + one, "drift: keep\n" + fileHead + caseServices("{address: 10.2.0.1, weight: 7}"),
			[]string{"-e -t 192.0.2.10:80 -r 10.2.0.1 -g -w 0"},
			"TCP 192.0.2.10:80 rr: 10.2.0.1:80=7", "replaced"},
		{"direct routing by hand, and a tundev in place of the cards", "drift: keep\n" + fileHead + "services: []\n",
			"drift: keep\nlinks: [{name: ipvs0, type: tundev}]\n" + strings.Replace(one, "method: dr", "method: tun", 1),
			[]string{"-A -t 192.0.2.11:80 -s rr", "-a -t 192.0.2.11:80 -r 10.2.0.9 -g"},
			"TCP 192.0.2.10:80 rr: 10.2.0.1:80=1", "restored"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newReloadBench(t, c.was)
			for _, line := range c.hand {
				if a := b.admin.Ipvsadm(control.Line{Args: strings.Fields(line)}); a.Code != 0 {
					t.Fatalf("%s: %s", line, a.Stderr)
				}
			}
			r := b.restored(b.imageNow(time.Minute, 0), c.is)
			if got := rules(r.director); got != c.want {
				t.Errorf("balanced is\n%s\nwant\n%s", got, c.want)
			}
			fate := ""
			for _, d := range r.drift {
				fate = d.Fate
			}
			if fate != c.fates {
				t.Errorf("what was changed by hand is %q, want %q: %v", fate, c.fates, r.drift)
			}
			if got := runningNow(r.director, r.does); len(control.Diff(got, r.does)) > 0 {
				t.Errorf("the director does otherwise than it says: %v", control.Diff(got, r.does))
			}
		})
	}
}

// Settings and timeouts are rules, too.
func TestRestoreKeepsSettings(t *testing.T) {
	b := newReloadBench(t, fileHead+"sysctl: {expire_nodest_conn: 1}\ntimeouts: {udp: 10}\nservices: []\n")
	if a := b.admin.Ipvsadm(control.Line{Args: []string{"--set", "100", "0", "0"}}); a.Code != 0 {
		t.Fatal(a.Stderr)
	}
	if err := b.director().SetTunable("conn_reuse_mode", "0"); err != nil {
		t.Fatal(err)
	}
	r := b.restored(b.imageNow(0, 0), fileHead+"sysctl: {expire_nodest_conn: 1}\ntimeouts: {udp: 10}\nservices: []\n")
	if tcp, fin, udp := r.director.Timeouts(); tcp != 100*time.Second || fin != 2*time.Minute || udp != 10*time.Second {
		t.Errorf("timeouts %v, %v, %v", tcp, fin, udp)
	}
	if v := r.director.SettingValues(); v["expire_nodest_conn"] != "1" || v["conn_reuse_mode"] != "0" {
		t.Errorf("settings %v", v)
	}
}

// forward takes a packet through the director at engine time now.
func (b *reloadBench) forward(now time.Duration, s packettest.Spec) {
	b.t.Helper()
	b.director().NewWorker().Process([]*packet.Packet{packettest.Build(b.t, s)}, now)
}

func (b *reloadBench) route() {
	b.director().SetLinks([]dataplane.LinkInfo{{Name: "eth0", MTU: 1500}, {Name: "eth1", MTU: 1500}})
	b.director().SetHost(dataplane.HostTable{Routes: []dataplane.Route{{Dst: netip.MustParsePrefix("0.0.0.0/0"), Link: 0}}})
}

// Connections are as old as they would be had the director never been away: who ended
// meanwhile is gone, who did not ends when he would have.
func TestRestoreLetsTimePass(t *testing.T) {
	text := fileHead + strings.Replace(caseServices("{address: 10.2.0.1}"), "scheduler: rr", "scheduler: rr, persistence_timeout: 300", 1)
	b := newReloadBench(t, text)
	b.route()
	b.forward(0, packettest.Spec{Src: "198.51.100.7:40000", Dst: "192.0.2.10:80", Flags: packet.SYN})
	for _, c := range []struct {
		ago        time.Duration
		left       int // entries, of a connection that lives a minute and a template that lives five
		ends, last time.Duration
	}{
		{0, 2, 50 * time.Second, 290 * time.Second},
		{40 * time.Second, 2, 10 * time.Second, 250 * time.Second},
		{60 * time.Second, 1, 0, 230 * time.Second},
		{-time.Hour, 2, 50 * time.Second, 290 * time.Second},
		{24 * 365 * time.Hour, 0, 0, 0},
	} {
		file := b.imageNow(10*time.Second, c.ago)
		r := b.restored(file, text)
		now := time.Since(r.zero)
		var left int
		r.director.Conns(func(conn dataplane.ConnStatus) bool {
			left++
			want := c.ends
			if conn.Template {
				want = c.last
			}
			// The rest of the test takes its time.
			if in := conn.Expires - now; in > want || in < want-20*time.Second {
				t.Errorf("after %v an entry (template: %t) ends in %v, want %v", c.ago, conn.Template, in, want)
			}
			return true
		})
		if left != c.left {
			t.Errorf("after %v there are %d entries, want %d", c.ago, left, c.left)
		}
		status := r.director.Status()[0]
		if status.Stats.Conns != 1 || status.Stats.InPkts != 1 {
			t.Errorf("after %v the counters are %+v, want those of a connection and a packet", c.ago, status.Stats)
		}
		if d := status.Destinations[0]; int(d.Active+d.InAct) != max(0, c.left-1) || int(d.Persistent) != min(c.left, 1) {
			t.Errorf("after %v the server has %d and %d connections, %d clients", c.ago, d.Active, d.InAct, d.Persistent)
		}
		if c.ago < 0 != (len(r.remarks) > 0) {
			t.Errorf("after %v: remarks %q", c.ago, r.remarks)
		}
	}
}

// Links are known by their names, wherever they stand in the file.
func TestRestoreFollowsLinks(t *testing.T) {
	marks := "marks:\n  - {fwmark: 1, link: eth0}\n  - {fwmark: 2, link: eth1}\n"
	services := "services:\n  - {fwmark: 1, method: dr, servers: [{address: 10.2.0.1}]}\n"
	b := newReloadBench(t, fileHead+marks+services)
	b.route()
	learned := func(link int) packet.MAC { return packet.MAC{2, 0, 0, 0, 0, byte(link)} }
	for link := range 2 {
		b.director().Learn(dataplane.Neighbour{Link: link, Addr: packet.MustParseAddr("10.2.0.1"), MAC: learned(link)})
	}
	for _, c := range []struct{ name, text, want string }{
		{"in the same order", fileHead + marks + services, "1 at 0, 2 at 1"},
		{"in another order", "links: [{name: eth1}, {name: eth0}]\n" + marks + services, "1 at 1, 2 at 0"},
		{"one is gone", "links: [{name: eth1}]\nmarks:\n  - {fwmark: 2, link: eth1}\n" + services, "2 at 0"},
		{"one has another VLAN", "links: [{name: eth0, vlan: 7}, {name: eth1}]\n" + marks + services, "1 at 0, 2 at 1"},
	} {
		r := b.restored(b.imageNow(0, 0), c.text)
		var got []string
		for _, m := range r.director.Ruleset().Marks {
			got = append(got, fmt.Sprintf("%d at %d", m.Mark, m.Link))
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s: marks %s, want %s", c.name, strings.Join(got, ", "), c.want)
		}
		if strings.Contains(c.name, "order") && len(r.steps) > 0 {
			t.Errorf("%s: %v: links in another order change nothing", c.name, r.steps)
		}
	}
}
