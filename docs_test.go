package pktdirector_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
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
	text := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(page(t, "docs/verdicts.md"), "docs/$1")
	for i, v := range dataplane.New(dataplane.Options{}).Verdicts() {
		verdict := dataplane.Verdict(i + 1)
		if row := "| `" + v.Name + "` | " + v.Help + " | " + verdict.Advice() + " |\n"; verdict.String() != v.Name || verdict.Help() != v.Help || !strings.Contains(text, row) {
			t.Errorf("docs/verdicts.md lacks the row %s", row)
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

// TestEverySettingIsInTheReferenceConfiguration keeps docs/director.yaml
// complete: each of the engine's settings, with its default, and no other.
func TestEverySettingIsInTheReferenceConfiguration(t *testing.T) {
	shown := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^  net\.ipv4\.vs\.([a-z_]+): (\S+)`).FindAllStringSubmatch(page(t, "docs/director.yaml"), -1) {
		shown[m[1]] = m[2]
	}
	for _, s := range dataplane.Settings() {
		if shown[s.Name] != strconv.Itoa(s.Default) {
			t.Errorf("docs/director.yaml shows %s as %q, want its default %d", s.Name, shown[s.Name], s.Default)
		}
		for value, taken := range map[int]bool{-1: false, 0: true, s.Default: true, s.Most: true, s.Most + 1: false} {
			if err := dataplane.CheckTunable(s.Name, strconv.Itoa(value)); (err == nil) != taken {
				t.Errorf("%s = %d: %v", s.Name, value, err)
			}
		}
		delete(shown, s.Name)
	}
	for name := range shown {
		t.Errorf("docs/director.yaml shows %s, which the engine does not know", name)
	}
}

func TestREADMEShowsBothCommands(t *testing.T) {
	for _, command := range []string{"go run ./cmd/pktdirector lab demo", "go test ./..."} {
		if !strings.Contains(page(t, "README.md"), command) {
			t.Errorf("README.md lacks %q", command)
		}
	}
}

// TestThePageOfBehaviourNamesTests keeps docs/behaviour.md true: each row names
// tests of the engine and its links, and of the program, and they are there.
func TestThePageOfBehaviourNamesTests(t *testing.T) {
	var files []string
	for _, folder := range []string{"dataplane", "dataplane/link", "cmd/pktdirector"} {
		found, err := filepath.Glob(folder + "/*_test.go")
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	var code strings.Builder
	for _, f := range files {
		code.WriteString(page(t, f))
	}
	name := regexp.MustCompile("`(Test[A-Za-z0-9]+)`")
	rows := 0
	for line := range strings.Lines(page(t, "docs/behaviour.md")) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| when |") || strings.HasPrefix(line, "| ---") {
			continue
		}
		rows++
		tests := name.FindAllStringSubmatch(line, -1)
		if len(tests) == 0 {
			t.Errorf("no test in the row %q", line)
		}
		for _, m := range tests {
			if !strings.Contains(code.String(), "func "+m[1]+"(t *testing.T)") {
				t.Errorf("docs/behaviour.md names %s, which is not there", m[1])
			}
		}
	}
	if rows < 15 {
		t.Errorf("%d rows were found", rows)
	}
}

// TestThePageOfParityIsComplete holds docs/parity.md against the recordings that
// are there, and against the kernel's settings: each is known or named as refused.
func TestThePageOfParityIsComplete(t *testing.T) {
	text := page(t, "docs/parity.md")
	files, err := filepath.Glob("sim/testdata/vectors/*.json")
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, f := range files {
		count[filepath.Base(f)[:1]]++
	}
	for group, n := range count {
		if want := "    " + group + " " + strconv.Itoa(n) + "/" + strconv.Itoa(n) + "\n"; !strings.Contains(text, want) {
			t.Errorf("docs/parity.md lacks the line %q", want)
		}
	}
	kernel := "am_droprate amemthresh backup_only cache_bypass conn_reuse_mode conntrack drop_entry drop_packet expire_nodest_conn " +
		"expire_quiescent_template ignore_tunneled lblc_expiration lblcr_expiration nat_icmp_send pmtu_disc run_estimation schedule_icmp " +
		"secure_tcp sloppy_sctp sloppy_tcp snat_reroute sync_persist_mode sync_ports sync_qlen_max sync_refresh_period sync_retries " +
		"sync_sock_size sync_threshold sync_version"
	_, table, _ := strings.Cut(text, "| setting | reason |")
	table, _, _ = strings.Cut(table, "\n\n")
	for _, name := range strings.Fields(kernel) {
		refused := dataplane.CheckTunable(name, "0") != nil
		if named := strings.Contains(table, "`"+name+"`"); named != refused {
			t.Errorf("%s: refused %v, named as refused in docs/parity.md %v", name, refused, named)
		}
	}
}
