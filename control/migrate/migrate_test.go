package migrate_test

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pktdirector/control"
	"pktdirector/control/migrate"
	"pktdirector/sched"
)

func read(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// remarks writes what was told, one a line.
func remarks(r migrate.Result) string {
	var b strings.Builder
	for _, one := range r.Remarks {
		fmt.Fprintln(&b, one)
	}
	return b.String()
}

// must imports a text and reads the configuration it makes.
func must(t testing.TB, name, text string, o migrate.Options) (migrate.Result, *control.Config) {
	t.Helper()
	r, err := migrate.Import(migrate.File{Name: name, Text: text}, o)
	if err != nil {
		t.Fatal(err)
	}
	c, err := control.Parse("director.yaml", []byte(r.Config))
	if err != nil {
		t.Fatalf("%v\n%s", err, r.Config)
	}
	if err := c.Ruleset.Validate(sched.Known); err != nil {
		t.Fatal(err)
	}
	return r, c
}

var update = flag.Bool("update", false, "write the files under testdata anew")

// golden compares with a file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile("testdata/"+name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(read(t, name), got); diff != "" {
		t.Errorf("testdata/%s (-want +got):\n%s", name, diff)
	}
}

// TestKeepalivedIsTakenOver has one of everything that keepalived.conf can say of
// virtual servers, and holds the configuration and each remark.
func TestKeepalivedIsTakenOver(t *testing.T) {
	include := func(from, pattern string) ([]migrate.File, error) {
		if from != "keepalived.conf" || pattern != "/etc/keepalived/more.conf" {
			t.Errorf("included: %q from %q", pattern, from)
		}
		return []migrate.File{{Name: pattern, Text: "virtual_server 192.0.2.70 80 {\n  lvs_sched rr\n  delay_loop 5\n}\ninclude ../more.conf\n"}}, nil
	}
	first := true
	o := migrate.Options{Links: []string{"eth0", "eth1"}, Include: func(from, pattern string) ([]migrate.File, error) {
		if first {
			first = false
			return include(from, pattern)
		}
		return nil, errors.New("no such file")
	}}
	r, c := must(t, "keepalived.conf", read(t, "keepalived.conf"), o)
	golden(t, "keepalived.yaml", r.Config)
	golden(t, "keepalived.remarks", remarks(r))
	if r.Format != migrate.Keepalived || r.Services != len(c.Ruleset.Services) {
		t.Errorf("format %s, %d services of %d", r.Format, r.Services, len(c.Ruleset.Services))
	}
}

// TestRulesOfIpvsadmAreTakenOver reads what ipvsadm 1.31 saved of a kernel.
func TestRulesOfIpvsadmAreTakenOver(t *testing.T) {
	r, _ := must(t, "ipvsadm.save", read(t, "ipvsadm.save"), migrate.Options{Links: []string{"eth0"}})
	golden(t, "ipvsadm.yaml", r.Config)
	golden(t, "ipvsadm.remarks", remarks(r))
}

