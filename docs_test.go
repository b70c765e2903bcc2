package pktdirector_test

import (
	"os"
	"strings"
	"testing"

	"pktdirector/dataplane"
	"pktdirector/sched"
)

func page(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestEveryVerdictIsDocumented(t *testing.T) {
	text := page(t, "docs/verdicts.md")
	for _, v := range dataplane.New(dataplane.Options{}).Verdicts() {
		if !strings.Contains(text, "| `"+v.Name+"` | "+v.Help+" |") {
			t.Errorf("docs/verdicts.md lacks %s: %s", v.Name, v.Help)
		}
	}
}

func TestEverySchedulerIsDocumented(t *testing.T) {
	if want := "| schedulers | " + strings.Join(sorted(sched.Names()), ", ") + " |"; !strings.Contains(page(t, "docs/limits.md"), want) {
		t.Errorf("docs/limits.md lacks the row %q", want)
	}
}

// sorted puts the schedulers in the order in which people learn them.
func sorted(names []string) []string {
	var out []string
	for _, n := range []string{"rr", "wrr", "lc", "wlc", "sed", "nq", "fo", "ovf", "dh", "sh", "mh", "lblc", "lblcr", "twos", "none"} {
		for _, have := range names {
			if have == n {
				out = append(out, n)
			}
		}
	}
	if len(out) != len(names) {
		return names
	}
	return out
}

func TestREADMEShowsBothCommands(t *testing.T) {
	for _, command := range []string{"go run ./cmd/pktdirector lab demo", "go test ./..."} {
		if !strings.Contains(page(t, "README.md"), command) {
			t.Errorf("README.md lacks %q", command)
		}
	}
}
