package control_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pktdirector/control"
	"pktdirector/dataplane"
	"pktdirector/modes/dr"
	"pktdirector/modes/fullnat"
	"pktdirector/modes/nat"
	"pktdirector/modes/tun"

	"pktdirector/lvs"
)

// everything is a director's whole state, as far as commands reach it.
func everything(c *control.Commander, d *dataplane.Director) any {
	var conns []dataplane.ConnStatus
	d.Conns(func(one dataplane.ConnStatus) bool { conns = append(conns, one); return true })
	counted, rates := d.Totals()
	tcp, fin, udp := d.Timeouts()
	return []any{d.Ruleset(), d.Status(), d.Tunables(), d.Table(), d.Verdicts(), conns, counted, rates, tcp, fin, udp, c.Timeouts}
}

// TestEveryWrongCommandIsRefusedAndChangesNothing. Where ipvsadm has a message, it is
// ipvsadm's byte for byte, without a remedy where that has none; messages of the
// director's own have the value and the remedy.
func TestEveryWrongCommandIsRefusedAndChangesNothing(t *testing.T) {
	const try = "Try `ipvsadm -h' or 'ipvsadm --help' for more information."
	const v, r = "-t 192.0.2.10:80", "-r 10.2.0.1:80"
	asIpvsadm := []struct {
		line string
		code int
		text string
	}{
		{"", 0, ""}, // -L: the one line here that is right, so that the test can tell
		{"-B", 255, try},
		{"--best", 255, try},
		{"-n", 255, try},
		{"best", 255, try},
		{"-X", 255, try},
		{"-", 255, try},
		{"-A", 2, "You need to supply the 'service-address' option for the 'add-service' command"},
		{"-E -s rr", 2, "You need to supply the 'service-address' option for the 'edit-service' command"},
		{"-D", 2, "You need to supply the 'service-address' option for the 'delete-service' command"},
		{"-a " + v, 2, "You need to supply the 'real-server' option for the 'add-server' command"},
		{"-e " + v, 2, "You need to supply the 'real-server' option for the 'edit-server' command"},
		{"-d " + v, 2, "You need to supply the 'real-server' option for the 'delete-server' command"},
		{"-a " + r, 2, "You need to supply the 'service-address' option for the 'add-server' command"},
		{"-A " + v + " " + r, 2, "Illegal 'real-server' option with the 'add-service' command"},
		{"-A " + v + " -w 3", 2, "Illegal 'weight' option with the 'add-service' command"},
		{"-A " + v + " -m", 2, "Illegal 'forwarding-method' option with the 'add-service' command"},
		{"-D " + v + " -s rr", 2, "Illegal 'scheduler' option with the 'delete-service' command"},
		{"-a " + v + " " + r + " -s rr", 2, "Illegal 'scheduler' option with the 'add-server' command"},
		{"-a " + v + " " + r + " -p", 2, "Illegal 'persistent' option with the 'add-server' command"},
		{"-d " + v + " " + r + " -m", 2, "Illegal 'forwarding-method' option with the 'delete-server' command"},
		{"-C " + v, 2, "Illegal 'service-address' option with the 'flush' command"},
		{"-S -c", 2, "Illegal 'connection' option with the 'save' command"},
		{"-A -D " + v, 2, "invalid option `-D'"},
		{"-A " + v + " -s", 255, "-s: missing argument"},
		{"-a " + v + " -r", 255, "-r: missing argument"},
		{"-A " + v + " --nosuch", 255, "--nosuch: unknown option"},
		{"-A " + v + " -q", 255, "-q: unknown option"},
		{"-A " + v + " --ops=1", 255, "--ops=1: option does not take an argument"},
		{"-A " + v + " extra", 2, "unexpected argument extra"},
		{"-A " + v + " " + v, 2, "multiple 'service-address' options specified"},
		{"-a " + v + " " + r + " -m -g", 2, "multiple 'forwarding-method' options specified"},
		{"-A -t 192.0.2.300:80", 2, "illegal virtual server address[:port] specified"},
		{"-A -t 192.0.2.10:65536", 2, "illegal virtual server address[:port] specified"},
		{"-A -t 192.0.2.10:web", 2, "illegal virtual server address[:port] specified"},
		{"-A -t [2001:db8::1]", 2, "illegal virtual server address[:port] specified"},
		{"-A -t 2001:db8:0:80::80:80", 2, "Zero port specified for non-persistent service"},
		{"-A -u 192.0.2.11:", 2, "illegal virtual server address[:port] specified"},
		{"-a " + v + " -r 10.2.0.1:99999", 2, "illegal real server address[:port] specified"},
		{"-a " + v + " -r www.nowhere.invalid", 2, "illegal real server address[:port] specified"},
		{"-A -t 192.0.2.11:0", 2, "Zero port specified for non-persistent service"},
		{"-A -t 192.0.2.11", 2, "Zero port specified for non-persistent service"},
		{"-A -f 0", 2, "invalid fwmark value `0' specified"},
		{"-A -f x", 2, "invalid fwmark value `x' specified"},
		{"-A -f 4294967296", 2, "invalid fwmark value `4294967296' specified"},
		{"-A -t 192.0.2.11:80 -p 0", 2, "invalid timeout value `0' specified"},
		{"-A -t 192.0.2.11:80 -p 2678401", 2, "invalid timeout value `2678401' specified"},
		{"-A -t 192.0.2.11:80 -p 60 -M 255.255", 0, ""}, // inet_aton takes it: 255.0.0.255
		{"-A -t 192.0.2.12:80 -p 60 -M x", 2, "illegal virtual server persistent mask specified"},
		{"-A -t [2001:db8::9]:80 -p 60 -M 129", 2, "illegal ipv6 netmask specified"},
		{"-A " + v + " -o", 2, "One-Packet Scheduling is only for UDP virtual services"},
		{"-A -t 192.0.2.12:80 -s rr -b sh-port", 2, "incompatible scheduler flag `sh-port'"},
		{"-A -t 192.0.2.12:80 -s sh -b sticky", 2, "invalid scheduler flag `sticky'"},
		{"-A -t 192.0.2.12:80 -s best", 255, "Scheduler or persistence engine not found"},
		{"-A -u 192.0.2.12:80 -p --pe best", 255, "Scheduler or persistence engine not found"},
		{"-a " + v + " -r 10.2.0.9:80 -w -1", 2, "illegal weight specified"},
		{"-a " + v + " -r 10.2.0.9:80 -w x", 2, "illegal weight specified"},
		{"-a " + v + " -r 10.2.0.9:80 -w 2147483648", 2, "illegal weight specified"},
		{"-a " + v + " -r 10.2.0.9:80 -x -1", 2, "illegal u_threshold specified"},
		{"-a " + v + " -r 10.2.0.9:80 -y many", 2, "illegal l_threshold specified"},
		{"-a " + v + " -r 10.2.0.9:80 -x 5 -y 6", 255, "Numerical result out of range"},
		{"-a " + v + " -r 224.0.0.1:80", 255, "Invalid operation.  Possibly wrong module version, address not unicast, ..."},
		{"-a " + v + " -r [2001:db8::1]:80 -m", 2, "Different address family is allowed only for tunneling servers"},
		{"-a " + v + " -r 10.2.0.9:80 -m --tun-type gre", 2, "Tunnel options conflict with forward method"},
		{"-a " + v + " -r 10.2.0.9:80 -i --tun-type vxlan", 2, "illegal tunnel type specified"},
		{"-a " + v + " -r 10.2.0.9:80 -i --tun-type gue", 2, "You need to supply the 'tun-port' option for the 'gue' tunnel type"},
		{"-a " + v + " -r 10.2.0.9:80 -i --tun-type gue --tun-port 0", 2, "illegal tunnel port specified"},
		{"-a " + v + " -r 10.2.0.9:80 -i --tun-type gre --tun-remcsum", 2, "Illegal 'tun-remcsum' option with the 'gre' tunnel type"},
		{"-a " + v + " -r 10.2.0.9:80 -i --tun-csum", 2, "Illegal 'tun-csum' option with the 'ipip' tunnel type"},
		{"-A " + v, 255, "Service already exists"},
		{"-E -t 192.0.2.99:80", 255, "No such service"},
		{"-D -t 192.0.2.99:80", 255, "No such service"},
		{"-Z -t 192.0.2.99:80", 255, "No such service"},
		{"-a -t 192.0.2.99:80 " + r, 255, "Service not defined"},
		{"-e -t 192.0.2.99:80 " + r, 255, "Service not defined"},
		{"-d -t 192.0.2.99:80 " + r, 255, "Service not defined"},
		{"-a " + v + " -r 10.2.0.1:8080 -m", 255, "Destination already exists"},
		{"-e " + v + " -r 10.2.0.77:80", 255, "No such destination"},
		{"-e " + v + " -r 10.2.0.1:8080 -w 5", 255, "No such destination"}, // -g, and so the service's port
		{"-d " + v + " -r 10.2.0.77:80", 255, "No such destination"},
		{"--set 900 120", 2, "--set option requires 3 timeout values"},
		{"--set 900 x 300", 2, "invalid timeout value `x' specified"},
		{"--set 900 120 2678401", 2, "invalid timeout value `2678401' specified"},
		{"-L -c --stats", 2, "options conflicts in the list command"},
		{"-L -c " + v, 2, "The option 'service-address' conflicts with the 'connection' option in the 'list' command"},
		{"-L -t 192.0.2.99:80", 1, "No such service"},
		{"--start-daemon", 255, try},
		{"--stop-daemon master", 255, "No daemon is running"},
		{"--start-daemon=master --syncid 256", 2, "illegal syncid specified"},
		{"-R\n-A " + v + " -q\n", 255, "-q: unknown option"},
		{"-R\n# a comment\n", 255, try},
	}
	own := []struct{ line, value, remedy string }{
		{"--start-daemon=master --mcast-interface eth0", "--start-daemon master", "leave it out"},
		{"-a -u 192.0.2.20:53 -r 10.2.0.9:53 --fullnat", "10.2.0.9:53", "use another method"},
		{"-e -u 192.0.2.20:53 -r 10.2.0.1:53 --fullnat", "10.2.0.1:53", "use another method"},
	}
	newDirector := func() (*control.Commander, *dataplane.Director) {
		d := dataplane.New(dataplane.Options{Shards: 1, Forwarders: dataplane.Forwarders{
			lvs.Masq: nat.Masq{}, lvs.Route: dr.Gateway{}, lvs.Tunnel: tun.New(1), lvs.FullNAT: fullnat.Both{}}})
		c := &control.Commander{Director: d, Connections: func(func(control.Connection) bool) {}, Names: wellKnown(), Interfaces: func() []string { return []string{"eth0"} }}
		do(t, c, "-A "+v+" -s wlc -p 60", "-a "+v+" -r 10.2.0.1:8080 -m -w 3 -x 9", "-a "+v+" -r 10.2.0.2:80 -g",
			"-A -u 192.0.2.20:53 -s rr -o", "-a -u 192.0.2.20:53 -r 10.2.0.1:53 -m",
			"-A -u 192.0.2.21:53 -s rr", "-a -u 192.0.2.21:53 -r 10.2.0.1:53 --fullnat", "-A -f 7 -s sh -b sh-port", "--set 800 0 0")
		return c, d
	}
	refused := 0
	carryOut := func(line string) (control.Answer, bool) {
		c, d := newDirector()
		before := everything(c, d)
		command, stdin, _ := strings.Cut(line, "\n")
		a := c.Do(strings.Fields(command), stdin)
		same := reflect.DeepEqual(before, everything(c, d))
		if a.Code != 0 {
			refused++
			if !same {
				t.Errorf("ipvsadm %s: refused, and yet it is\n%+v\nand was\n%+v", line, everything(c, d), before)
			}
			if len(a.Warnings) > 0 {
				t.Errorf("ipvsadm %s: refused, and warned of %q", line, a.Warnings)
			}
		}
		return a, same
	}
	for _, c := range asIpvsadm {
		a, _ := carryOut(c.line)
		said := ""
		if c.text != "" {
			said = c.text + "\n"
		}
		if a.Code != c.code || a.Stderr != said {
			t.Errorf("ipvsadm %s: %d %q, ipvsadm says %d %q", c.line, a.Code, a.Stderr, c.code, said)
		}
	}
	for _, c := range own {
		if a, _ := carryOut(c.line); a.Code != 255 || !strings.Contains(a.Stderr, c.value) || !strings.Contains(a.Stderr, c.remedy) {
			t.Errorf("ipvsadm %s: %d %q, want the value %q and the remedy %q", c.line, a.Code, a.Stderr, c.value, c.remedy)
		}
	}
	if refused < 80 {
		t.Errorf("%d commands were refused", refused)
	}
	if _, same := carryOut("-D " + v); same {
		t.Error("the comparison does not see that a service is gone")
	}
	for _, op := range []string{"--set 1 0 0", "-e " + v + " -r 10.2.0.2:80 -g -w 9", "-E -f 7 -s sh"} {
		if _, same := carryOut(op); same {
			t.Error(fmt.Sprint("the comparison does not see ", op))
		}
	}
}
