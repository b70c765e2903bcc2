package sim_test

import (
	"os"
	"strings"
	"testing"

	"pktdirector/sim"
)

// TestThePageOfTheFormat plays the example of docs/scenarios.md, and looks for
// every field of a file there.
func TestThePageOfTheFormat(t *testing.T) {
	b, err := os.ReadFile("../docs/scenarios.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	_, example, found := strings.Cut(page, "```json\n")
	example, _, closed := strings.Cut(example, "```")
	if !found || !closed {
		t.Fatal("the page has no example")
	}
	s := parse(t, example)
	check(t, s, sim.Options{Explain: true})
	for _, word := range []string{
		"id", "title", "sysctl", "mtu_rs", "marks", "local", "events", "op", "args", "stdin", "seconds", "name", "value", "text", "desc",
		"from", "proto", "src", "dst", "flags", "chunk", "in", "rc", "stdout", "stderr", "out", "results", "table", "conns", "t",
		"to", "rs", "tunnel", "outer", "icmp", "icmp6", "frame", "client", "virtual", "dest", "state", "expires", "mark", "dport",
	} {
		if !strings.Contains(page, "`"+word+"`") {
			t.Errorf("docs/scenarios.md does not describe %q", word)
		}
	}
}
