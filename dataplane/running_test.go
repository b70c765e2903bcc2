package dataplane_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"pktdirector/dataplane"
)

// TestWhatWasSetIsTold: settings and timeouts that are not the defaults, and no
// others.
func TestWhatWasSetIsTold(t *testing.T) {
	d := dataplane.New(dataplane.Options{})
	if got := d.Tunables().Changed(); len(got) != 0 {
		t.Errorf("changed at the start: %v", got)
	}
	var want []dataplane.Changed
	for _, s := range dataplane.Settings() {
		value := s.Most
		if value == s.Default {
			value = 0
		}
		if err := d.SetTunable(s.Name, strconv.Itoa(value)); err != nil {
			t.Fatal(err)
		}
		want = append(want, dataplane.Changed{Name: s.Name, Value: value})
	}
	if got := d.Tunables().Changed(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for name, shows := range map[string]int{"secure_tcp": 1, "drop_packet": 1, "drop_entry": 1, "conn_reuse_mode": 2} {
		if err := d.SetTunable(name, "2"); err != nil {
			t.Fatal(err)
		}
		if got := d.Tunables().Changed(); !slices.Contains(got, dataplane.Changed{Name: name, Value: shows}) {
			t.Errorf("%s 2 is not told as %d: %v", name, shows, got)
		}
	}
	d.SetTimeouts(1000*time.Second, 0, 30*time.Second)
	if tcp, fin, udp := d.Timeouts(); tcp != 1000*time.Second || fin != 120*time.Second || udp != 30*time.Second {
		t.Errorf("timeouts %v %v %v", tcp, fin, udp)
	}
}
