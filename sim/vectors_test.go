package sim_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pktdirector/sim"
)

// recordings returns the recordings of a real kernel, and users' scenarios.
func recordings(t *testing.T, pattern string) []*sim.Scenario {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings in %s (%v)", pattern, err)
	}
	var list []*sim.Scenario
	for _, f := range files {
		s, err := sim.Load(f)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, s)
	}
	return list
}

func check(t *testing.T, s *sim.Scenario, o sim.Options) sim.Report {
	t.Helper()
	r := sim.Check(s, o)
	if !r.OK() {
		var b strings.Builder
		r.Print(&b)
		t.Errorf("%d workers: %d of %d explanations name another winner\n%s", o.Workers, r.Departed, r.Decisions, b.String())
	}
	return r
}

// TestTheKernelsRecordings plays each recording with explanations on, by 1, 2
// and 8 workers: the results are the kernel's, each explained winner is the pick,
// and the picks do not depend on the workers.
func TestTheKernelsRecordings(t *testing.T) {
	for _, s := range recordings(t, "testdata/vectors/*.json") {
		t.Run(s.ID, func(t *testing.T) {
			check(t, s, sim.Options{}) // asking for explanations changes nothing
			one := check(t, s, sim.Options{Workers: 1, Explain: true})
			for _, workers := range []int{2, 8} {
				if r := check(t, s, sim.Options{Workers: workers, Explain: true}); !slices.Equal(r.Picks, one.Picks) {
					t.Errorf("%d workers pick otherwise than one", workers)
				}
			}
		})
	}
}

// TestADifferenceIsFound changes a recorded pick: the check must see it.
func TestADifferenceIsFound(t *testing.T) {
	s := recordings(t, "testdata/vectors/A-rr-equal.json")[0]
	for _, e := range s.Events {
		for i := range e.Out {
			if e.Out[i].RS == "RS1" {
				e.Out[i].RS = "RS2"
				if r := sim.Check(s, sim.Options{}); r.OK() || r.First == nil {
					t.Error("a changed pick was not found")
				}
				return
			}
		}
	}
	t.Fatal("the recording has no packet to RS1")
}

func TestScenariosOfTheDocs(t *testing.T) {
	for _, s := range recordings(t, "../docs/scenarios/*.json") {
		t.Run(s.ID, func(t *testing.T) { check(t, s, sim.Options{Explain: true, Seed: 1}) })
	}
}
