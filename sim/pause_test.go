package sim_test

import (
	"strings"
	"testing"

	"pktdirector/sim"
)

// TestALongPauseIsShort plays six days with a template that ends after five, and
// looks that a template whose connection outlives it is still held in a long pause:
// it goes on by 60 s at a time, until its connection has ended.
func TestALongPauseIsShort(t *testing.T) {
	s := parse(t, `{"id": "x", "events": [
		{"op": "ipvsadm", "args": "-A -t 192.0.2.10:80 -p 432000"},
		{"op": "ipvsadm", "args": "-a -t 192.0.2.10:80 -r 10.2.0.1:80"},
		{"op": "ipvsadm", "args": "-A -t 192.0.2.11:80 -p 100"},
		{"op": "ipvsadm", "args": "-a -t 192.0.2.11:80 -r 10.2.0.1:80"},
		{"op": "pkt", "from": "client", "proto": "tcp", "src": "198.51.100.1:1", "dst": "192.0.2.10:80", "flags": "S"},
		{"op": "pkt", "from": "client", "proto": "tcp", "src": "198.51.100.1:1", "dst": "192.0.2.11:80", "flags": "S"},
		{"op": "pkt", "from": "client", "proto": "tcp", "src": "198.51.100.1:1", "dst": "192.0.2.11:80", "flags": "A"},
		{"op": "sleep", "seconds": 905},
		{"op": "sleep", "seconds": 100},
		{"op": "sleep", "seconds": 430000},
		{"op": "sleep", "seconds": 2000},
		{"op": "sleep", "seconds": 86400}
	]}`)
	p, err := sim.NewPlayer(s, sim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[int]string{7: "192.0.2.10:80 192.0.2.11:80", 8: "192.0.2.10:80", 9: "192.0.2.10:80", 10: "", 11: ""}
	for i, e := range s.Events {
		got, err := p.Play(e)
		if err != nil {
			t.Fatal(err)
		}
		var left []string
		for _, c := range got.Conns {
			left = append(left, c.Virtual)
		}
		if names, listed := want[i]; listed && strings.Join(left, " ") != names {
			t.Errorf("after event %d: %v are left, want %q", i, left, names)
		}
	}
	// A step a second, and shorter ones near what ends.
	if seconds := int(p.Now().Seconds()); p.Steps() > seconds+seconds/10 {
		t.Errorf("%d seconds took %d steps", seconds, p.Steps())
	}
}
