package control_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pktdirector/control"
	"pktdirector/lvs"
	"pktdirector/packet"
)

const whole = `links:
  - name: eth0
  - name: eth1
sysctl:
  net.ipv4.vs.conn_reuse_mode: 0
  sloppy_tcp: 1
timeouts: {tcp: 600, udp: 30}
marks:
  - {fwmark: 1, dst: 192.0.2.10, protocol: tcp, port: [80, 443]}
  - fwmark: 2
    src: [198.51.100.0/24, 203.0.113.7]
    dst: 192.0.2.0/24
    protocol: udp
    port: 5000-5999
    link: eth1
    vlan: 7
  - {fwmark: 3, dst: "2001:db8::10"}
services:
  - fwmark: 1
    scheduler: sh
    flags: [sh-port, sh-fallback]
    persistence_timeout: 300
    persistence_granularity: 255.255.255.0
    method: nat
    servers:
      - {address: 10.2.0.1, uthreshold: 100, lthreshold: 50}
      - {address: 10.2.0.2, port: 8080, weight: 0}
  - {fwmark: 2, ops: true}
  - {fwmark: 3, ipv6: true, persistence_timeout: 60, persistence_granularity: 64}
  - {vip: 192.0.2.20, protocol: tcp, port: 0, persistence_timeout: 2678400, method: dr, servers: [{address: 10.2.0.3}]}
  - {vip: 192.0.2.20, protocol: sctp, port: 5060}
`

