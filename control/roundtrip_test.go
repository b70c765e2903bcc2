package control_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pktdirector/control"
	"pktdirector/lvs"
)

// ruled is a director whose rules are read and set as a whole.
type ruled interface {
	Apply(lvs.Ruleset) error
	Ruleset() lvs.Ruleset
}

// recordedRules are the rules that ipvsadm 1.31 saved of a kernel, by their recording.
func recordedRules(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../sim/testdata/vectors/E-*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	saved := map[string]string{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var recording struct {
			Events []struct{ Op, Args, Stdout string }
		}
		if err := json.Unmarshal(b, &recording); err != nil {
			t.Fatal(err)
		}
		for _, e := range recording.Events {
			if numeric := e.Args == "-S -n" || e.Args == "-Sn"; e.Op == "ipvsadm" && numeric && e.Stdout != "" {
				saved[filepath.Base(f)+" "+e.Args+" "+e.Stdout] = e.Stdout
			}
		}
	}
	return saved
}

// TestSavedRulesOfIpvsadmComeBackByteForByte: loaded, saved, loaded and saved, through
// the configuration file in between where a file can say them.
func TestSavedRulesOfIpvsadmComeBackByteForByte(t *testing.T) {
	all := recordedRules(t)
	if len(all) < 3 {
		t.Errorf("%d recorded saves", len(all))
	}
	most := 0
	for name, saved := range all {
		name = strings.Join(strings.Fields(name)[:2], " ")
		most = max(most, strings.Count(saved, "\n"))
		if strings.Contains(saved, "-f -1") {
			continue // ipvsadm writes the mark 4294967295 so, and cannot read it either
		}
		text := saved
		for range 3 {
			c := commander()
			if a := c.Do([]string{"-R"}, text); a.Code != 0 || a.Stderr != "" || a.Stdout != "" {
				t.Fatalf("%s: -R: %+v", name, a)
			}
			if text = c.Do([]string{"-S", "-n"}, "").Stdout; text != saved {
				t.Fatalf("%s: ipvsadm saved\n%sand, loaded, that is saved as\n%s", name, saved, text)
			}
		}
		onward(t, name, saved)
	}
	if most < 20 {
		t.Errorf("the largest save has %d lines", most)
	}
}

// onward exports the rules and starts another director with that file: what the file
// can say is saved as it was.
func onward(t *testing.T, name, saved string) {
	t.Helper()
	c := commander()
	c.Do([]string{"-R"}, saved)
	config := control.Config{Control: control.DefaultSocket, Links: []control.Link{{Name: "eth0", Type: control.AFPacket}}}
	d := c.Director.(ruled)
	config.Ruleset = d.Ruleset()
	e := config.Export()
	read, err := control.Parse("export", []byte(e.Config))
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, e.Config)
	}
	other := commander()
	if err := other.Director.(ruled).Apply(read.Ruleset); err != nil {
		t.Fatal(err)
	}
	got := other.Do([]string{"-Sn"}, "").Stdout
	for line := range strings.Lines(saved) {
		// What a file cannot say: a server that is the director's own host or the VIP, and
		// a VIP that is no machine's.
		if strings.Contains(line, "-r 127.0.0.1") || strings.Contains(line, "-r 192.0.2.10:") || strings.Contains(line, "224.0.0.5") {
			saved = strings.Replace(saved, line, "", 1)
		}
	}
	if got != saved {
		t.Errorf("%s: ipvsadm saved\n%sand, exported and started anew, that is saved as\n%s", name, saved, got)
	}
}
