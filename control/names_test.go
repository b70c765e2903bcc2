package control_test

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"pktdirector/control"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// admin answers for a director that has the services it is told of.
type admin struct {
	services []lvs.ServiceStatus
	added    []lvs.VirtualService
}

func (a *admin) AddService(s lvs.VirtualService) error                   { a.added = append(a.added, s); return nil }
func (a *admin) EditService(lvs.VirtualService) error                    { return nil }
func (a *admin) DeleteService(lvs.ServiceKey) error                      { return nil }
func (a *admin) AddServer(lvs.ServiceKey, lvs.RealServer) error          { return nil }
func (a *admin) EditServer(lvs.ServiceKey, lvs.RealServer) error         { return nil }
func (a *admin) DeleteServer(lvs.ServiceKey, lvs.ServerKey) error        { return nil }
func (a *admin) Flush()                                                  {}
func (a *admin) ZeroCounters(lvs.ServiceKey) error                       { return nil }
func (a *admin) ZeroAll()                                                {}
func (a *admin) Totals() (counted, rates lvs.Stats)                      { return lvs.Stats{Conns: 15}, lvs.Stats{} }
func (a *admin) SetTimeouts(time.Duration, time.Duration, time.Duration) {}
func (a *admin) Status() []lvs.ServiceStatus                             { return a.services }

// wellKnown knows no hosts, and ports as Debian's /etc/services has them.
func wellKnown() *control.Names {
	return control.StaticNames(nil, map[string]uint16{"http": 80, "http-alt": 8080, "domain": 53, "syslog": 514}, map[string]uint16{"domain": 53, "syslog": 514, "http-alt": 8080})
}

func named(services ...lvs.ServiceStatus) (*admin, *control.Commander) {
	a := &admin{services: services}
	return a, &control.Commander{Director: a, Connections: func(func(control.Connection) bool) {},
		Names: control.StaticNames(map[string]netip.Addr{
			"www.example.test": netip.MustParseAddr("192.0.2.10"), "www6.example.test": netip.MustParseAddr("2001:db8:f::10"),
		}, map[string]uint16{"http": 80, "domain": 53}, map[string]uint16{"domain": 53}),
		Interfaces: func() []string { return []string{"eth0"} }}
}

func TestCommandsTakeNames(t *testing.T) {
	a, c := named()
	for _, line := range []string{"-A -t www.example.test:http", "-A -u [www6.example.test]:domain", "-A -t www.example.test:8080"} {
		if answer := c.Do(strings.Fields(line), ""); answer.Code != 0 {
			t.Fatalf("%s: %+v", line, answer)
		}
	}
	want := []lvs.ServiceKey{
		{Proto: packet.TCP, VIP: packet.MustParseAddr("192.0.2.10"), Port: 80},
		{Proto: packet.UDP, VIP: packet.MustParseAddr("2001:db8:f::10"), Port: 53},
		{Proto: packet.TCP, VIP: packet.MustParseAddr("192.0.2.10"), Port: 8080},
	}
	for i, key := range want {
		if a.added[i].ServiceKey != key {
			t.Errorf("got %s, want %s", a.added[i].ServiceKey, key)
		}
	}
	for _, line := range []string{"-A -t nobody.example.test:80", "-A -t www.example.test:nothing", "-A --sctp-service www.example.test:http"} {
		if answer := c.Do(strings.Fields(line), ""); answer.Code != 2 || answer.Stderr != "illegal virtual server address[:port] specified\n" {
			t.Errorf("%s: %+v", line, answer)
		}
	}
}

func TestListingsHaveNamesUnlessNumeric(t *testing.T) {
	_, c := named(lvs.ServiceStatus{
		Service: lvs.ServiceKey{Proto: packet.TCP, VIP: packet.MustParseAddr("2001:db8:f::10"), Port: 80}, Scheduler: "rr", Persist: time.Minute, MaskBits: 64, Engine: "sip",
		Destinations: []lvs.DestinationStatus{{Server: lvs.ServerKey{RIP: packet.MustParseAddr("2001:db8:2::1"), Port: 80}, Method: lvs.Masq, Weight: 1}},
	})
	for args, want := range map[string]string{
		"-L":  "TCP  [www6.example.test]:http rr persistent 60 mask 64 pe sip\n  -> [2001:db8:2::1]:http         Masq    1      0          0         \n",
		"-Ln": "TCP  [2001:db8:f::10]:80 rr persistent 60 mask 64 pe sip\n  -> [2001:db8:2::1]:80           Masq    1      0          0         \n",
		"-S":  "-A -t [www6.example.test]:http -s rr -p 60 -M 64 --pe sip\n-a -t [www6.example.test]:http -r [2001:db8:2::1]:http -m -w 1\n",
	} {
		if got := c.Do([]string{args}, "").Stdout; !strings.HasSuffix(got, want) {
			t.Errorf("%s:\n%swant\n%s", args, got, want)
		}
	}
}

