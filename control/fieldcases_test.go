package control_test

import (
	"fmt"
	"strings"
	"testing"

	"pktdirector/control"
	"pktdirector/lvs"
)

// do carries out command lines, which must succeed, and returns what they warned of.
func do(t *testing.T, c *control.Commander, lines ...string) (warnings []string) {
	t.Helper()
	for _, line := range lines {
		a := c.Do(strings.Fields(line), "")
		if a.Code != 0 || a.Stderr != "" {
			t.Fatalf("%s: exit code %d: %s", line, a.Code, a.Stderr)
		}
		warnings = append(warnings, a.Warnings...)
	}
	return warnings
}

// Field case 23. The dialect does what ipvsadm does, and so a weight that is edited
// without a method makes it -g; but it is told, never silent. (Which method ipvsadm
// asks for then, TestCommandsMeanWhatIpvsadmAsksTheKernelFor has from ipvsadm itself.)
func TestFieldCase23EditOfAWeightByIpvsadm(t *testing.T) {
	const service, server = "-A -t 192.0.2.10:80 -s rr -p 300 -M 255.255.255.0", "-a -t 192.0.2.10:80 -r 10.2.0.1:80 -m -w 1 -x 9 -y 4"
	for _, c := range []struct {
		edit, list string
		warnings   []string
	}{
		{"-e -t 192.0.2.10:80 -r 10.2.0.1:80 -m -w 5 -x 9 -y 4", "10.2.0.1:80 Masq 5", nil},
		{"-e -t 192.0.2.10:80 -r 10.2.0.1:80 -w 5 -x 9 -y 4", "10.2.0.1:80 Route 5", []string{
			"10.2.0.1:80 of TCP 192.0.2.10:80: the forwarding method was Masq and is Route now, since ipvsadm -e takes its default where -g, -i or -m is not given"}},
		{"-e -t 192.0.2.10:80 -r 10.2.0.1:80 -m -w 5", "10.2.0.1:80 Masq 5", []string{
			"the upper threshold was 9 and is 0 now", "the lower threshold was 4 and is 0 now"}},
		{"-e -t 192.0.2.10:80 -r 10.2.0.1:80 -i -x 9 -y 4", "10.2.0.1:80 Tunnel 1", nil}, // named, so wanted
		{"-E -t 192.0.2.10:80 -s rr", "192.0.2.10:80 rr", []string{
			"TCP 192.0.2.10:80: the persistence timeout was 5m0s and is none now, since ipvsadm -E takes its default where -p is not given"}},
		{"-E -t 192.0.2.10:80 -p 300", "192.0.2.10:80 wlc persistent 300", []string{
			"the scheduler was rr and is wlc now", "the persistence mask was 255.255.255.0 and is none now"}},
		{"-E -t 192.0.2.10:80 -s rr -p 300 -M 255.255.255.0", "192.0.2.10:80 rr persistent 300 mask 255.255.255.0", nil},
	} {
		com := commander()
		do(t, com, service, server)
		warnings := do(t, com, c.edit)
		list := strings.Join(strings.Fields(com.Do([]string{"-Ln"}, "").Stdout), " ")
		if !strings.Contains(list, c.list) {
			t.Errorf("%s: no %q in %s", c.edit, c.list, list)
		}
		if len(warnings) != len(c.warnings) {
			t.Errorf("%s: warned of %q, want %q", c.edit, warnings, c.warnings)
			continue
		}
		for i, w := range c.warnings {
			if !strings.Contains(warnings[i], w) {
				t.Errorf("%s: warned of %q, want %q", c.edit, warnings[i], w)
			}
		}
	}
	com := commander()
	do(t, com, service, "-a -t 192.0.2.10:80 -r 10.2.0.1:8080 -m")
	if a := com.Do(strings.Fields("-e -t 192.0.2.10:80 -r 10.2.0.1:8080 -w 5"), ""); a.Code != 255 || a.Stderr != "No such destination\n" {
		t.Errorf("another port, and no -m: %+v; recorded is 255, No such destination", a)
	}
	if a := com.Do([]string{"-R"}, "-e -t 192.0.2.10:80 -r 10.2.0.1:8080 -m -w 5 -x 3\n-e -t 192.0.2.10:80 -r 10.2.0.1:8080 -m -x 3\n"); len(a.Warnings) != 1 {
		t.Errorf("by -R: warned of %q", a.Warnings)
	}
}

