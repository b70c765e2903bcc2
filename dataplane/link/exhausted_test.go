package link_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"pktdirector/dataplane"
	"pktdirector/lvs"
)

// TestSourcePortsThatRanOutAreToldWithMeasure: a flood of clients that find no
// source port makes a line in the log every 10 s, which says how many they were.
func TestSourcePortsThatRanOutAreToldWithMeasure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDirector(t, lvs.FullNAT, 0, 1)
		s := d.Ruleset()
		s.Services[0].Sources.Ports = lvs.PortRange{From: 5000, To: 5000}
		if err := d.Apply(s); err != nil {
			t.Fatal(err)
		}
		text := floodLog(t, d)
		if n := d.Count(dataplane.PortsExhausted); n != 599 {
			t.Errorf("%d were refused, want 599", n)
		}
		lines := strings.Count(text, "no source ports are left")
		if lines < 2 || lines > 4 || !strings.Contains(text, " refused=") {
			t.Errorf("in 30 s of flood %d lines, want one in 10 s:\n%s", lines, text)
		}
	})
}
