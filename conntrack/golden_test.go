package conntrack_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"pktdirector/conntrack"
)

// tables prints every state table whole, then what each state means to timers
// and counts.
func tables() string {
	var b strings.Builder
	all := conntrack.StateTables()
	for _, name := range []conntrack.TableName{
		"TCP requests, replies seen", "TCP replies", "TCP requests, replies not seen",
		"TCP requests, replies seen, secure_tcp", "TCP replies, secure_tcp", "TCP requests, replies not seen, secure_tcp",
		"SCTP requests, replies seen", "SCTP replies", "SCTP requests, replies not seen",
	} {
		events, first := conntrack.TCPEvents(), conntrack.None
		if strings.HasPrefix(string(name), "SCTP") {
			events, first = conntrack.SCTPEvents(), conntrack.SCTPNone
		}
		fmt.Fprintf(&b, "%s\n", name)
		for ev, row := range all[name] {
			for i, to := range row {
				fmt.Fprintf(&b, "  %-17s in %-11s -> %s\n", events[ev], first+conntrack.State(i), to)
			}
		}
		b.WriteByte('\n')
	}
	b.WriteString("timeouts and counts\n")
	timeouts := conntrack.DefaultTimeouts()
	for s := conntrack.None; s < conntrack.NumStates; s++ {
		counts, proto := "InActConn", "TCP"
		if s.Counts() {
			counts = "ActiveConn"
		}
		switch {
		case s >= conntrack.SCTPNone:
			proto = "SCTP"
		case s == conntrack.UDP:
			proto = "UDP"
		case s == conntrack.Assured:
			continue // of templates, which have the service's timeout and no count
		}
		fmt.Fprintf(&b, "  %-4s %-11s %4v s  %s\n", proto, s, timeouts[s].Seconds(), counts)
	}
	return b.String()
}

var update = flag.Bool("update", false, "write testdata/states.golden anew")

// TestStateTables compares the tables with the file in which people read them.
func TestStateTables(t *testing.T) {
	const file = "testdata/states.golden"
	got := tables()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	g, w := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range max(len(g), len(w)) {
		if i >= len(g) || i >= len(w) || g[i] != w[i] {
			t.Fatalf("line %d differs: see go test ./conntrack -run StateTables -update", i+1)
		}
	}
}