// Field case 23 of the configuration file: what an edited file does not change stays.
func TestFieldCase23EditOfAWeightByTheFile(t *testing.T) {
	com := commander()
	d := com.Director.(ruled)
	text := "links: [{name: eth0}]\nservices: [{vip: 192.0.2.10, protocol: tcp, port: 80, scheduler: rr, persistence_timeout: 300, method: nat, servers: [{address: 10.2.0.1, weight: 1, uthreshold: 9}]}]\n"
	for _, weight := range []string{"1", "5"} {
		c, err := control.Parse("d.yaml", []byte(strings.Replace(text, "weight: 1", "weight: "+weight, 1)))
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Apply(c.Ruleset); err != nil {
			t.Fatal(err)
		}
	}
	s := d.Ruleset().Services[0]
	if rs := s.Servers[0]; rs.Method != lvs.Masq || rs.Weight != 5 || rs.Upper != 9 || s.Scheduler != "rr" || s.Persist == 0 {
		t.Errorf("%+v", s)
	}
}

// Field case 41: 0 is a weight like any other, from the file and the command line, on
// the list, saved, restored and exported; what is no weight is refused with its place.
func TestFieldCase41WeightZero(t *testing.T) {
	c, err := control.Parse("d.yaml", []byte(strings.Replace(good, "port: 8080", "port: 8080, weight: 0", 1)))
	if err != nil || c.Ruleset.Services[0].Servers[0].Weight != 0 {
		t.Fatalf("weight: 0 is read as %d, %v", c.Ruleset.Services[0].Servers[0].Weight, err)
	}
	if e := c.Export(); !strings.Contains(e.Config, "weight: 0") {
		t.Errorf("exported:\n%s", e.Config)
	}
	for value, want := range map[string]string{
		"-1":         `d.yaml:9:37: services[0].servers[0].weight: -1 is out of range: 0 to 2147483647`,
		"x":          `d.yaml:9:37: services[0].servers[0].weight: "x" is not a whole number from 0 to 2147483647`,
		"2147483648": `d.yaml:9:37: services[0].servers[0].weight: 2147483648 is out of range: 0 to 2147483647`,
	} {
		_, err := control.Parse("d.yaml", []byte(strings.Replace(good, "port: 8080", "weight: "+value, 1)))
		if err == nil || err.Error() != want {
			t.Errorf("weight %s: %v, want %s", value, err, want)
		}
	}
	com := commander()
	do(t, com, "-A -t 192.0.2.10:80 -s rr", "-a -t 192.0.2.10:80 -r 10.2.0.1:8080 -m -w 0")
	saved := com.Do([]string{"-Sn"}, "").Stdout
	for _, line := range []string{"-w -1", "-w x", "-w 2147483648"} {
		for _, op := range []string{"-a -t 192.0.2.10:80 -r 10.2.0.2:8080 -m ", "-e -t 192.0.2.10:80 -r 10.2.0.1:8080 -m "} {
			if a := com.Do(strings.Fields(op+line), ""); a.Code == 0 || com.Do([]string{"-Sn"}, "").Stdout != saved {
				t.Errorf("%s: exit code %d, and then\n%s", op+line, a.Code, com.Do([]string{"-Sn"}, "").Stdout)
			}
		}
	}
	again := commander()
	if a := again.Do([]string{"-R"}, saved); a.Code != 0 {
		t.Fatal(a.Stderr)
	}
	if got := again.Do([]string{"-Sn"}, "").Stdout; got != saved || !strings.Contains(got, " -w 0\n") {
		t.Errorf("saved\n%sand restored\n%s", saved, got)
	}
	if list := again.Do([]string{"-Ln"}, "").Stdout; !strings.Contains(list, "Masq    0 ") {
		t.Errorf("listed as\n%s", list)
	}
}