// TestEveryKeyOfAService reads the keys that a plain service does without.
func TestEveryKeyOfAService(t *testing.T) {
	c, err := control.Parse("d.yaml", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	prefix := netip.MustParsePrefix
	server := func(rip string, port uint16) lvs.ServerKey {
		return lvs.ServerKey{RIP: packet.MustParseAddr(rip), Port: port}
	}
	want := lvs.Ruleset{
		Marks: []lvs.MarkRule{
			{Dst: []netip.Prefix{prefix("192.0.2.10/32")}, Proto: packet.TCP, Ports: []lvs.PortRange{{From: 80, To: 80}, {From: 443, To: 443}}, Link: -1, Mark: 1},
			{Src: []netip.Prefix{prefix("198.51.100.0/24"), prefix("203.0.113.7/32")}, Dst: []netip.Prefix{prefix("192.0.2.0/24")},
				Proto: packet.UDP, Ports: []lvs.PortRange{{From: 5000, To: 5999}}, Link: 1, VLAN: 7, Mark: 2},
			{Dst: []netip.Prefix{prefix("2001:db8::10/128")}, Link: -1, Mark: 3},
		},
		Services: []lvs.VirtualService{
			{ServiceKey: lvs.ServiceKey{Mark: 1}, Scheduler: "sh", Flags: lvs.FlagFallback | lvs.FlagPort, Persist: 300 * time.Second, MaskBits: 24,
				Servers: []lvs.RealServer{
					{ServerKey: server("10.2.0.1", 0), Method: lvs.Masq, Weight: 1, Upper: 100, Lower: 50},
					{ServerKey: server("10.2.0.2", 8080), Method: lvs.Masq}}},
			{ServiceKey: lvs.ServiceKey{Mark: 2}, Scheduler: "wlc", OnePacket: true},
			{ServiceKey: lvs.ServiceKey{Mark: 3, V6: true}, Scheduler: "wlc", Persist: time.Minute, MaskBits: 64},
			{ServiceKey: lvs.ServiceKey{Proto: packet.TCP, VIP: packet.MustParseAddr("192.0.2.20")}, Scheduler: "wlc", Persist: 31 * 24 * time.Hour,
				Servers: []lvs.RealServer{{ServerKey: server("10.2.0.3", 0), Method: lvs.Route, Weight: 1}}},
			{ServiceKey: lvs.ServiceKey{Proto: packet.SCTP, VIP: packet.MustParseAddr("192.0.2.20"), Port: 5060}, Scheduler: "wlc"},
		},
	}
	if diff := cmp.Diff(want, c.Ruleset, opaque()); diff != "" {
		t.Errorf("ruleset (-want +got):\n%s", diff)
	}
	if want := (control.Timeouts{TCP: 600 * time.Second, UDP: 30 * time.Second}); c.Timeouts != want {
		t.Errorf("timeouts %v; want %v", c.Timeouts, want)
	}
	settings := []control.Sysctl{
		{Name: "conn_reuse_mode", Value: "0", At: "d.yaml:5:32: sysctl.net.ipv4.vs.conn_reuse_mode"},
		{Name: "sloppy_tcp", Value: "1", At: "d.yaml:6:15: sysctl.sloppy_tcp"},
	}
	if diff := cmp.Diff(settings, c.Sysctl); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	if err := c.Ruleset.Validate(func(string) bool { return true }); err != nil {
		t.Errorf("the director refuses what the file may say: %v", err)
	}

	again, text := printedAndRead(t, c)
	if diff := cmp.Diff(c.Ruleset, again.Ruleset, opaque()); diff != "" || again.Timeouts != c.Timeouts || len(again.Sysctl) != 2 {
		t.Errorf("printed and read again (-want +got):\n%s\n%s", diff, text)
	}
}

// Each case changes one thing in the file above and names the message that
// must come of it.
func TestEveryKeyOfAServiceRefuses(t *testing.T) {
	for _, c := range []struct{ name, old, new, want string }{
		{"mark 0", "- fwmark: 2\n", "- fwmark: 0\n", `d.yaml:10:13: marks[1].fwmark: 0 is out of range: 1 to 4294967295`},
		{"a rule without a mark", "{fwmark: 3, dst", "{dst", `marks[2]: fwmark is missing`},
		{"a VIP beside a mark", "{fwmark: 2, ops", "{fwmark: 2, vip: 192.0.2.1, ops", `services[1].vip: a service by fwmark has none: leave it out`},
		{"ipv6 beside a VIP", "port: 5060", "port: 5060, ipv6: true", `services[4].ipv6: belongs to a service by fwmark`},
		{"neither true nor false", "ops: true", "ops: yes", `services[1].ops: "yes" is neither true nor false`},
		{"one-packet TCP", "port: 0,", "port: 0, ops: true,", `services[3].ops: one-packet scheduling is only for UDP services`},
		{"a flag of another scheduler", "sh-port", "mh-port", `d.yaml:21:13: services[0].flags[0]: "mh-port" is no flag of the scheduler sh: one of sh-fallback, sh-port, flag-3`},
		{"flags as a word", "[sh-port, sh-fallback]", "sh-port", `services[0].flags: must be a list`},
		{"no persistence time", "persistence_timeout: 300", "persistence_timeout: 0", `services[0].persistence_timeout: 0 is out of range: 1 to 2678400`},
		{"too long a persistence", "2678400", "2678401", `2678401 is out of range: 1 to 2678400`},
		{"a mask in words", "255.255.255.0", "/24", `services[0].persistence_granularity: "/24" is no netmask: write one like 255.255.255.0`},
		{"another persistence engine", "    persistence_timeout: 300\n", "    persistence_timeout: 300\n    persistence_engine: ftp\n", `services[0].persistence_engine: "ftp" is no persistence engine: write sip`},
		{"a netmask for IPv6", "persistence_granularity: 64", "persistence_granularity: 129", `129 is out of range: 1 to 128`},
		{"a mask without persistence", "    persistence_timeout: 300\n", "", `services[0].persistence_granularity: the service is not persistent`},
		{"every port without persistence", "persistence_timeout: 2678400, ", "", `services[3].port: 0 stands for every port`},
		{"a server's port behind every port", "address: 10.2.0.3", "address: 10.2.0.3, port: 80", `80 differs from the service's port 0, and dr rewrites no ports: leave it out`},
		{"a lower threshold above the upper", "lthreshold: 50", "lthreshold: 101", `d.yaml:26:58: services[0].servers[0].lthreshold: 101 is above the upper threshold 100`},
		{"a lower threshold alone", "uthreshold: 100, ", "", `lthreshold: 50 is above the upper threshold 0`},
		{"a negative threshold", "uthreshold: 100", "uthreshold: -1", `uthreshold: -1 is out of range: 0 to 4294967295`},
		{"a server of the other IP version", "10.2.0.1,", "'2001:db8::5',", `is of another IP version than the service FWM 1`},
		{"a service by mark twice", "{fwmark: 2, ops: true}", "{fwmark: 1}", `services[1]: FWM 1 stands already in services[0]`},
		{"a setting twice", "sloppy_tcp", "conn_reuse_mode", `sysctl.conn_reuse_mode: stands here already as net.ipv4.vs.conn_reuse_mode`},
		{"a setting in words", "sloppy_tcp: 1", "sloppy_tcp: true", `sysctl.sloppy_tcp: "true" is not a whole number`},
		{"settings as a list", "sysctl:\n  net.ipv4.vs.conn_reuse_mode: 0\n  sloppy_tcp: 1", "sysctl: [1]", `sysctl: must be a mapping`},
		{"a timeout of nothing", "tcp: 600", "tcp: 0", `timeouts.tcp: 0 is out of range: 1 to`},
		{"an unknown timeout", "tcp: 600", "sctp: 600", `timeouts.sctp: is not known here: the keys are tcp, tcpfin, udp`},
		{"a port in words", "port: [80, 443]", "port: [80, https]", `d.yaml:9:60: marks[0].port[1]: "https" is no port: write a number from 1 to 65535, or a range like 8000-8100`},
		{"a range the wrong way round", "5000-5999", "5999-5000", `"5999-5000" is no port`},
		{"a port of no protocol", "192.0.2.10, protocol: tcp", "192.0.2.10", `marks[0].port: is a port of which protocol?`},
		{"an unknown link", "link: eth1", "link: eth2", `marks[1].link: "eth2" is none of the links: one of eth0, eth1`},
		{"a VLAN out of range", "vlan: 7", "vlan: 4095", `marks[1].vlan: 4095 is out of range: 1 to 4094`},
		{"a prefix with more bits", "192.0.2.0/24", "192.0.2.1/24", `192.0.2.1/24 has bits set after its prefix: write 192.0.2.0/24`},
		{"no address", "203.0.113.7", "203.0.113", `marks[1].src[1]: "203.0.113" is no IP address`},
		{"two IP versions in one rule", "dst: 192.0.2.0/24", "dst: '2001:db8::/32'", `marks[1].src: 198.51.100.0/24 is of another IP version than 2001:db8::/32`},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(whole, c.old, c.new, 1)
			if text == whole {
				t.Fatal("the case changes nothing")
			}
			_, err := control.Parse("d.yaml", []byte(text))
			if err == nil {
				t.Fatalf("was accepted:\n%s", text)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got\n%v\nwant it to contain\n%s", err, c.want)
			}
		})
	}
}

func TestRulesUnderMarksAreLimited(t *testing.T) {
	const most = 4096
	rule := "  - {fwmark: 3, dst: \"2001:db8::10\"}\n"
	with := func(rules int) error { // three stand there already
		_, err := control.Parse("d.yaml", []byte(strings.Replace(whole, rule, strings.Repeat(rule, rules-2), 1)))
		return err
	}
	if err := with(most); err != nil {
		t.Errorf("%d rules: %v", most, err)
	}
	const want = "marks[4096]: there are 4097 rules: at most 4096 can be there"
	if err := with(most + 1); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%d rules: got %v, want %s", most+1, err, want)
	}
}

// TestASettingIsRefusedAtItsPlace: which settings there are, the director
// knows.
func TestASettingIsRefusedAtItsPlace(t *testing.T) {
	c, err := control.Parse("d.yaml", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	err = c.CheckSysctl(func(name, value string) error {
		if name == "sloppy_tcp" && value == "1" {
			return errors.New("is not for you")
		}
		return nil
	})
	if err == nil || err.Error() != "d.yaml:6:15: sysctl.sloppy_tcp: is not for you" {
		t.Errorf("got %v", err)
	}
}
