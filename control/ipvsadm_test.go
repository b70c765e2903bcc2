package control_test

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pktdirector/control"
	"pktdirector/lvs"
)

// The files under testdata are what ipvsadm 1.31 printed. Each is read into a
// status, the status is shuffled, and printing it must give the file again.

func TestWriteListPrintsWhatIpvsadmPrints(t *testing.T) {
	want := read(t, "testdata/list-order.txt")
	s := &control.Status{TableSize: control.DefaultTableSize}
	for _, line := range strings.Split(want, "\n")[3:] {
		f := strings.Fields(line)
		switch {
		case len(f) == 0:
		case f[0] == "->":
			addr, port := split(t, f[1])
			last := &s.Services[len(s.Services)-1]
			last.Destinations = append(last.Destinations, control.Destination{
				Address: addr, Port: port, Method: f[2], Weight: number(t, f[3]), Active: number(t, f[4]), InAct: number(t, f[5])})
		default:
			addr, port := split(t, f[1])
			s.Services = append(s.Services, control.Service{Protocol: f[0], VIP: addr, Port: port, Scheduler: f[2]})
		}
	}
	shuffled(s, func() {
		var b strings.Builder
		if err := control.WriteList(&b, s); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, b.String()); diff != "" {
			t.Errorf("(-ipvsadm +ours):\n%s", diff)
		}
	})
}

func TestWriteStatsPrintsWhatIpvsadmPrints(t *testing.T) {
	for _, file := range []string{"testdata/stats.txt", "testdata/stats-order.txt"} {
		want := read(t, file)
		s := &control.Status{TableSize: control.DefaultTableSize}
		for _, line := range strings.Split(want, "\n")[3:] {
			f := strings.Fields(line)
			if len(f) == 0 {
				continue
			}
			addr, port := split(t, f[1])
			n := func(i int) uint64 { return uint64(number(t, f[i])) }
			stats := lvs.Stats{Conns: n(2), InPkts: n(3), OutPkts: n(4), InBytes: n(5), OutBytes: n(6)}
			if f[0] == "->" {
				last := &s.Services[len(s.Services)-1]
				last.Destinations = append(last.Destinations, control.Destination{Address: addr, Port: port, Stats: stats})
			} else {
				s.Services = append(s.Services, control.Service{Protocol: f[0], VIP: addr, Port: port, Stats: stats})
			}
		}
		shuffled(s, func() {
			var b strings.Builder
			if err := control.WriteStats(&b, s); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, b.String()); diff != "" {
				t.Errorf("%s (-ipvsadm +ours):\n%s", file, diff)
			}
		})
	}
}

func TestLargeCountersGetSuffixes(t *testing.T) {
	for n, want := range map[uint64]string{
		99_999_999: " 99999999", 107_100_000: "  107100K", 12_345_678_901: "12345678K", 123_456_789_012: "  123456M",
	} {
		var b strings.Builder
		s := &control.Status{Services: []control.Service{{Protocol: "TCP", VIP: "192.0.2.10", Port: 80, Stats: lvs.Stats{OutBytes: n}}}}
		if err := control.WriteStats(&b, s); err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(b.String(), want+"\n") {
			t.Errorf("%d: %q does not end in %q", n, b.String(), want)
		}
	}
}

// without is a sequence of connections in which no error comes.
func without(conns []control.Connection) iter.Seq2[control.Connection, error] {
	return func(yield func(control.Connection, error) bool) {
		for _, c := range conns {
			if !yield(c, nil) {
				return
			}
		}
	}
}

func TestWriteConnectionsPrintsWhatIpvsadmPrints(t *testing.T) {
	want := read(t, "testdata/conns.txt")
	var conns []control.Connection
	for _, line := range strings.Split(want, "\n")[2:] {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		var minutes, seconds int64
		if _, err := fmt.Sscanf(f[1], "%d:%d", &minutes, &seconds); err != nil {
			t.Fatal(err)
		}
		c := control.Connection{Protocol: f[0], State: f[2], Expires: minutes*60 + seconds}
		c.Client, c.ClientPort = split(t, f[3])
		c.VIP, c.Port = split(t, f[4])
		c.Destination, c.DestinationPort = split(t, f[5])
		conns = append(conns, c)
	}
	var b strings.Builder
	if err := control.WriteConnections(&b, without(conns)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-ipvsadm +ours):\n%s", diff)
	}
}

// shuffled calls check over several orders of s's services and destinations.
func shuffled(s *control.Status, check func()) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 10 {
		r.Shuffle(len(s.Services), func(i, j int) { s.Services[i], s.Services[j] = s.Services[j], s.Services[i] })
		for _, svc := range s.Services {
			d := svc.Destinations
			r.Shuffle(len(d), func(i, j int) { d[i], d[j] = d[j], d[i] })
		}
		check()
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func split(t *testing.T, s string) (string, uint16) {
	t.Helper()
	ap, err := netip.ParseAddrPort(s)
	if err != nil {
		t.Fatal(err)
	}
	return ap.Addr().String(), ap.Port()
}

func number(t *testing.T, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