// TestLinesOfIpvsadm are carried out in their order, as -R and a script's shell do.
func TestLinesOfIpvsadm(t *testing.T) {
	names := control.StaticNames(map[string]netip.Addr{"vip.example": netip.MustParseAddr("192.0.2.10")}, map[string]uint16{"http": 80}, nil)
	for _, c := range []struct{ name, lines, services, told string }{
		{"comments, the program's name, and blank lines", "# rules\n\nipvsadm -A -t 192.0.2.10:80 -s rr\r\n/sbin/ipvsadm -a -t 192.0.2.10:80 -r 10.2.0.1 -m\n", "TCP 192.0.2.10:80 rr 10.2.0.1:80", ""},
		{"names", "-A -t vip.example:http -s rr", "TCP 192.0.2.10:80 rr", ""},
		{"weight 0 (field case 41)", "-A -t 192.0.2.10:80\n-a -t 192.0.2.10:80 -r 10.2.0.1 -m -w 0", "TCP 192.0.2.10:80 wlc 10.2.0.1:80w0", ""},
		{"a negative weight (field case 41)", "-A -t 192.0.2.10:80\n-a -t 192.0.2.10:80 -r 10.2.0.1 -m -w -1", "TCP 192.0.2.10:80 wlc", "f:2: -a -t 192.0.2.10:80 -r 10.2.0.1 -m -w -1: is left out: ipvsadm would refuse it, too: illegal weight specified"},
		{"a weight in words (field case 41)", "-A -t 192.0.2.10:80\n-a -t 192.0.2.10:80 -r 10.2.0.1 -m -w x", "TCP 192.0.2.10:80 wlc", "f:2: -a -t 192.0.2.10:80 -r 10.2.0.1 -m -w x: is left out: ipvsadm would refuse it, too: illegal weight specified"},
		{"edits", "-A -t 192.0.2.10:80\n-a -t 192.0.2.10:80 -r 10.2.0.1 -m\n-e -t 192.0.2.10:80 -r 10.2.0.1 -m -w 7\n-E -t 192.0.2.10:80 -s sh", "TCP 192.0.2.10:80 sh 10.2.0.1:80w7", ""},
		{"an edit without a method (field case 23)", "-A -t 192.0.2.10:80\n-a -t 192.0.2.10:80 -r 10.2.0.1 -m\n-e -t 192.0.2.10:80 -r 10.2.0.1 -w 7", "TCP 192.0.2.10:80 wlc 10.2.0.1:80w7",
			"f:3: -e -t 192.0.2.10:80 -r 10.2.0.1 -w 7: changes the method from Masq to Route, as ipvsadm does where the line names no method and so means -g"},
		{"removals", "-A -t 192.0.2.10:80\n-a -t 192.0.2.10:80 -r 10.2.0.1\n-a -t 192.0.2.10:80 -r 10.2.0.2\n-d -t 192.0.2.10:80 -r 10.2.0.1\n-A -f 1\n-D -f 1", "TCP 192.0.2.10:80 wlc 10.2.0.2:80", ""},
		{"a server that is removed and comes back", "-A -t 192.0.2.10:80\n-a -t 192.0.2.10:80 -r 10.2.0.1\n-d -t 192.0.2.10:80 -r 10.2.0.1\n-a -t 192.0.2.10:80 -r 10.2.0.1", "TCP 192.0.2.10:80 wlc 10.2.0.1:80", ""},
		{"a flush", "-A -t 192.0.2.10:80\n-C\n-A -t 192.0.2.10:80 -s rr", "TCP 192.0.2.10:80 rr", ""},
		{"a service twice", "-A -t 192.0.2.10:80\n-A -t 192.0.2.10:80 -s rr", "TCP 192.0.2.10:80 wlc", "f:2: -A -t 192.0.2.10:80 -s rr: is left out: the service TCP 192.0.2.10:80 stands already in f:1"},
		{"a server twice", "-A -t 192.0.2.10:80\n-a -t 192.0.2.10:80 -r 10.2.0.1\n-a -t 192.0.2.10:80 -r 10.2.0.1 -w 4", "TCP 192.0.2.10:80 wlc 10.2.0.1:80",
			"f:3: -a -t 192.0.2.10:80 -r 10.2.0.1 -w 4: is left out: the service has the server 10.2.0.1:80 already, by f:2"},
		{"a server of no service", "-A -t 192.0.2.10:80\n-a -t 192.0.2.10:81 -r 10.2.0.1", "TCP 192.0.2.10:80 wlc", "f:2: -a -t 192.0.2.10:81 -r 10.2.0.1: is left out: no service of that address"},
		{"an unknown server", "-A -t 192.0.2.10:80\n-d -t 192.0.2.10:80 -r 10.2.0.1", "TCP 192.0.2.10:80 wlc", "f:2: -d -t 192.0.2.10:80 -r 10.2.0.1: is left out: the service has no such server"},
		{"an unknown scheduler", "-A -t 192.0.2.10:80 -s best", "", `f:1: -A -t 192.0.2.10:80 -s best: is left out: scheduler "best" is not known: one of dh`},
		{"thresholds the wrong way round", "-A -t 192.0.2.10:80\n-a -t 192.0.2.10:80 -r 10.2.0.1 -x 5 -y 6", "TCP 192.0.2.10:80 wlc", "f:2: -a -t 192.0.2.10:80 -r 10.2.0.1 -x 5 -y 6: is left out: the lower threshold -y is above the upper one -x"},
		{"a persistence engine", "-A -u 192.0.2.10:5060 -p 60 --pe sip", "UDP 192.0.2.10:5060 wlc", "f:1: -A -u 192.0.2.10:5060 -p 60 --pe sip: --pe sip is taken over and has no effect"},
		{"the sync daemon", "-A -t 192.0.2.10:80\n--start-daemon=master", "TCP 192.0.2.10:80 wlc", "f:2: --start-daemon=master: is left out: the director has no sync daemon"},
		{"listings", "-A -t 192.0.2.10:80\n-Ln", "TCP 192.0.2.10:80 wlc", "f:2: -Ln: is left out: it changes no rules"},
		{"counters", "-A -t 192.0.2.10:80\n-Z", "TCP 192.0.2.10:80 wlc", "f:2: -Z: is left out: counters are no part of a configuration"},
		{"-6 without a firewall mark before it", "-A6", "", "f:1: -A6: is left out: ipvsadm would refuse it, too: -6 used before -f"},
		{"an unknown option", "-A -t 192.0.2.10:80 --best", "", "f:1: -A -t 192.0.2.10:80 --best: is left out: ipvsadm would refuse it, too: --best: unknown option"},
		{"a VIP that no client reaches", "-A -t 127.0.0.1:80\n-A -t 224.0.0.1:80", "", "f:1: -A -t 127.0.0.1:80: the service is left out: vip: 127.0.0.1 is reached by no other machine"},
		{"a server that is the host", "-A -t 192.0.2.10:80\n-a -t 192.0.2.10:80 -r 127.0.0.1", "TCP 192.0.2.10:80 wlc", "f:2: server 127.0.0.1:80 of TCP 192.0.2.10:80: the server is left out: address: 127.0.0.1 is this host itself"},
		{"a masquerading server of each packet's port", "-A -t 192.0.2.10:80\n-a -t 192.0.2.10:80 -r 10.2.0.1:0 -m", "TCP 192.0.2.10:80 wlc 10.2.0.1:0", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, config := must(t, "f", c.lines, migrate.Options{Links: []string{"eth0"}, Names: names})
			if got := summary(config); got != c.services {
				t.Errorf("services %q, want %q", got, c.services)
			}
			got := remarks(r)
			if c.told == "" && got != "" || !strings.Contains(got, c.told) {
				t.Errorf("told %q, want %q", got, c.told)
			}
		})
	}
}

