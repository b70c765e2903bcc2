package sim_test

import (
	"strings"
	"testing"

	"pktdirector/sim"
)

// played plays a scenario and returns what its last event printed.
func played(t *testing.T, events string) string {
	t.Helper()
	s, err := sim.Record(parse(t, `{"id":"x","events":[`+events+`]}`), sim.Options{}, false)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range s.Events {
		if e.RC != nil && *e.RC != 0 {
			t.Errorf("event %d (%s): exit code %d: %s", i, e, *e.RC, e.Stderr)
		}
	}
	return s.Events[len(s.Events)-1].Stdout
}

func wantLines(t *testing.T, printed string, want ...string) {
	t.Helper()
	rest := printed
	for _, w := range want {
		_, after, found := strings.Cut(rest, w+"\n")
		if !found {
			t.Fatalf("%q is not there, or not in this order:\n%s", w, printed)
		}
		rest = after
	}
}

const (
	natService = `{"op":"ipvsadm","args":"-A -t 192.0.2.10:80 -s rr"},
		{"op":"ipvsadm","args":"-a -t 192.0.2.10:80 -r 10.2.0.1:8080 -m"},
		{"op":"ipvsadm","args":"-a -t 192.0.2.10:80 -r 10.2.0.2:8080 -m"},`
	otherService = `{"op":"ipvsadm","args":"-A -u 192.0.2.10:53 -s rr"},
		{"op":"ipvsadm","args":"-a -u 192.0.2.10:53 -r 10.2.0.1 -g"},`
	tcpSYN = `{"op":"pkt","from":"client","proto":"tcp","flags":"S","src":"198.51.100.1:1000","dst":"192.0.2.10:80"},`
	dns    = `{"op":"pkt","from":"client","proto":"udp","src":"198.51.100.1:1000","dst":"192.0.2.10:53"},`
)

func TestCountersAreZeroed(t *testing.T) {
	play := natService + otherService + tcpSYN + dns
	wantLines(t, played(t, play+`{"op":"ipvsadm","args":"-Z -t 192.0.2.10:80"},{"op":"ipvsadm","args":"-Ln --stats"}`),
		"TCP  192.0.2.10:80                       0        0        0        0        0",
		"  -> 10.2.0.2:8080                       0        0        0        0        0",
		"UDP  192.0.2.10:53                       1        1        0       29        0",
		"  -> 10.2.0.1:53                         1        1        0       29        0")
	wantLines(t, played(t, play+`{"op":"ipvsadm","args":"-Z"},`+tcpSYN+`{"op":"ipvsadm","args":"-Ln --stats"}`),
		"TCP  192.0.2.10:80                       0        1        0       40        0",
		"UDP  192.0.2.10:53                       0        0        0        0        0")
}

func TestRatesAreListed(t *testing.T) {
	play := natService + strings.Repeat(tcpSYN, 20)
	wantLines(t, played(t, play+`{"op":"sleep","seconds":2},{"op":"ipvsadm","args":"-Ln --rate"}`),
		"Prot LocalAddress:Port                 CPS    InPPS   OutPPS    InBPS   OutBPS",
		"TCP  192.0.2.10:80                       0        2        0      100        0",
		"  -> 10.2.0.1:8080                       0        0        0        0        0",
		"  -> 10.2.0.2:8080                       0        2        0      100        0")
	wantLines(t, played(t, play+`{"op":"sleep","seconds":60},{"op":"ipvsadm","args":"-Ln --rate"}`),
		"  -> 10.2.0.2:8080                       0        0        0        0        0")
}

func TestUnsortedListsHaveTheNewestServerFirst(t *testing.T) {
	list := natService + `{"op":"ipvsadm","args":"-a -t 192.0.2.10:80 -r 10.2.0.1:80 -g"},{"op":"ipvsadm","args":"-Ln`
	sorted := []string{"  -> 10.2.0.1:80                  Route   1      0          0         ", "  -> 10.2.0.1:8080                Masq    1      0          0         ", "  -> 10.2.0.2:8080                Masq    1      0          0         "}
	wantLines(t, played(t, list+`"}`), sorted...)
	wantLines(t, played(t, list+` --sort"}`), sorted...)
	wantLines(t, played(t, list+` --nosort"}`), sorted[0], sorted[2], sorted[1])
	wantLines(t, played(t, list+` --nosort -t 192.0.2.10:80"}`), sorted[0], sorted[2], sorted[1])
}

