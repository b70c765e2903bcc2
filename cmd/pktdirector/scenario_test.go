package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// scenario runs "pktdirector scenario" and returns its exit code and output.
func scenario(args ...string) (code int, out string) {
	var b bytes.Buffer
	root := newRootCommand()
	root.SetOut(&b)
	root.SetErr(&b)
	root.SetArgs(append([]string{"scenario"}, args...))
	err := root.Execute()
	if err == nil {
		return 0, b.String()
	}
	if e, ok := err.(exitError); ok {
		return e.code, b.String() + e.Error()
	}
	return exitUsage, b.String() + err.Error()
}

const twoServers = `{"id": "mine-first", "title": "two servers", "events": [
  {"op": "ipvsadm", "args": "-A -t 192.0.2.10:80 -s wlc"},
  {"op": "ipvsadm", "args": "-a -t 192.0.2.10:80 -r 10.2.0.1:80 -g"},
  {"op": "ipvsadm", "args": "-a -t 192.0.2.10:80 -r 10.2.0.2:80 -g"},
  {"op": "pkt", "from": "client", "proto": "tcp", "src": "198.51.100.1:1000", "dst": "192.0.2.10:80", "flags": "S"}
]}`

func TestScenarioCommands(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "mine.json")
	if err := os.WriteFile(file, []byte(twoServers), 0o600); err != nil {
		t.Fatal(err)
	}
	expect := func(wantCode int, want string, args ...string) {
		t.Helper()
		code, out := scenario(args...)
		if code != wantCode || !strings.Contains(out, want) {
			t.Errorf("scenario %s: exit code %d, want %d and %q in\n%s", strings.Join(args, " "), code, wantCode, want, out)
		}
	}
	expect(0, "to rs RS2: tcp 198.51.100.1:1000 > 192.0.2.10:80 S", "run", file)
	expect(0, "* 10.2.0.2:80 weight 1 active 0 inact 0", "run", "--explain", file)
	expect(0, "mine 1/1\n", "check", dir)
	expect(0, "4 events recorded", "check", "--record", file)
	expect(exitUsage, "--workers 0: write 1 to 1024", "check", "--workers", "0", file)
	expect(exitUsage, "--workers 1000000000: write 1 to 1024", "run", "--workers", "1000000000", file)
	expect(0, "mine 1/1\n", "check", file)

	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, bytes.Replace(b, []byte(`"rs":"RS2"`), []byte(`"rs":"RS1"`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	expect(exitFailed, "! to rs RS1: tcp 198.51.100.1:1000 > 192.0.2.10:80 S | to rs RS2: ", "check", file)
	expect(exitFailed, "mine 0/1\n", "check", file)

	expect(exitUsage, "arg", "check")
	expect(exitUsage, "--conns belongs to --record", "check", "--conns", file)
	expect(exitFailed, "no such file", "run", filepath.Join(dir, "none.json"))
	expect(exitFailed, "no scenarios", "check", t.TempDir())
}
