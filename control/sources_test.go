package control_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pktdirector/control"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/sched"
)

const fullNATFile = `links: [{name: eth0}]
services:
  - vip: 192.0.2.10
    protocol: tcp
    port: 80
    method: fullnat
    sources: [10.2.0.200, 10.2.0.201]
    source_ports: 5000-5999
    toa: true
    servers:
      - {address: 10.2.0.1, port: 8080}
`

func TestAServiceOfFullNATServersIsReadAndPrinted(t *testing.T) {
	c, err := control.Parse("d.yaml", []byte(fullNATFile))
	if err != nil {
		t.Fatal(err)
	}
	s := c.Ruleset.Services[0]
	want := lvs.Sources{Addrs: []packet.Addr{packet.MustParseAddr("10.2.0.200"), packet.MustParseAddr("10.2.0.201")},
		Ports: lvs.PortRange{From: 5000, To: 5999}, TOA: true}
	if diff := cmp.Diff(want, s.Sources, opaque()); diff != "" {
		t.Errorf("sources (-want +got):\n%s", diff)
	}
	if s.Servers[0].Method != lvs.FullNAT || s.Servers[0].Port != 8080 {
		t.Errorf("server %+v", s.Servers[0])
	}
	if err := c.Ruleset.Validate(sched.Known); err != nil {
		t.Error(err)
	}
	again, text := printedAndRead(t, c)
	if diff := cmp.Diff(c.Ruleset, again.Ruleset, opaque()); diff != "" {
		t.Errorf("printed and read again (-want +got):\n%s\n%s", diff, text)
	}
}

func TestSourcesThatCannotBe(t *testing.T) {
	const addrs, ports = "[10.2.0.200, 10.2.0.201]", "5000-5999"
	for _, c := range []struct{ name, from, to, want string }{
		{"a VIP", addrs, "[192.0.2.10]", "d.yaml:7:15: services[0].sources[0]: 192.0.2.10 is a VIP"},
		{"a real server's", addrs, "[10.2.0.200, 10.2.0.1]", "d.yaml:7:27: services[0].sources[1]: 10.2.0.1 is a real server's"},
		{"twice", addrs, "[10.2.0.200, 10.2.0.200]", "services[0].sources[1]: 10.2.0.200 stands here already"},
		{"another IP version", addrs, `["2001:db8::1"]`, "is of another IP version than the service"},
		{"no unicast address", addrs, "[224.0.0.1]", "is no unicast address"},
		{"the loopback", addrs, "[127.0.0.1]", "is reached by no other machine"},
		{"two ranges", ports, "[5000-5999, 7000]", "is a list: write one range"},
		{"an empty range", ports, "6000-5999", `"6000-5999" is no port`},
		{"neither true nor false", "toa: true", "toa: maybe", `"maybe" is neither true nor false`},
		{"a tundev without sources", "links: [{name: eth0}]", "links: [{name: tun0, type: tundev}]", ""},
	} {
		_, err := control.Parse("d.yaml", []byte(strings.Replace(fullNATFile, c.from, c.to, 1)))
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: got\n%v\nwant\n%s", c.name, err, c.want)
		}
	}
	own := strings.Replace(fullNATFile, "    sources: [10.2.0.200, 10.2.0.201]\n", "", 1)
	if _, err := control.Parse("d.yaml", []byte(strings.Replace(own, "eth0}", "tun0, type: tundev}", 1))); err == nil || !strings.Contains(err.Error(), "is a tundev") {
		t.Errorf("the host's own address behind a tundev: %v", err)
	}
	second := strings.Replace(own[strings.Index(own, "  - vip"):], "port: 80\n", "port: 81\n", 1)
	for ports, want := range map[string]string{
		"5000-5999": "", "6000-6999": "d.yaml:15:19: services[1].source_ports: the director's own address towards 10.2.0.1 is used by another service with other source ports",
	} {
		two := own + strings.Replace(second, "5000-5999", ports, 1)
		switch _, err := control.Parse("d.yaml", []byte(two)); {
		case want == "" && err != nil:
			t.Errorf("the same range twice: %v", err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("two ranges of the director's own address: got\n%v\nwant\n%s", err, want)
		}
	}
	ops := strings.Replace(strings.Replace(fullNATFile, "protocol: tcp", "protocol: udp", 1), "    toa: true", "    ops: true", 1)
	if _, err := control.Parse("d.yaml", []byte(ops)); err == nil || !strings.Contains(err.Error(), "keeps no entry") {
		t.Errorf("one-packet scheduling: %v", err)
	}
}

// TestFullNATInIpvsadmsForms: the method is a word of its own in the column that
// is wide enough for it, and an option of its own in what is saved, which is read
// back.
func TestFullNATInIpvsadmsForms(t *testing.T) {
	s := &control.Status{TableSize: 4096, Services: []control.Service{{Protocol: "TCP", VIP: "192.0.2.10", Port: 80, Scheduler: "rr",
		Destinations: []control.Destination{{Address: "10.2.0.1", Port: 8080, Method: lvs.FullNAT.String(), Weight: 1}, {Address: "10.2.0.2", Port: 8080, Method: lvs.Masq.String(), Weight: 1}}}}}
	var list, save strings.Builder
	if err := control.WriteList(&list, s); err != nil {
		t.Fatal(err)
	}
	const want = "  -> 10.2.0.1:8080                FullNat 1      0          0         \n  -> 10.2.0.2:8080                Masq    1      0          0         \n"
	if !strings.HasSuffix(list.String(), want) {
		t.Errorf("the list is\n%s", list.String())
	}
	if err := control.WriteSave(&save, s); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(save.String(), "-a -t 192.0.2.10:80 -r 10.2.0.1:8080 --fullnat -w 1\n") {
		t.Errorf("saved is\n%s", save.String())
	}
	c, err := control.ParseCommand(strings.Fields("-a -t 192.0.2.10:80 -r 10.2.0.1:8080 --fullnat -w 1"), wellKnown())
	if err != nil || c.Server.Method != lvs.FullNAT || c.Server.Port != 8080 {
		t.Errorf("read back: %+v, %v", c.Server, err)
	}
}
