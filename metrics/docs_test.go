package metrics_test

import (
	"os"
	"strings"
	"testing"
)

// TestEveryMetricIsDocumented keeps docs/metrics.md complete.
func TestEveryMetricIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range gather(t, known()) {
		name := f.GetName()
		for _, of := range []string{"service", "server"} { // the five counters are explained once
			if rest, ok := strings.CutPrefix(name, "pktdirector_"+of+"_"); ok && (strings.HasPrefix(rest, "incoming") || strings.HasPrefix(rest, "outgoing") || rest == "connections_total") {
				name = "pktdirector_" + rest
			}
		}
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/metrics.md lacks %s", f.GetName())
		}
	}
}
