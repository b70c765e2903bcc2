package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"pktdirector/control"
	"pktdirector/testbed/nstest"
)

// TestTheExamplesOfTheAPIsPageWork runs each curl command of docs/api.md, in order,
// against a director, and holds the answer against what the page shows.
func TestTheExamplesOfTheAPIsPageWork(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		nstest.Require(t, "curl is missing: apt-get install curl")
	}
	if err := exec.Command("curl", "--json", "{}", "--version").Run(); err != nil {
		nstest.Require(t, "curl knows no --json: version 7.82 or newer is needed")
	}
	text, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, socket := newAPI(t)
	// The commands are indented, and may go on in further lines up to a closing quote.
	var commands []string
	open := false
	for line := range strings.Lines(string(text)) {
		code, indented := strings.CutPrefix(line, "    ")
		switch {
		case open && indented:
			commands[len(commands)-1] += code
		case indented && strings.HasPrefix(code, "curl "):
			commands = append(commands, code)
		default:
			continue
		}
		open = strings.Count(commands[len(commands)-1], "'")%2 == 1
	}
	if len(commands) < 12 {
		t.Fatalf("%d commands were found", len(commands))
	}
	for _, c := range commands {
		cmd := exec.Command("sh", "-c", c)
		cmd.Env = append(os.Environ(), "S="+socket)
		out, err := cmd.Output()
		var p control.Problem
		problem := json.Unmarshal(out, &p) == nil && p.Status != 0
		switch want := strings.TrimSpace(c); {
		case strings.HasSuffix(want, "# ends by --max-time"):
			if code := cmd.ProcessState.ExitCode(); code != 28 || !strings.HasPrefix(string(out), ": events") {
				t.Errorf("%s: exit code %d: %s", c, code, out)
			}
		case strings.HasSuffix(want, "# 422"):
			if !problem || p.Status != 422 || !strings.Contains(string(text), p.Detail) {
				t.Errorf("%s: %s", c, out)
			}
		case err != nil || problem:
			t.Errorf("%s: %v: %s", c, err, out)
		case strings.Contains(want, `"weight": 5`):
			var o control.Outcome
			if err := json.Unmarshal(out, &o); err != nil || len(o.Changes) != 1 || !strings.Contains(string(text), o.Changes[0]) {
				t.Errorf("%s: the page shows another answer than %s", c, out)
			}
		}
	}
	servers := shown.director.Ruleset().Services
	for _, s := range servers {
		if control.ServiceID(s.ServiceKey) != "tcp-192.0.2.10-80" {
			continue
		}
		if s.Scheduler != "wlc" || len(s.Servers) != 3 || s.Servers[0].Weight != 0 {
			t.Errorf("after all of them: %+v", s)
		}
	}
}
