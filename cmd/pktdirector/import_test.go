package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pktdirector/control"
	"pktdirector/control/migrate"
)

// imported runs "import" and returns the exit code, what it printed and what it told.
func imported(t *testing.T, stdin string, args ...string) (code int, out, told string) {
	t.Helper()
	root := newRootCommand()
	var stdout, stderr bytes.Buffer
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	root.SetIn(strings.NewReader(stdin))
	root.SetArgs(append([]string{"import"}, args...))
	if err := root.Execute(); err != nil {
		e, ok := err.(exitError)
		if !ok {
			e = exitError{exitUsage, err}
		}
		if e.err != nil {
			stderr.WriteString(e.err.Error())
		}
		return e.code, stdout.String(), stderr.String()
	}
	return 0, stdout.String(), stderr.String()
}

// TestImportEndsAsItSays: exit codes, where the configuration goes, and what is told.
func TestImportEndsAsItSays(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	rules := write("rules", "-A -t 192.0.2.10:80 -s rr\n-a -t 192.0.2.10:80 -r 10.2.0.1:8080 -m -w 0\n")
	conf := write("keepalived.conf", "include conf.d/*.conf\nvirtual_server 192.0.2.10 80 {\n  delay_loop 6\n  lvs_sched rr\n}\n")
	write("conf.d/a.conf", "virtual_server 192.0.2.11 80 {\n  lvs_sched sh\n  include ../b.conf\n}\n")
	write("b.conf", "real_server 10.2.0.7 80 {\n  weight 0\n}\n")
	write("conf.d/sub.conf/x", "")

	if code, out, told := imported(t, "", "--link", "eth0", rules); code != 0 || !strings.Contains(out, "weight: 0") || !strings.HasPrefix(told, "1 services with 1 servers were taken over") {
		t.Errorf("all taken over: exit code %d\n%s\n%s", code, out, told)
	}
	code, out, told := imported(t, "", "--link", "eth0", conf)
	if want := conf + ":3: delay_loop 6: pktdirector has no health checks yet: real servers are not probed\n"; code != exitRemarks || !strings.HasPrefix(told, want) {
		t.Errorf("exit code %d, told\n%s\nwant\n%s", code, told, want)
	}
	c, err := control.Parse("out", []byte(out))
	if err != nil || len(c.Ruleset.Services) != 2 || len(c.Ruleset.Services[0].Servers) != 1 || c.Ruleset.Services[0].Servers[0].Weight != 0 {
		t.Errorf("%v\n%s", err, out)
	}
	var r migrate.Result
	code, out, told = imported(t, "-A -t 192.0.2.10:80 -s rr\n", "--json", "-")
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != exitRemarks || told != "" || r.Services != 1 || len(r.Remarks) != 1 || !strings.Contains(r.Config, "FILL IN") {
		t.Errorf("--json: exit code %d, %v, %q\n%s", code, err, told, out)
	}
	to := filepath.Join(dir, "director.yaml")
	if code, out, _ := imported(t, "", "--link", "eth0", "-o", to, rules); code != 0 || out != "" {
		t.Errorf("-o: exit code %d, %q", code, out)
	}
	if _, err := control.Load(to); err != nil {
		t.Error(err)
	}
	for want, args := range map[string][]string{
		"no such file or directory":                         {filepath.Join(dir, "none")},
		"has neither a line of ipvsadm":                     {write("other", "a: b\n")},
		`--format "yaml" is not known: ipvsadm or keepal`:   {"--format", "yaml", rules},
		"0 files are named: one is right, - is standard in": {},
		`--link "a/b" cannot be an interface's name`:        {"--link", "a/b", rules},
		"--link eth0 is given twice":                        {"--link", "eth0", "--link", "eth0", rules},
		"is no file: name another":                          {"--link", "eth0", "-o", "/dev/null", rules},
	} {
		code, out, told := imported(t, "", args...)
		wantCode := exitUsage
		if strings.Contains(want, "no such file") || strings.Contains(want, "neither") || strings.Contains(want, "is no file") {
			wantCode = exitFailed
		}
		if code != wantCode || !strings.Contains(told, want) || out != "" {
			t.Errorf("%v: exit code %d, want %d, told %q, want %q; printed %q", args, code, wantCode, told, want, out)
		}
	}
}

// TestThePageOfImportIsTrue runs the example of docs/import.md.
func TestThePageOfImportIsTrue(t *testing.T) {
	page, err := os.ReadFile("../../docs/import.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(page), "## An example\n")
	example, _, _ = strings.Cut(example, "\n## ")
	var blocks []string
	inside := false
	for line := range strings.Lines(example) {
		text, code := strings.CutPrefix(line, "    ")
		switch {
		case code && !inside:
			blocks = append(blocks, text)
		case code:
			blocks[len(blocks)-1] += text
		case line == "\n" && inside:
			blocks[len(blocks)-1] += line
		}
		inside = code || line == "\n" && inside
	}
	if len(blocks) != 3 {
		t.Fatalf("%d blocks: %q", len(blocks), blocks)
	}
	t.Chdir(t.TempDir())
	if err := os.WriteFile("keepalived.conf", []byte(blocks[0]), 0o644); err != nil {
		t.Fatal(err)
	}
	code, _, told := imported(t, "", "--link", "eth0", "-o", "director.yaml", "keepalived.conf")
	written, err := os.ReadFile("director.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if trim := strings.TrimSpace; code != exitRemarks || trim(told) != trim(blocks[1]) || trim(string(written)) != trim(blocks[2]) {
		t.Errorf("exit code %d, told\n%s\nand wrote\n%s", code, told, written)
	}
}
