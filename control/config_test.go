package control_test

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"pktdirector/control"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/sched"
)

const good = `links:
  - name: eth0
services:
  - vip: 192.0.2.10
    protocol: tcp
    port: 80
    method: nat
    servers:
      - {address: 10.2.0.1, port: 8080}
`

// opaque lets cmp compare the types that keep their fields to themselves.
func opaque() cmp.Option {
	return cmpopts.EquateComparable(packet.Addr{}, netip.Addr{}, netip.Prefix{})
}

func TestParseFillsDefaults(t *testing.T) {
	c, err := control.Parse("d.yaml", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	want := lvs.Ruleset{Services: []lvs.VirtualService{{
		ServiceKey: lvs.ServiceKey{Proto: packet.TCP, VIP: packet.MustParseAddr("192.0.2.10"), Port: 80},
		Scheduler:  "wlc",
		Servers: []lvs.RealServer{{
			ServerKey: lvs.ServerKey{RIP: packet.MustParseAddr("10.2.0.1"), Port: 8080}, Method: lvs.Masq, Weight: 1}},
	}}}
	if diff := cmp.Diff(want, c.Ruleset, opaque()); diff != "" {
		t.Errorf("ruleset (-want +got):\n%s", diff)
	}
	if c.Control != control.DefaultSocket || c.Links[0].Type != control.AFPacket {
		t.Errorf("control %q, link type %q; want the defaults", c.Control, c.Links[0].Type)
	}
}

// Each case changes one thing in a good file and names the message that must
// come of it: place first, what would be right last.
func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ name, old, new, want string }{
		{"an unknown key", "port: 80\n", "prot: 80\n", `d.yaml:6:5: services[0].prot: is not known here: the keys are vip, protocol, port`},
		{"an unknown key at the top", "links:", "lnks: 1\nlinks:", `d.yaml:1:1: lnks: is not known here: the keys are links, routes, control, standby, api, metrics, drift, watch, snapshot, sysctl, timeouts, marks, services`},
		{"an unknown key of a server", "port: 8080", "wait: 1", `d.yaml:9:29: services[0].servers[0].wait: is not known here`},
		{"a VIP that is no address", "192.0.2.10", "192.0.2.300", `d.yaml:4:10: services[0].vip: "192.0.2.300" is no IP address: write one like 192.0.2.10`},
		{"a VIP with a prefix", "192.0.2.10", "192.0.2.10/24", `"192.0.2.10/24" is no IP address`},
		{"a VIP with a zone", "192.0.2.10", "fe80::1%eth0", `names a zone`},
		{"an IPv4 VIP written as IPv6", "192.0.2.10", "'::ffff:192.0.2.10'", `write 192.0.2.10`},
		{"a VIP that is multicast", "192.0.2.10", "224.0.0.1", `224.0.0.1 is no unicast address`},
		{"a VIP that is nothing", "192.0.2.10", "0.0.0.0", `0.0.0.0 is no unicast address`},
		{"port 0", "port: 80\n", "port: 0\n", `d.yaml:6:11: services[0].port: 0 stands for every port, which only a persistent service can have: add persistence_timeout`},
		{"port 65536", "port: 80\n", "port: 65536\n", `65536 is out of range: 0 to 65535`},
		{"a huge port", "port: 80\n", "port: 99999999999999999999\n", `is`},
		{"a port in words", "port: 80\n", "port: http\n", `"http" is not a whole number from 0 to 65535`},
		{"a port with a fraction", "port: 80\n", "port: 80.5\n", `"80.5" is not a whole number`},
		{"an unknown scheduler", "    method: nat", "    scheduler: best\n    method: nat", `d.yaml:7:16: services[0].scheduler: scheduler "best" is not known: one of dh, fo, lblc`},
		{"an unknown method", "method: nat", "method: natt", `d.yaml:7:13: services[0].method: forwarding method "natt" is not known: write nat`},
		{"no method", "    method: nat\n", "", `d.yaml:8:9: services[0].servers[0]: method is missing: write nat, dr, tun or fullnat`},
		{"an unknown protocol", "protocol: tcp", "protocol: icmp", `d.yaml:5:15: services[0].protocol: "icmp" cannot be balanced: write tcp, udp or sctp`},
		{"a negative weight", "port: 8080", "weight: -1", `d.yaml:9:37: services[0].servers[0].weight: -1 is out of range: 0 to 2147483647`},
		{"a weight beyond the kernel's", "port: 8080", "weight: 2147483648", `2147483648 is out of range: 0 to 2147483647`},
		{"another port in DR", "method: nat", "method: dr", `d.yaml:9:35: services[0].servers[0].port: 8080 differs from the service's port 80, and dr rewrites no ports: write 80 or leave it out`},
		{"another port in TUN, method at the server", "port: 8080", "port: 8080, method: tun", `and tun rewrites no ports: write 80`},
		{"DR on a tundev", "name: eth0", "name: lb0\n    type: tundev", ``},
		{"a server of the other IP version", "10.2.0.1", "'2001:db8::1'", `is of another IP version than the VIP 192.0.2.10`},
		{"the VIP as a server", "10.2.0.1", "192.0.2.10", `192.0.2.10 is the VIP`},
		{"a loopback server", "10.2.0.1", "127.0.0.1", `127.0.0.1 is this host itself`},
		{"a server twice", "      - {", "      - {address: 10.2.0.1, port: 8080}\n      - {", `d.yaml:10:9: services[0].servers[1]: 10.2.0.1:8080 stands already as servers[0]`},
		{"a service twice", "services:", "services:\n  - {vip: 192.0.2.10, protocol: tcp, port: 80}", `TCP 192.0.2.10:80 stands already in services[0]`},
		{"a link twice", "  - name: eth0", "  - name: eth0\n  - name: eth0", `d.yaml:3:5: links[1]: eth0 is another link already`},
		{"an unknown kind of link", "name: eth0", "name: eth0\n    type: xdp", `d.yaml:3:11: links[0].type: "xdp" is no kind of link`},
		{"a VLAN out of range", "name: eth0", "name: eth0\n    vlan: 4095", `4095 is out of range: 1 to 4094`},
		{"a VLAN on a tundev", "name: eth0", "name: lb0\n    type: tundev\n    vlan: 2", `has no VLAN`},
		{"a ring with few slots", "name: eth0", "name: eth0\n    ring: {slots: 1}", `1 is out of range: 64 to`},
		{"a slot size that is no power of two", "name: eth0", "name: eth0\n    ring: {slot_size: 2000}", `d.yaml:3:23: links[0].ring.slot_size: 2000 is no power of two: write one from 512`},
		{"an interface name that is too long", "eth0", "averyveryverylongname", `cannot be an interface's name`},
		{"a route by an unknown link", "services:", "routes: [{to: 10.0.0.0/8, link: eth9}]\nservices:", `d.yaml:3:33: routes[0].link: "eth9" is none of the links: one of eth0`},
		{"a route with host bits", "services:", "routes: [{to: 10.0.0.1/8}]\nservices:", `10.0.0.1/8 has bits set after its prefix: write 10.0.0.0/8`},
		{"a gateway of the other IP version", "services:", "routes: [{to: 10.0.0.0/8, via: 'fe80::1'}]\nservices:", `is of another IP version`},
		{"a relative socket", "services:", "control: x.sock\nservices:", `d.yaml:3:10: control: "x.sock" cannot be a unix socket's path`},
		{"a list where a mapping must be", "  - name: eth0", "  - [eth0]", `d.yaml:2:5: links[0]: must be a mapping with the keys name, type`},
		{"a mapping where a list must be", "links:\n  - name: eth0", "links:\n  name: eth0", `links: must be a list, not a mapping`},
		{"a key twice", "port: 80\n", "port: 80\n    port: 81\n", `d.yaml:7:5: `},
		{"no YAML at all", "links:", "{links:", `d.yaml:`},
		{"nothing", good, "", `d.yaml:1:1: the file is empty`},
		{"a second document", "services:", "---\nservices:", `d.yaml:4:1: a second document begins here`},
		{"no links", "links:\n  - name: eth0\n", "", `links: is missing`},
		{"no services", good, "links: [{name: eth0}]", `services: is missing`},
		{"a missing VIP", "vip: 192.0.2.10\n    ", "", `d.yaml:4:5: services[0]: vip is missing`},
		{"a loopback VIP", "192.0.2.10", "127.1.2.3", `d.yaml:4:10: services[0].vip: 127.1.2.3 is reached by no other machine`},
		{"an IPv6 loopback VIP", "192.0.2.10", "'::1'", `::1 is reached by no other machine`},
		{"a reserved VIP", "192.0.2.10", "240.0.0.1", `240.0.0.1 is no unicast address`},
		{"a server of this network", "10.2.0.1", "0.1.2.3", `d.yaml:9:19: services[0].servers[0].address: 0.1.2.3 is no unicast address`},
		{"a reserved server", "10.2.0.1", "250.2.0.1", `250.2.0.1 is no unicast address`},
		{"a port with an underscore", "port: 80\n", "port: 8_0\n", `d.yaml:6:11: services[0].port: 8_0 is not written in plain decimal digits: a whole number from 0 to 65535`},
		{"a binary port", "port: 80\n", "port: 0b1010000\n", `0b1010000 is not written in plain decimal digits`},
		{"an octal port", "port: 80\n", "port: 0o120\n", `0o120 is not written in plain decimal digits`},
		{"a port that may be octal", "port: 80\n", "port: 0120\n", `0120 is not written in plain decimal digits`},
		{"a hexadecimal port", "port: 80\n", "port: 0x50\n", `0x50 is not written in plain decimal digits`},
		{"a port with a sign", "port: 80\n", "port: +80\n", `d.yaml:6:11: services[0].port: `},
		{"a port tagged as text", "port: 80\n", "port: !!str 80\n", `is not a whole number from 0 to 65535`},
		{"a key without a value", "method: nat", "method: nat\n    scheduler:", `d.yaml:8:5: services[0].scheduler: has no value: write one, or leave the key out`},
		{"null", "method: nat", "method: ~", `d.yaml:7:5: services[0].method: has no value`},
		{"an alias that stands for nothing", "port: 80\n", "port: *web\n", `d.yaml:6:11: *web stands for nothing: no &web stands before it`},
		{"an alias before what it stands for", "    port: 80\n    method: nat", "    port: *web\n    method: &web nat", `d.yaml:6:11: *web stands for nothing`},
		{"an unknown tag", "port: 80\n", "port: !port 80\n", `d.yaml:6:11: the tag !port has no meaning here: leave it out`},
		{"another encoding", "links:", "\xff\xfel\x00:", `d.yaml:1:1: the file is not UTF-8`},
		{"more than a megabyte", "links:", strings.Repeat("# much\n", 150_000) + "links:", `d.yaml:1:1: the file is larger than 1048576 bytes`},
		{"a deep flow", "links:", "x: " + strings.Repeat("[", 500_000) + "\nlinks:", `d.yaml:1:36: is nested more than 32 deep here`},
		{"a deep line", "links:", strings.Repeat("- ", 250_000) + "\nlinks:", `d.yaml:1:65: is nested more than 32 deep here`},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(good, c.old, c.new, 1)
			if text == good {
				t.Fatal("the case changes nothing")
			}
			if c.name == "DR on a tundev" {
				text = strings.Replace(text, "method: nat", "method: dr", 1)
				text = strings.Replace(text, ", port: 8080", "", 1)
				c.want = `d.yaml:8:13: services[0].method: dr works by the frame's destination MAC, and the link lb0 is a tundev`
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

func TestParseTellsEveryFaultInOrder(t *testing.T) {
	text := strings.NewReplacer("192.0.2.10", "vip", "8080", "70000").Replace(good)
	_, err := control.Parse("d.yaml", []byte(text))
	if err == nil {
		t.Fatal("was accepted")
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "d.yaml:4:10:") || !strings.HasPrefix(lines[1], "d.yaml:9:35:") {
		t.Errorf("got\n%v\nwant one line for the VIP and one for the port", err)
	}
}

// One mistake is told once.
func TestParseTellsAFaultOnce(t *testing.T) {
	for _, c := range []struct{ name, old, new, want string }{
		{"links as a word", "links:\n  - name: eth0", "links: eth0", `d.yaml:1:8: links: must be a list, not "eth0"`},
		{"links as a mapping", "links:\n  - name: eth0", "links:\n  name: eth0", `d.yaml:2:3: links: must be a list, not a mapping`},
		{"links with nothing", "links:\n  - name: eth0", "links:", `d.yaml:1:1: links: has no value: write one, or leave the key out`},
		{"no link in the list", "links:\n  - name: eth0", "links: []", `d.yaml:1:1: links: is missing: at least one interface must be there`},
		{"a link as a word", "- name: eth0", "- eth0", `d.yaml:2:5: links[0]: must be a mapping with the keys name, type, vlan, ring, addresses, not "eth0"`},
		{"a list as a link's name", "name: eth0", "name: [eth0]", `d.yaml:2:11: links[0].name: must be a word, not a list`},
		{"services as a word", good[strings.Index(good, "services:"):], "services: web\n", `d.yaml:3:11: services: must be a list, not "web"`},
		{"a service as a number", good[strings.Index(good, "services:"):], "services: [5]\n", `d.yaml:3:12: services[0]: must be a mapping with the keys vip, protocol, port, fwmark, ipv6, scheduler, flags, persistence_timeout, persistence_granularity, persistence_engine, ops, method, clamp_mss, sources, source_ports, toa, servers, not "5"`},
		{"servers as a mapping", "      - {address: 10.2.0.1, port: 8080}", "      address: 10.2.0.1", `d.yaml:9:7: services[0].servers: must be a list, not a mapping`},
		{"a server as a word", "{address: 10.2.0.1, port: 8080}", "10.2.0.1", `d.yaml:9:9: services[0].servers[0]: must be a mapping with the keys address, port, weight, method, uthreshold, lthreshold, tunnel, not "10.2.0.1"`},
		{"a list as the VIP", "vip: 192.0.2.10", "vip: [192.0.2.10]", `d.yaml:4:10: services[0].vip: must be a word, not a list`},
		{"a mapping as the port", "port: 80\n", "port: {web: 80}\n", `d.yaml:6:11: services[0].port: a mapping is not a whole number from 0 to 65535`},
		{"a list as the method", "method: nat", "method: [nat]", `d.yaml:7:13: services[0].method: must be a word, not a list`},
		{"an alias for nothing", "vip: 192.0.2.10", "vip: *v", `d.yaml:4:10: *v stands for nothing: no &v stands before it`},
		{"an alias for nothing as a server", "{address: 10.2.0.1, port: 8080}", "*s", `d.yaml:9:9: *s stands for nothing: no &s stands before it`},
		{"two servers with a bad port", "port: 8080}", "port: x}\n      - {address: 10.2.0.1}", `d.yaml:9:35: services[0].servers[0].port: "x" is not a whole number from 0 to 65535`},
		{"a word as the whole file", good, "pktdirector\n", `d.yaml:1:1: must be a mapping with the keys links, routes, control, standby, api, metrics, drift, watch, snapshot, sysctl, timeouts, marks, services, not "pktdirector"`},
	} {
		text := strings.Replace(good, c.old, c.new, 1)
		_, err := control.Parse("d.yaml", []byte(text))
		if err == nil {
			t.Errorf("%s: was accepted:\n%s", c.name, text)
		} else if err.Error() != c.want {
			t.Errorf("%s: got\n%v\nwant\n%s", c.name, err, c.want)
		}
	}
}

// Of a file that is wrong all over, some faults are told, and how many more.
func TestParseTellsSomeOfManyFaults(t *testing.T) {
	_, err := control.Parse("d.yaml", []byte(good+"routes:\n"+strings.Repeat("  - x\n", 60)))
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 51 || lines[50] != "d.yaml: and 10 more" {
		t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
	}
}

// What YAML and editors let people write and means nothing else.
func TestParseAccepts(t *testing.T) {
	want, err := control.Parse("d.yaml", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, old, new string }{
		{"a byte order mark", "links:", "\ufefflinks:"},
		{"lines that end as on Windows", "\n", "\r\n"},
		{"a name tagged as text", "name: eth0", "name: !!str eth0"},
		{"a tagged number", "port: 80\n", "port: !!int 80\n"},
		{"tagged collections", "links:\n", "links: !!seq\n"},
		{"an alias", "port: 80\n    method: nat\n    servers:\n      - {address: 10.2.0.1, port: 8080}", "port: 80\n    method: &m nat\n    servers:\n      - {address: 10.2.0.1, port: 8080, method: *m}"},
		{"a name given twice, the nearest counts", "method: nat\n    servers:\n      - {address: 10.2.0.1, port: 8080}", "scheduler: &m wlc\n    method: &m nat\n    servers:\n      - {address: 10.2.0.1, port: 8080, method: *m}"},
	} {
		text := strings.ReplaceAll(good, c.old, c.new)
		if text == good {
			t.Fatalf("%s: the case changes nothing", c.name)
		}
		got, err := control.Parse("d.yaml", []byte(text))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if diff := cmp.Diff(want, got, opaque(), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
	if _, err := control.Load("/dev/zero"); err == nil || !strings.Contains(err.Error(), "is larger than") {
		t.Errorf("a file without end: %v", err)
	}
}

func TestReferenceFile(t *testing.T) {
	c, err := control.Load("../docs/director.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Ruleset.Validate(sched.Known); err != nil {
		t.Error(err)
	}
	if len(c.Ruleset.Services) != 8 || len(c.Links) != 2 || len(c.Routes) != 1 || len(c.Ruleset.Marks) != 2 {
		t.Errorf("%d services, %d links, %d routes, %d marks; want 8, 2, 1, 2", len(c.Ruleset.Services), len(c.Links), len(c.Routes), len(c.Ruleset.Marks))
	}
}

func TestMinimalFile(t *testing.T) {
	c, err := control.Parse("minimal", control.Minimal("eth0"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Ruleset.Validate(sched.Known); err != nil {
		t.Error(err)
	}
}

// printedAndRead returns what Parse reads of what Print writes, and that text.
func printedAndRead(t *testing.T, c *control.Config) (again *control.Config, text string) {
	t.Helper()
	var b strings.Builder
	if err := c.Print(&b); err != nil {
		t.Fatal(err)
	}
	again, err := control.Parse("printed", []byte(b.String()))
	if err != nil {
		t.Fatalf("Print wrote what Parse refuses: %v\n%s", err, b.String())
	}
	return again, b.String()
}

// What Print writes, Parse reads as the same configuration; and no input makes
// Parse panic, or accept rules that Validate refuses.
func FuzzConfig(f *testing.F) {
	f.Add([]byte(good))
	f.Add(control.Minimal("lo"))
	if reference, err := os.ReadFile("../docs/director.yaml"); err == nil {
		f.Add(reference)
	}
	f.Add([]byte("a: &a [*a]\nlinks: *a\nservices: *b"))
	f.Add([]byte("\ufefflinks: [{name: !!str 7}]\nservices: [{vip: &v 192.0.2.1, protocol: tcp, port: 0o7, method:}, *v]"))
	f.Add([]byte("links: [{name: e, vlan: 3}]\nservices: [{vip: ::1, protocol: udp, port: 0x35, servers: []}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := control.Parse("f", data)
		if err != nil {
			return
		}
		if err := c.Ruleset.Validate(sched.Known); err != nil {
			t.Fatalf("Parse accepts what Validate refuses: %v", err)
		}
		again, text := printedAndRead(t, c)
		if diff := cmp.Diff(c, again, opaque(), cmpopts.EquateEmpty(), cmpopts.IgnoreFields(control.Sysctl{}, "At")); diff != "" {
			t.Fatalf("changed by printing (-before +after):\n%s\n%s", diff, text)
		}
	})
}
