package sim_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pktdirector/sim"
)

// TestExplanationsChangeNothing plays the recordings without explanations.
func TestExplanationsChangeNothing(t *testing.T) {
	for _, s := range recordings(t, "testdata/vectors/*.json") {
		if r := check(t, s, sim.Options{Seed: 7}); r.Decisions != 0 {
			t.Errorf("%s: %d decisions, none were asked for", s.ID, r.Decisions)
		}
	}
}

// TestAWrongRecordIsNoticed changes one thing at a time in a recording, and
// expects the check to name the event and what differs.
func TestAWrongRecordIsNoticed(t *testing.T) {
	tests := []struct {
		name, file, op, want string
		change               func(e *sim.Event) bool // reports whether the event had it
	}{
		{"another real server", "A-wlc-w123", "pkt", "out", func(e *sim.Event) bool {
			if len(e.Out) == 0 || e.Out[0].RS == "" {
				return false
			}
			e.Out[0].RS = "RS9"
			return true
		}},
		{"silence", "A-wlc-w123", "pkt", "out", func(e *sim.Event) bool {
			had := len(e.Out) > 0
			e.Out = []sim.Out{}
			return had
		}},
		{"other flags", "A-wlc-w123", "pkt", "out", func(e *sim.Event) bool {
			if len(e.Out) == 0 || e.Out[0].Flags == nil {
				return false
			}
			flags := "SFA"
			e.Out[0].Flags = &flags
			return true
		}},
		{"one connection more", "A-wlc-w123", "pkt", "table", func(e *sim.Event) bool {
			if len(e.Table) == 0 {
				return false
			}
			e.Table[0].Servers[0].Active++
			return true
		}},
		{"another order of servers", "A-wlc-w123", "pkt", "table", func(e *sim.Event) bool {
			if len(e.Table) == 0 {
				return false
			}
			slices.Reverse(e.Table[0].Servers)
			return true
		}},
		{"a table that did not change", "A-wlc-w123", "pkt", "table", func(e *sim.Event) bool {
			had := len(e.Table) > 0
			e.Table = nil
			return had
		}},
		{"another outcome in a bulk", "A-sh-many", "bulk", "results", func(e *sim.Event) bool {
			e.Results[len(e.Results)-1].Outcome = "silence"
			return true
		}},
		{"another exit code", "A-wlc-w123", "ipvsadm", "exit code", func(e *sim.Event) bool {
			code := 2
			e.RC = &code
			return true
		}},
		{"another word in a list", "B-basic", "ipvsadm", "stdout", func(e *sim.Event) bool {
			had := strings.Contains(e.Stdout, "PersistConn")
			e.Stdout = strings.Replace(e.Stdout, " rr ", " wrr ", 1)
			return had
		}},
		{"another state", "B-basic", "pkt", "conns", func(e *sim.Event) bool {
			if len(e.Conns) == 0 {
				return false
			}
			e.Conns[0].State = "CLOSE"
			return true
		}},
		{"two seconds more", "B-basic", "pkt", "conns", func(e *sim.Event) bool {
			if len(e.Conns) == 0 {
				return false
			}
			e.Conns[0].Expires += 2
			return true
		}},
		{"one connection less", "B-basic", "pkt", "conns", func(e *sim.Event) bool {
			if len(e.Conns) == 0 {
				return false
			}
			e.Conns = e.Conns[1:]
			return true
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s, err := sim.Load("testdata/vectors/" + test.file + ".json")
			if err != nil {
				t.Fatal(err)
			}
			at := slices.IndexFunc(s.Events, func(e *sim.Event) bool { return e.Op == test.op && test.change(e) })
			if at < 0 {
				t.Fatal("no event has what is to be changed")
			}
			r := sim.Check(s, sim.Options{Explain: true})
			if r.First == nil || r.First.Event != at || r.First.What != test.want {
				t.Errorf("the check found %+v (%v), want %s of event %d", r.First, r.Err, test.want, at)
			}
		})
	}
}

func Example() {
	s, err := sim.Load("testdata/vectors/A-wlc-w123.json")
	if err != nil {
		fmt.Println(err)
		return
	}
	r := sim.Check(s, sim.Options{Explain: true})
	fmt.Println(r.OK(), r.Picks[:3])
	// Output: true [10.2.0.3:80 10.2.0.2:80 10.2.0.1:80]
}
