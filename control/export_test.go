package control_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"pktdirector/control"
	"pktdirector/lvs"
	"pktdirector/lvs/lvstest"
	"pktdirector/packet"
	"pktdirector/sched"
)

// sameConfig compares configurations, but for where settings stood.
func sameConfig(a, b *control.Config) string {
	return gocmp.Diff(a, b, opaque(), cmpopts.EquateEmpty(), cmpopts.IgnoreFields(control.Sysctl{}, "At"))
}

// randomService draws a service that a director takes, of all that there is to it.
func randomService(t *rapid.T) lvs.VirtualService {
	number := func(low, high int) int { return rapid.IntRange(low, high).Draw(t, "number") }
	yes := func() bool { return rapid.Bool().Draw(t, "yes") }
	s := lvs.VirtualService{Scheduler: rapid.SampledFrom(sched.Names()).Draw(t, "scheduler"), Flags: lvs.SchedFlags(number(0, 7)), ClampMSS: yes()}
	v6 := yes()
	ip := func(net string, host int) packet.Addr {
		if v6 {
			return packet.MustParseAddr(fmt.Sprintf("2001:db8:%s::%x", net, host))
		}
		return packet.MustParseAddr(fmt.Sprintf("10.%s.0.%d", net, host))
	}
	if yes() {
		s.Mark, s.V6 = uint32(rapid.SampledFrom([]int{1, 7, 1<<32 - 1}).Draw(t, "mark")), v6
	} else {
		s.VIP, s.Port = ip("1", number(1, 250)), uint16(number(0, 3)*443)
		s.Proto = rapid.SampledFrom([]packet.Proto{packet.TCP, packet.UDP, packet.SCTP}).Draw(t, "protocol")
		s.OnePacket = s.Proto == packet.UDP && yes()
	}
	if s.Mark == 0 && s.Port == 0 || yes() {
		s.Persist = time.Duration(number(1, 2678400)) * time.Second
		switch {
		case v6:
			s.MaskBits = number(0, 128)
		case yes():
			s.MaskBits = number(0, 32)
		default:
			s.Netmask = packet.MustParseAddr(rapid.SampledFrom([]string{"255.0.255.0", "0.0.0.0", "0.255.255.255"}).Draw(t, "mask"))
		}
		s.Engine = rapid.SampledFrom([]string{"", "sip"}).Draw(t, "engine")
	}
	if yes() {
		s.Sources = lvs.Sources{Ports: lvs.PortRange{From: 2000, To: 2999}, TOA: yes()}
		for i := range number(0, 3) {
			s.Sources.Addrs = append(s.Sources.Addrs, ip("3", i+1))
		}
	}
	for i := range number(0, 5) {
		rs := lvs.RealServer{ServerKey: lvs.ServerKey{RIP: ip("2", i+1), Port: s.Port}, Weight: rapid.SampledFrom([]int{0, 1, 3, lvs.MaxWeight}).Draw(t, "weight")}
		rs.Method = rapid.SampledFrom([]lvs.Method{lvs.Masq, lvs.Route, lvs.Tunnel, lvs.FullNAT}).Draw(t, "method")
		if s.OnePacket && rs.Method == lvs.FullNAT {
			rs.Method = lvs.Masq
		}
		if rs.Method.RewritesPorts() {
			rs.Port = uint16(number(0, 2) * 4040)
		}
		if rs.Method == lvs.Tunnel {
			kinds := lvstest.Tunnels()
			names := slices.Sorted(maps.Keys(kinds))
			rs.Tunnel = kinds[rapid.SampledFrom(names).Draw(t, "tunnel")]
		}
		rs.Upper = uint32(number(0, 2) * 100)
		rs.Lower = rs.Upper / 2
		s.Servers = append(s.Servers, rs)
	}
	return s
}

