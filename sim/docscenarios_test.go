package sim_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"pktdirector/sched"
	"pktdirector/sim"
)

// docOptions are those of "pktdirector scenario run" by default.
func docOptions() sim.Options { return sim.Options{Seed: 1, Explain: true} }

func docScenarios(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../docs/scenarios/*.json")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("docs/scenarios has no scenarios")
	}
	return files
}

func schedulersPage(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../docs/schedulers.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func docScenario(t *testing.T, file string) *sim.Scenario {
	t.Helper()
	s, err := sim.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestDocumentedScenariosAreAsRecorded(t *testing.T) {
	for _, file := range docScenarios(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			s := docScenario(t, file)
			if want := s.ID + ".json"; filepath.Base(file) != want {
				t.Errorf("the file of %q is to be named %s", s.ID, want)
			}
			for i, e := range s.Events {
				if e.Op == "pkt" && e.Out == nil || e.Op == "ipvsadm" && e.RC == nil {
					t.Fatalf("event %d (%s) has no result: record it", i, e)
				}
			}
			for _, workers := range []int{1, 2, 8} {
				o := docOptions()
				o.Workers = workers
				if r := sim.Check(s, o); !r.OK() {
					var b strings.Builder
					if err := r.Print(&b); err != nil {
						t.Fatal(err)
					}
					t.Errorf("%d workers: %s", workers, b.String())
				}
			}
			// A check is lenient about counters, which a kernel refreshes
			// late; these files are the director's own and exact.
			again, err := sim.Record(s, docOptions(), false)
			if err != nil {
				t.Fatal(err)
			}
			for i, e := range again.Events {
				if was := s.Events[i].Stdout; was != e.Stdout {
					t.Errorf("event %d (%s) prints\n%s\nrecorded:\n%s", i, e, e.Stdout, was)
				}
			}
		})
	}
}

func TestSchedulersPageShowsEveryScenarioAndNoOther(t *testing.T) {
	text := schedulersPage(t)
	shown := map[string]bool{}
	for _, m := range regexp.MustCompile(`▸ ([a-z0-9-]+)`).FindAllStringSubmatch(text, -1) {
		shown[m[1]] = true
	}
	for _, file := range docScenarios(t) {
		id := strings.TrimSuffix(filepath.Base(file), ".json")
		if !shown[id] {
			t.Errorf("docs/schedulers.md does not refer to %s", id)
		}
		if command := "pktdirector scenario run docs/scenarios/" + id + ".json\n"; !strings.Contains(text, command) {
			t.Errorf("docs/schedulers.md lacks the command %q", command)
		}
		delete(shown, id)
	}
	for id := range shown {
		t.Errorf("docs/schedulers.md refers to %s, which is not in docs/scenarios", id)
	}
}

func TestSchedulersPageNamesEveryScheduler(t *testing.T) {
	sections := map[string]string{}
	for _, part := range strings.Split(schedulersPage(t), "\n## ")[1:] {
		name, body, _ := strings.Cut(part, "\n")
		sections[name] = body
	}
	for _, name := range sched.Names() {
		for _, want := range []string{"**Decides by**", "**Choose it**", "**Surprises:**"} {
			if !strings.Contains(sections[name], want) {
				t.Errorf("docs/schedulers.md: section %q lacks %s", name, want)
			}
		}
	}
}

// packetsByServer counts a scenario's packets from clients by the real server
// that got them.
func packetsByServer(s *sim.Scenario, flags string) map[string]int {
	count := map[string]int{}
	for _, e := range s.Events {
		if e.Flags == nil || *e.Flags != flags {
			continue
		}
		for _, o := range e.Out {
			if o.RS != "" {
				count[o.RS]++
			}
		}
		for _, b := range e.Results {
			count[b.Outcome]++
		}
	}
	return count
}

func TestPoolOfLongConnectionsIsEvenInConnectionsNotInPackets(t *testing.T) {
	s := docScenario(t, "../docs/scenarios/pool-long-connections.json")
	opened, requests := packetsByServer(s, "S"), packetsByServer(s, "PA")
	for _, rs := range []string{"RS1", "RS2", "RS3"} {
		if opened[rs] != 2 {
			t.Errorf("%s has %d connections, want 2", rs, opened[rs])
		}
	}
	if requests["RS3"] < 5*requests["RS2"] || requests["RS2"] < 2*requests["RS1"] {
		t.Errorf("requests by server %v are not uneven", requests)
	}
}

func TestFastestFailureAttractsEverything(t *testing.T) {
	s := docScenario(t, "../docs/scenarios/wlc-fast-failure.json")
	s.Events = s.Events[:len(s.Events)-2] // before the failing server is set to 0
	if got := packetsByServer(s, "S"); got["RS1"] < 20 || got["RS2"] != 1 || got["RS3"] != 1 {
		t.Errorf("connections by server: %v, want nearly all on RS1, which resets them", got)
	}
}