// Field case 50: an address is read as what it says, or refused; listings write it in
// one way, and what is saved is restored byte for byte.
func TestFieldCase50AddressesOfIPv6(t *testing.T) {
	com := commander()
	do(t, com, "-A -t [2001:db8:0:80::80]:80 -s rr", "-A -t [2001:0DB8:0::1]:80 -s rr", "-A -u 2001:db8::2 -p -s rr",
		"-a -t [2001:db8:0:80::80]:80 -r [2001:db8:2:0:0:0:0:1]:8080 -m", "-a -t [2001:db8:0:80::80]:80 -r 10.2.0.9 -i", "-a -t [2001:db8::1]:80 -r 2001:db8:2::7 -g")
	saved := com.Do([]string{"-Sn"}, "").Stdout
	for _, line := range []string{
		"-A -t 2001:db8:0:80::80:80 -s rr",         // an address, whose port is 0 then
		"-A -t [2001:db8:0:80::80/64]:80",          // a prefix length
		"-A -t [2001:db8::9]",                      // brackets and no port
		"-A -t [2001:db8::9]: -p",                  // no port behind the colon
		"-A -t fe80::1%eth0 -p",                    // a zone
		"-A -t [fe80::1%eth0]:80",                  //
		"-A -t 2001:db8::g -p",                     // no address
		"-a -t [2001:db8::1]:80 -r 10.2.0.9:80 -m", // NAT to the other version
		"-a -t [2001:db8::1]:80 -r 10.2.0.9:80 -g",
		"-a -t [2001:db8::1]:80 -r [2001:db8:2::1/64]:80 -m",
		"-a -t [2001:db8::1]:80 -r [2001:db8:2::1]:99999 -m",
		"-A -f 5 -6 -p -M 129", "-A -f 5 -6 -p -M 255.255.255.0",
	} {
		a := com.Do(strings.Fields(line), "")
		if a.Code == 0 || a.Stderr == "" {
			t.Errorf("%s: taken", line)
		}
		if got := com.Do([]string{"-Sn"}, "").Stdout; got != saved {
			t.Errorf("%s: refused, and yet\n%s", line, got)
		}
	}
	for _, want := range []string{"-A -t [2001:db8:0:80::80]:80 -s rr\n", "-A -t [2001:db8::1]:80 -s rr\n", "-A -u [2001:db8::2]:0 -s rr -p 360\n",
		"-a -t [2001:db8:0:80::80]:80 -r [2001:db8:2::1]:8080 -m -w 1\n", "-a -t [2001:db8:0:80::80]:80 -r 10.2.0.9:80 -i -w 1 --tun-type ipip\n"} {
		if !strings.Contains(saved, want) {
			t.Errorf("saved without %q:\n%s", want, saved)
		}
	}
	again := commander()
	if a := again.Do([]string{"-R"}, saved); a.Code != 0 || a.Stderr != "" {
		t.Fatal(a.Stderr)
	}
	if got := again.Do([]string{"-Sn"}, "").Stdout; got != saved {
		t.Errorf("saved\n%sand restored\n%s", saved, got)
	}

	service := "links: [{name: eth0}]\nservices: [{vip: '%s', protocol: tcp, port: 80, method: %s, servers: [{address: '%s'}]}]\n"
	for _, c := range []struct{ vip, method, rip, want string }{
		{"2001:db8:0:80::80", "nat", "2001:db8::1", ""},
		{"2001:db8:0:80::80", "tun", "10.2.0.1", ""},
		{"[2001:db8:0:80::80]:80", "nat", "2001:db8::1", `d.yaml:2:18: services[0].vip: "[2001:db8:0:80::80]:80" is no IP address: write one like`},
		{"2001:db8:0:80::80/64", "nat", "2001:db8::1", `d.yaml:2:18: services[0].vip: "2001:db8:0:80::80/64" is no IP address`},
		{"fe80::1%eth0", "nat", "2001:db8::1", `services[0].vip: "fe80::1%eth0" names a zone: write the address without %eth0`},
		{"2001:db8::1", "nat", "10.2.0.1", `10.2.0.1 is of another IP version than the VIP 2001:db8::1, which only tun can bridge`},
		{"2001:db8::1", "dr", "10.2.0.1", `which only tun can bridge`},
		{"2001:db8::1", "nat", "[2001:db8::2]", `"[2001:db8::2]" is no IP address`},
	} {
		_, err := control.Parse("d.yaml", fmt.Appendf(nil, service, c.vip, c.method, c.rip))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