// TestWhatIsExportedIsReadAsTheSame: over random rulesets of a director.
func TestWhatIsExportedIsReadAsTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &control.Config{Control: control.DefaultSocket, Links: []control.Link{{Name: "eth0", Type: control.AFPacket}, {Name: "eth1", Type: control.AFPacket, VLAN: 7}}}
		c.Timeouts.UDP = time.Duration(rapid.IntRange(0, 9).Draw(t, "udp")) * time.Second
		c.Standby = rapid.Bool().Draw(t, "standby")
		c.Sysctl = []control.Sysctl{{Name: "conn_reuse_mode", Value: "2"}}
		c.Ruleset.Marks = []lvs.MarkRule{{Mark: 7, Link: 1, Proto: packet.UDP, Ports: []lvs.PortRange{{From: 1, To: 9}}}}
		seen := map[lvs.ServiceKey]bool{}
		for range rapid.IntRange(0, 6).Draw(t, "services") {
			if s := randomService(t); !seen[s.ServiceKey] {
				seen[s.ServiceKey] = true
				c.Ruleset.Services = append(c.Ruleset.Services, s)
			}
		}
		if c.Ruleset.Validate(sched.Known) != nil {
			return // two services with other ports of one source: no director takes it
		}
		e := c.Export()
		again, err := control.Parse("export", []byte(e.Config))
		if err != nil || len(e.Remarks) > 0 {
			t.Fatalf("%v %v\n%s", err, e.Remarks, e.Config)
		}
		if diff := sameConfig(c, again); diff != "" {
			t.Fatalf("exported and read (-before +after):\n%s\n%s", diff, e.Config)
		}
		if twice := again.Export(); twice.Config != e.Config {
			t.Fatalf("exported twice:\n%s\n%s", e.Config, twice.Config)
		}
	})
}

// TestWhatAFileCannotSayIsToldAndLeftOut: ipvsadm allows more than makes sense on a
// director that forwards to other machines.
func TestWhatAFileCannotSayIsToldAndLeftOut(t *testing.T) {
	com := commander()
	for _, line := range []string{
		"-A -t 224.0.0.1:80 -s rr", "-a -t 224.0.0.1:80 -r 10.2.0.1:80 -g", "-a -t 224.0.0.1:80 -r 10.2.0.2:80 -g",
		"-A -t 192.0.2.10:80 -s rr", "-a -t 192.0.2.10:80 -r 10.2.0.1:80 -m -w 0", "-a -t 192.0.2.10:80 -r 127.0.0.1:80 -g", "-a -t 192.0.2.10:80 -r 192.0.2.10:80 -m",
		"-A -f 9 -s sh -b flag-3", "-A -u 127.0.0.1:53",
	} {
		if a := com.Do(strings.Fields(line), ""); a.Code != 0 {
			t.Fatalf("%s: %s", line, a.Stderr)
		}
	}
	c := control.Config{Control: control.DefaultSocket, Links: []control.Link{{Name: "eth0", Type: control.AFPacket}}}
	c.Ruleset = com.Director.(interface{ Ruleset() lvs.Ruleset }).Ruleset()
	e := c.Export()
	want := []string{
		"server 127.0.0.1:80 of service TCP 192.0.2.10:80 is left out: address: 127.0.0.1 is this host itself",
		"server 192.0.2.10:80 of service TCP 192.0.2.10:80 is left out: address: 192.0.2.10 is the VIP",
		"service TCP 224.0.0.1:80 with 2 servers is left out: vip: 224.0.0.1 is no unicast address",
		"service UDP 127.0.0.1:53 with 0 servers is left out: vip: 127.0.0.1 is reached by no other machine",
	}
	if len(e.Remarks) != len(want) {
		t.Errorf("%d remarks, want %d: %q", len(e.Remarks), len(want), e.Remarks)
	}
	for _, w := range want {
		if !slices.ContainsFunc(e.Remarks, func(r string) bool { return strings.HasPrefix(r, w) }) {
			t.Errorf("no remark %q in %q", w, e.Remarks)
		}
		if !strings.Contains(e.Config, "# "+w) {
			t.Errorf("no comment %q in\n%s", w, e.Config)
		}
	}
	again, err := control.Parse("export", []byte(e.Config))
	if err != nil {
		t.Fatalf("%v\n%s", err, e.Config)
	}
	var kept []string
	for _, s := range again.Ruleset.Services {
		kept = append(kept, fmt.Sprint(s.ServiceKey, " ", len(s.Servers)))
	}
	if got := strings.Join(kept, ", "); got != "TCP 192.0.2.10:80 1, FWM 9 0" && got != "FWM 9 0, TCP 192.0.2.10:80 1" {
		t.Errorf("kept %s\n%s", got, e.Config)
	}
}