// summary writes services and servers in short.
func summary(c *control.Config) string {
	var all []string
	for _, s := range c.Ruleset.Services {
		all = append(all, s.ServiceKey.String()+" "+s.Scheduler)
		for _, rs := range s.Servers {
			text := rs.ServerKey.String()
			if rs.Weight != 1 {
				text += fmt.Sprintf("w%d", rs.Weight)
			}
			all = append(all, text)
		}
	}
	return strings.Join(all, " ")
}

// TestTimeoutsAreTakenOver of both formats.
func TestTimeoutsAreTakenOver(t *testing.T) {
	for name, text := range map[string]string{
		"ipvsadm":    "--set 600 0 30\n-A -t 192.0.2.10:80",
		"keepalived": "global_defs {\n lvs_timeouts udp 30 tcp 600\n}\nvirtual_server 192.0.2.10 80 {\n lvs_sched rr\n}\n",
	} {
		r, c := must(t, name, text, migrate.Options{Links: []string{"eth0"}})
		if want := (control.Timeouts{TCP: 600e9, UDP: 30e9}); c.Timeouts != want || len(r.Remarks) > 0 {
			t.Errorf("%s: %v %v", name, c.Timeouts, r.Remarks)
		}
	}
}

// TestWhatTheFileCannotSayIsToFillIn: the interfaces.
func TestWhatTheFileCannotSayIsToFillIn(t *testing.T) {
	r, c := must(t, "rules", "-A -t 192.0.2.10:80", migrate.Options{})
	if c.Links[0].Name != "FILL-IN" || !strings.Contains(r.Config, "# FILL IN: the interfaces") || !strings.Contains(remarks(r), "rules: does not say which interfaces") {
		t.Errorf("%s\n%s", r.Config, remarks(r))
	}
}