func TestThereIsNoSyncDaemon(t *testing.T) {
	_, c := named()
	for line, want := range map[string]control.Answer{
		"--start-daemon master --mcast-interface nosuch0":         {Code: 255, Stderr: "No such device\n"},
		"--start-daemon master --mcast-interface eth0 --syncid 1": {Code: 255, Stderr: "--start-daemon master: there is no sync daemon in this director: leave it out\n"},
		"--start-daemon master --syncid 256":                      {Code: 2, Stderr: "illegal syncid specified\n"},
		"--stop-daemon backup":                                    {Code: 255, Stderr: "No daemon is running\n"},
		"--start-daemon":                                          {Code: 255, Stderr: "Try `ipvsadm -h' or 'ipvsadm --help' for more information.\n"},
		"-L --daemon":                                             {},
		"-L -t 192.0.2.99:80":                                     {Code: 1, Stderr: "No such service\n"},
		"-A -t 192.0.2.10:80 -p --pe nosuch":                      {Code: 255, Stderr: "Scheduler or persistence engine not found\n"},
		"-Lc -t 192.0.2.10:80":                                    {Code: 2, Stderr: "The option 'service-address' conflicts with the 'connection' option in the 'list' command\n"},
	} {
		if got := c.Do(strings.Fields(line), ""); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", line, got, want)
		}
	}
}

// TestServersAreSortedByTheirDifference has addresses that are in a circle: each
// stands before the next by their difference in 32 bits. Which is first depends on
// the C library's way to sort.
func TestServersAreSortedByTheirDifference(t *testing.T) {
	at := func(ip string) lvs.DestinationStatus {
		return lvs.DestinationStatus{Server: lvs.ServerKey{RIP: packet.MustParseAddr(ip), Port: 80}, Weight: 1}
	}
	for name, test := range map[string]struct{ added, want []string }{
		"near each other":     {[]string{"10.2.0.11", "10.2.0.2", "10.2.0.1"}, []string{"10.2.0.1", "10.2.0.2", "10.2.0.11"}},
		"far from each other": {[]string{"10.2.0.1", "192.0.2.10"}, []string{"192.0.2.10", "10.2.0.1"}},
		"in a circle":         {[]string{"10.0.0.1", "100.0.0.1", "200.0.0.1"}, []string{"10.0.0.1", "100.0.0.1", "200.0.0.1"}},
		"the circle turned":   {[]string{"200.0.0.1", "10.0.0.1", "100.0.0.1"}, []string{"200.0.0.1", "10.0.0.1", "100.0.0.1"}},
	} {
		s := lvs.ServiceStatus{Service: lvs.ServiceKey{Proto: packet.TCP, VIP: packet.MustParseAddr("192.0.2.10"), Port: 80}, Scheduler: "rr"}
		for _, ip := range test.added {
			s.Destinations = append(s.Destinations, at(ip))
		}
		_, c := named(s)
		var got []string
		for _, line := range strings.Split(c.Do([]string{"-Ln"}, "").Stdout, "\n")[4:] {
			if line != "" {
				got = append(got, strings.TrimSuffix(strings.Fields(line)[1], ":80"))
			}
		}
		if strings.Join(got, " ") != strings.Join(test.want, " ") {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

func TestKernelFilesThatAreNotThere(t *testing.T) {
	_, c := named()
	if _, err := c.Proc("/proc/net/ip_vs_nothing"); err == nil || !strings.Contains(err.Error(), "/proc/net/ip_vs_conn_sync") {
		t.Errorf("got %v", err)
	}
	if text, err := c.Proc("/proc/net/ip_vs_stats"); err != nil || !strings.Contains(text, "\n       F        0        0                0                0\n") {
		t.Errorf("got %v\n%s", err, text)
	}
}

// TestWhatIsSavedCanBeRead reads what -S says of servers of each method.
func TestWhatIsSavedCanBeRead(t *testing.T) {
	for _, m := range []lvs.Method{lvs.Masq, lvs.Route, lvs.Tunnel, lvs.FullNAT} {
		_, c := named(lvs.ServiceStatus{Service: lvs.ServiceKey{Proto: packet.TCP, VIP: packet.MustParseAddr("192.0.2.10"), Port: 80}, Scheduler: "rr",
			Destinations: []lvs.DestinationStatus{{Server: lvs.ServerKey{RIP: packet.MustParseAddr("10.2.0.1"), Port: 80}, Method: m, Weight: 2}}})
		saved := c.Do([]string{"-Sn"}, "").Stdout
		lines := strings.Split(strings.TrimSpace(saved), "\n")
		cmd, err := control.ParseCommand(strings.Fields(lines[len(lines)-1]), wellKnown())
		if err != nil || cmd.Server.Method != m || cmd.Server.Weight != 2 {
			t.Errorf("%s: %+v, %v, read from\n%s", m, cmd.Server, err, saved)
		}
	}
}