// Under 255.0.255.0 the second and fourth number of a client's address do not
// matter, under 0.0.0.0 none.
func TestNetmasksWithHoles(t *testing.T) {
	from := func(addr string) string {
		return strings.Replace(tcpSYN, "198.51.100.1", addr, 1)
	}
	for _, test := range []struct{ mask, last, template string }{
		{"255.0.255.0", "198.7.100.9", "198.0.100.0:0"},
		{"0.0.0.0", "9.9.9.9", "0.0.0.0:0"},
	} {
		service := strings.Replace(natService, "-s rr", "-s rr -p 100 -M "+test.mask, 1)
		wantLines(t, played(t, service+`{"op":"ipvsadm","args":"-Sn"}`), "-A -t 192.0.2.10:80 -s rr -p 100 -M "+test.mask)
		wantLines(t, played(t, service+`{"op":"ipvsadm","args":"-Ln"}`), "TCP  192.0.2.10:80 rr persistent 100 mask "+test.mask)
		list := played(t, service+from("198.51.100.1")+from(test.last)+`{"op":"ipvsadm","args":"-Ln --stats"}`)
		wantLines(t, list, "  -> 10.2.0.2:8080                       2        2        0       80        0")
		list = played(t, service+from("198.51.100.1")+from(test.last)+`{"op":"ipvsadm","args":"-Lcn"}`)
		if n := strings.Count(list, " NONE "); n != 1 || !strings.Contains(list, " "+test.template+" ") {
			t.Errorf("%s: %d templates, want one of %s:\n%s", test.mask, n, test.template, list)
		}
	}
}

// A masquerading server of port 0 gets each packet's own port.
func TestAMasqueradingServerOfPortZero(t *testing.T) {
	service := `{"op":"ipvsadm","args":"-A -t 192.0.2.10:80 -s rr"},{"op":"ipvsadm","args":"-a -t 192.0.2.10:80 -r 10.2.0.1:0 -m"},`
	wantLines(t, played(t, service+`{"op":"ipvsadm","args":"-Sn"}`), "-a -t 192.0.2.10:80 -r 10.2.0.1:0 -m -w 1")
	s := parse(t, `{"id":"x","events":[`+service+`
		{"op":"pkt","from":"client","proto":"tcp","flags":"S","src":"198.51.100.1:1000","dst":"192.0.2.10:80",
		 "out":[{"to":"rs","rs":"RS1","proto":"tcp","src":"198.51.100.1:1000","dst":"10.2.0.1:80","flags":"S"}]},
		{"op":"pkt","from":"rs","proto":"tcp","flags":"SA","src":"10.2.0.1:80","dst":"198.51.100.1:1000",
		 "out":[{"to":"client","proto":"tcp","src":"192.0.2.10:80","dst":"198.51.100.1:1000","flags":"SA"}]}]}`)
	check(t, s, sim.Options{Explain: true})
}

// TestTotals reads the kernel's file of totals: they outlast removed services and
// -Z of one service, and only -Z of all makes them count anew.
func TestTotals(t *testing.T) {
	const counts = `{"op":"proc","file":"/proc/net/ip_vs_stats"}`
	play := natService + otherService + tcpSYN + dns
	for name, test := range map[string]struct{ events, want string }{
		"of two services":              {play + counts, "       2        2        0               45                0"},
		"one service was zeroed":       {play + `{"op":"ipvsadm","args":"-Z -t 192.0.2.10:80"},` + tcpSYN + counts, "       2        3        0               6D                0"},
		"one service was removed":      {play + `{"op":"ipvsadm","args":"-D -t 192.0.2.10:80"},` + dns + counts, "       2        3        0               62                0"},
		"all was zeroed":               {play + `{"op":"ipvsadm","args":"-Z"},` + dns + counts, "       0        1        0               1D                0"},
		"removed and zeroed":           {play + `{"op":"ipvsadm","args":"-D -t 192.0.2.10:80"},{"op":"ipvsadm","args":"-Z"},` + counts, "       0        0        0                0                0"},
		"nothing there, nothing there": {counts, "       0        0        0                0                0"},
	} {
		s, err := sim.Record(parse(t, `{"id":"x","events":[`+test.events+`]}`), sim.Options{}, false)
		if err != nil {
			t.Fatal(err)
		}
		text := s.Events[len(s.Events)-1].Text
		if got := strings.Split(text, "\n")[2]; got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
		if r := sim.Check(s, sim.Options{}); !r.OK() {
			t.Errorf("%s: what was recorded differs from what is played again", name)
		}
	}
}

// TestCommandsWithoutATimeTakeTheirShare reads a connection's seconds between two
// events whose times are 10 s apart.
func TestCommandsWithoutATimeTakeTheirShare(t *testing.T) {
	const list = `{"op":"ipvsadm","args":"-Lcn"},`
	s, err := sim.Record(parse(t, `{"id":"x","events":[`+natService+
		`{"op":"pkt","t":1,"from":"client","proto":"tcp","flags":"S","src":"198.51.100.1:1000","dst":"192.0.2.10:80"},`+
		list+list+list+list+`{"op":"note","t":11,"text":""}]}`), sim.Options{}, false)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{" 00:58 ", " 00:56 ", " 00:54 ", " 00:52 "} {
		if got := s.Events[4+i].Stdout; !strings.Contains(got, want) {
			t.Errorf("list %d: want%sin\n%s", i, want, got)
		}
	}
}