// TestFilesThatCannotBeRead at all have an error with the place and the remedy.
func TestFilesThatCannotBeRead(t *testing.T) {
	vs := "virtual_server 192.0.2.10 80 {\n"
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", "f: has neither a line of ipvsadm (-A -t ...) nor a block of keepalived.conf (virtual_server ... {): say which it is by --format"},
		{"another file", "server: 1\nport: 2\n", "f: has neither a line of ipvsadm"},
		{"a block that is not closed", vs + " real_server 10.2.0.1 80 {\n }\n", "f:1: the block virtual_server 192.0.2.10 80 is not closed: one } is missing"},
		{"a brace too many", vs + "}\n}\n", "f:3: } ends no block: one { is missing above, or this one is too many"},
		{"a block without a name", vs + "}\n{\n}\n", "f:3: { opens a block without a name: write the name in front of it"},
		{"definitions without end", "$A=$B\n$B=$A\n" + vs + "}\n$A\n", "f:5: definitions stand for each other without end"},
		{"definitions of lines without end", "$A= \\\n x \\\n $A\n" + vs + "}\n$A\n", "f:6: definitions stand for each other without end"},
		{"definitions that grow", "$A=${B}${B}\n$B=${C}${C}\n$C=${D}${D}\n$D=${E}${E}\n$E=${F}${F}\n$F=${G}${G}\n$G=" + strings.Repeat("x", 1<<15) + "\n" + vs + "}\n${A}\n", "is longer than 1048576 bytes"},
		{"a definition that does not end", vs + "}\n$A=x \\\n", "f:3: the definition of $A goes on to the end of the file"},
		{"many blocks", strings.Repeat("a {\n", 40), "f:33: more than 32 blocks stand one inside the other"},
		{"too much", vs + strings.Repeat("x", 17<<20), "f: is larger than 16777216 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := migrate.Import(migrate.File{Name: "f", Text: c.text}, migrate.Options{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s\n%s", err, c.want, r.Config)
			}
		})
	}
	loop := migrate.Options{Include: func(string, string) ([]migrate.File, error) {
		return []migrate.File{{Name: "again", Text: "include again\n"}}, nil
	}}
	if _, err := migrate.Import(migrate.File{Name: "f", Text: "include again\n" + vs + "}\n"}, loop); err == nil || !strings.Contains(err.Error(), "files include each other more than 16 deep") {
		t.Errorf("files that include each other: %v", err)
	}
}

// TestLinesForOneMachine count where keepalived is that machine's.
func TestLinesForOneMachine(t *testing.T) {
	text := "virtual_server 192.0.2.10 80 {\n lvs_sched rr\n @main real_server 10.2.0.1 80 {\n @main weight 2\n }\n @^main real_server 10.2.0.2 80 {\n weight 3\n }\n}\n"
	for id, want := range map[string]string{"main": "TCP 192.0.2.10:80 rr 10.2.0.1:80w2", "other": "TCP 192.0.2.10:80 rr 10.2.0.2:80w3"} {
		r, c := must(t, "f", text, migrate.Options{Links: []string{"eth0"}, ConfigID: id})
		if got := summary(c); got != want || len(r.Remarks) > 0 {
			t.Errorf("%s: %s, want %s %v", id, got, want, r.Remarks)
		}
	}
}

// TestAddressesOfKeepalived has field case 50: no address is taken for another.
func TestAddressesOfKeepalived(t *testing.T) {
	for _, c := range []struct{ head, server, services, told string }{
		{"2001:db8:0:80::80 80", "2001:db8:2::1 80", "TCP [2001:db8:0:80::80]:80 rr [2001:db8:2::1]:80", ""},
		{"2001:DB8:0:80:0:0:0:80 80", "", "TCP [2001:db8:0:80::80]:80 rr", ""},
		{"2001:db8:0:80::80:80", "", "", "add persistence_timeout"}, // an address, and no port
		{"[2001:db8:0:80::80]:80", "", "", "has brackets"},
		{"2001:db8:0:80::80/64 80", "", "", "has a prefix length"},
		{"fe80::1%eth0 80", "", "", "names a zone"},
		{"::ffff:192.0.2.1 80", "", "", `is an IPv4 address written as IPv6: 192.0.2.1 is right`},
		{"192.0.2.010 80", "", "", "is no IP address"},
		{"192.0.2.10 http", "", "", `"http" is not a whole number from 0 to 65535`},
		{"192.0.2.10 80 81", "", "", `"81" stands behind the port 80`},
		{"2001:db8::1", "", "", "add persistence_timeout"},
		{"2001:db8::1 80", "10.2.0.1 80", "TCP [2001:db8::1]:80 rr", "of another IP version than the VIP 2001:db8::1, which only tun can bridge"},
		{"fwmark 0", "", "", "0 is out of range: 1 to 4294967295"},
		{"group nobody", "", "", `there is no virtual_server_group "nobody"`},
		{"192.0.2.1-9 80", "", "", "is no IP address"},
		{"192.0.2.10 80", "10.2.0.1-2 80", "TCP 192.0.2.10:80 rr", "is no IP address"},
		{"192.0.2.10 80", "", "TCP 192.0.2.10:80 rr", "an address is missing behind it"},
	} {
		text := "virtual_server " + c.head + " {\n lvs_sched rr\n"
		if c.server != "" || strings.Contains(c.told, "missing") {
			text += " real_server " + c.server + " {\n }\n"
		}
		r, config := must(t, "f", text+"}\n", migrate.Options{Links: []string{"eth0"}})
		if got := summary(config); got != c.services {
			t.Errorf("%s: services %q, want %q", c.head, got, c.services)
		}
		if got := remarks(r); (c.told == "") != (got == "") || !strings.Contains(got, c.told) {
			t.Errorf("%s: told %q, want %q", c.head, got, c.told)
		}
	}
}

// FuzzImport: whatever the file is, it is refused, or makes a configuration that
// Parse takes.
func FuzzImport(f *testing.F) {
	f.Add(read(f, "keepalived.conf"), "")
	f.Add(read(f, "ipvsadm.save"), "main")
	f.Add("$A=1\n@x virtual_server 1.2.3.4 8${A} { real_server \"1.2.3.5\" { weight 0 } }\ninclude a*\n", "x")
	f.Add("virtual_server_group g {\n 192.0.2.1-9 80\n ::1-f 1\n fwmark 3 inet6\n 192.0.2.0/30\n}\nvirtual_server group g {\nlvs_method TUN type gre csum\n}", "")
	f.Add("-A -f 4294967295 -6 -p -M 0\n-a -f 1 -r 1.2.3.4 -i --tun-type gue --tun-port 1\n-E -f 1 -b flag-3\n--set 1 2 3\n", "")
	f.Fuzz(func(t *testing.T, text, id string) {
		if len(text) > 1<<13 {
			return
		}
		o := migrate.Options{ConfigID: id, Include: func(from, _ string) ([]migrate.File, error) {
			if from != "f" {
				return nil, nil
			}
			return []migrate.File{{Name: "g", Text: "real_server 10.0.0.9 9 {\n"}}, nil
		}}
		r, err := migrate.Import(migrate.File{Name: "f", Text: text}, o)
		if err != nil {
			return
		}
		if _, err := control.Parse("f", []byte(r.Config)); err != nil {
			t.Fatalf("%v\n%s", err, r.Config)
		}
		for _, one := range r.Remarks {
			if one.Why == "" || strings.Contains(one.String(), "\n") {
				t.Fatalf("remark %q", one)
			}
		}
	})
}
