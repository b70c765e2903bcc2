package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pktdirector/testbed"
	"pktdirector/testbed/nstest"
)

// result is how a command of the program ended.
type result struct {
	code     int
	out, err string
}

// pktdirector runs the program.
func pktdirector(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	return runFile(program(t), stdin, args...)
}

// runFile runs the program's file, from any goroutine.
func runFile(file, stdin string, args ...string) result {
	cmd := exec.Command(file, args...)
	var out, complaint strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &complaint
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		return result{code: -1, err: err.Error()}
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), complaint.String()}
}

// succeed runs the program and wants exit code 0.
func succeed(t *testing.T, args ...string) string {
	t.Helper()
	r := pktdirector(t, "", args...)
	if r.code != 0 {
		t.Fatalf("pktdirector %q: exit code %d\n%s%s", args, r.code, r.out, r.err)
	}
	return r.out
}

// keeping lets a test keep labs up, apart from those of other tests.
func keeping(t *testing.T) (stateDir string) {
	t.Helper()
	nstest.New(t) // ends the test where there can be no namespaces
	dir := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", dir)
	t.Cleanup(func() {
		up, err := testbed.Up()
		if err != nil {
			t.Error(err)
		}
		for _, s := range up {
			if err := s.Down(); err != nil {
				t.Error(err)
			}
		}
	})
	return filepath.Join(dir, "pktdirector")
}

func TestLabUpExecStatusDown(t *testing.T) {
	dir := keeping(t)
	if out := succeed(t, "lab", "status"); out != "no lab is up\n" {
		t.Errorf("status before: %q", out)
	}
	out := succeed(t, "lab", "up", "dr")
	for _, want := range []string{
		"rs1# sysctl -w net.ipv4.conf.all.arp_ignore=1\n", "rs1# ip addr add 192.0.2.80/32 dev lo scope host\n",
		"director# pktdirector run -c /run/pktdirector/director.yaml\n", "lab dr is up",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("up did not print %q:\n%s", want, out)
		}
	}
	if r := pktdirector(t, "", "lab", "up", "dr"); r.code != exitFailed || !strings.Contains(r.err, "lab dr is up already") {
		t.Errorf("second up: %+v, want it refused", r)
	}
	if out := succeed(t, "lab", "list"); !strings.Contains(out, "VIP 192.0.2.80     up\n") {
		t.Errorf("list does not show that dr is up:\n%s", out)
	}

	var labs []testbed.Status
	if err := json.Unmarshal([]byte(succeed(t, "lab", "status", "--json")), &labs); err != nil {
		t.Fatal(err)
	}
	if len(labs) != 1 || labs[0].Name != "dr" || len(labs[0].Hosts) != 6 || labs[0].PID <= 1 {
		t.Errorf("status %+v, want dr with 6 hosts and its keeper", labs)
	}
	for _, h := range labs[0].Hosts {
		for _, p := range h.Processes {
			if !p.Running {
				t.Errorf("%s on %s does not run:\n%s", p.Command, h.Name, p.Log)
			}
		}
	}
	if out := succeed(t, "lab", "exec", "dr", "director", "--", testbed.Self, "list"); !strings.Contains(out, "TCP  192.0.2.80:80 wlc\n") {
		t.Errorf("list on the director printed %q", out)
	}
	if out := succeed(t, "lab", "down"); out != "lab dr is down\n" {
		t.Errorf("down printed %q", out)
	}
	if left, err := os.ReadDir(dir); !os.IsNotExist(err) {
		t.Errorf("state directory has %v, error %v, want it gone", left, err)
	}
	if out := succeed(t, "lab", "down", "dr"); out != "lab dr is not up\n" {
		t.Errorf("second down: %q, want it to say that the lab is not up", out)
	}
}

// The commands on the page about labs are as they stand there: each can be
// typed, and ends as the page says.
func TestLabPage(t *testing.T) {
	keeping(t)
	bin := t.TempDir()
	if err := os.Symlink(executable(t), filepath.Join(bin, "pktdirector")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	text, err := os.ReadFile("../../docs/lab.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## A lab that stays\n")
	section, _, _ = strings.Cut(section, "\n## ")
	open := false // ARP on a server, from one command of the page on
	ran := 0
	for line := range strings.Lines(section) {
		args, ok := strings.CutPrefix(line, "    pktdirector ")
		if !ok {
			continue
		}
		words := strings.Fields(args)
		if i := slices.Index(words, "--"); i >= 0 {
			if _, err := exec.LookPath(words[i+1]); err != nil {
				t.Logf("left out, as %v: %s", err, line)
				continue
			}
		}
		ran++
		asks := slices.Contains(words, "check-arp")
		r := pktdirector(t, "", words...)
		switch machines := strings.Fields(r.out); {
		case asks && open && (r.code != exitFailed || len(machines) != 2 || !strings.Contains(r.err, "only the director may")):
			t.Errorf("%s: %+v, want two machines and exit code 1", line, r)
		case asks && !open && (r.code != 0 || len(machines) != 1):
			t.Errorf("%s: %+v, want one machine", line, r)
		case !asks && r.code != 0:
			t.Errorf("%s: %+v", line, r)
		}
		open = open || strings.Contains(args, "arp_ignore=0")
	}
	if ran < 8 || !open {
		t.Errorf("%d commands were found on the page, want all of them", ran)
	}
}

func executable(t *testing.T) string {
	t.Helper()
	file, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// Labs of one name that go up and down at once, by several callers: whoever
// is told that the lab is up has one that answers, and in the end all are gone.
func TestLabUpAndDownAtOnce(t *testing.T) {
	dir := keeping(t)
	succeed(t, "lab", "up", "dr")
	file := program(t)
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			if r := runFile(file, "", "lab", "down", "dr"); r.code != 0 || r.out != "lab dr is down\n" && r.out != "lab dr is not up\n" {
				t.Errorf("one of four downs: %+v", r)
			}
		})
	}
	callers.Wait()
	gone(t)
	for range 3 {
		succeed(t, "lab", "up", "dr")
		callers.Go(func() {
			if r := runFile(file, "", "lab", "down", "dr"); r.code != 0 {
				t.Errorf("down: %+v", r)
			}
		})
		for up := false; !up; { // a new one as soon as the old one lets
			r := pktdirector(t, "", "lab", "up", "dr")
			up = r.code == 0
			if !up && !strings.Contains(r.err, "lab dr is up already") {
				t.Fatalf("up: %+v", r)
			}
		}
		callers.Wait()
		if out := succeed(t, "lab", "exec", "dr", "rs1", "--", "echo", "here"); out != "here\n" {
			t.Errorf("the new lab says %q", out)
		}
		succeed(t, "lab", "down")
		gone(t)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("state directory: %v, want it gone", err)
	}
}

func TestLabWithALongStateDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", dir)
	r := pktdirector(t, "", "lab", "up", "dr")
	if r.code != exitFailed || !strings.Contains(r.err, "a unix socket's path may have 107: let XDG_RUNTIME_DIR name a folder") {
		t.Errorf("got %+v", r)
	}
	t.Setenv("XDG_RUNTIME_DIR", "")
	t.Setenv("TMPDIR", dir)
	if r := pktdirector(t, "", "lab", "status", "dr"); r.code != exitFailed || !strings.Contains(r.err, "let TMPDIR name a folder") {
		t.Errorf("got %+v", r)
	}
}

// Somebody else's folder in a shared place is not trusted.
func TestLabRefusesAnOpenStateDirectory(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", dir)
	if err := os.Mkdir(filepath.Join(dir, "pktdirector"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"lab", "up", "dr"}, {"lab", "status", "dr"}} {
		if r := pktdirector(t, "", args...); r.code != exitFailed || !strings.Contains(r.err, "is not a directory that only you") {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

func TestLabExec(t *testing.T) {
	keeping(t)
	succeed(t, "lab", "up", "nat")
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("LAB_TEST", "from the caller")
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "only-here"), []byte("#!/bin/sh\necho found\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	tests := map[string]struct {
		host    string
		stdin   string
		command []string
		want    result
	}{
		"standard input and output":   {"rs1", "hello", []string{"cat"}, result{out: "hello"}},
		"standard error":              {"rs1", "", []string{"sh", "-c", "echo no >&2"}, result{err: "no\n"}},
		"exit code":                   {"rs1", "", []string{"sh", "-c", "exit 7"}, result{code: 7}},
		"ended by a signal":           {"rs1", "", []string{"sh", "-c", "kill -TERM $$"}, result{code: 143}},
		"environment":                 {"rs1", "", []string{"sh", "-c", "echo $LAB_TEST"}, result{out: "from the caller\n"}},
		"found in the caller's PATH":  {"rs1", "", []string{"only-here"}, result{out: "found\n"}},
		"working directory":           {"rs1", "", []string{"pwd"}, result{out: wd + "\n"}},
		"on the host that was named":  {"rs2", "", []string{"cat", "/proc/sys/kernel/hostname"}, result{out: "rs2\n"}},
		"without the dashes":          {"rs1", "", []string{"echo", "-n", "x"}, result{out: "x"}},
		"something in the background": {"rs1", "", []string{"sh", "-c", "sleep 60 >/dev/null 2>&1 & echo started"}, result{out: "started\n"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			args := []string{"lab", "exec", "nat", tt.host}
			if name != "without the dashes" {
				args = append(args, "--")
			}
			if got := pktdirector(t, tt.stdin, append(args, tt.command...)...); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
	for name, tt := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no such host":    {[]string{"nat", "rs9", "true"}, exitFailed, `lab nat has no host "rs9"`},
		"no such command": {[]string{"nat", "rs1", "no-such-command"}, exitFailed, `"no-such-command": executable file not found`},
		"lab not up":      {[]string{"tun", "rs1", "true"}, exitFailed, "lab tun is not up"},
		"no such lab":     {[]string{"moon", "rs1", "true"}, exitUsage, `lab "moon" is not known`},
		"command missing": {[]string{"nat", "rs1", "--"}, exitUsage, "the command is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			r := pktdirector(t, "", append([]string{"lab", "exec"}, tt.args...)...)
			if r.code != tt.code || !strings.Contains(r.err, tt.want) {
				t.Errorf("got %+v, want exit code %d and %q", r, tt.code, tt.want)
			}
		})
	}
}

// Signals reach the command, and a caller that dies takes it along.
func TestLabExecSignals(t *testing.T) {
	keeping(t)
	succeed(t, "lab", "up", "nat")
	for name, sig := range map[string]struct {
		send syscall.Signal
		want string
	}{
		"passed on":   {syscall.SIGINT, "got INT\n"},
		"caller dies": {syscall.SIGKILL, "got HUP\n"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(program(t), "lab", "exec", "nat", "rs1", "--", "sh", "-c",
				`trap "echo got INT; exit" INT; trap "echo got HUP; exit" HUP; echo ready; while :; do sleep 0.1; done`)
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			cmd.Stdout = w
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			w.Close()
			lines := bufio.NewReader(r)
			if first, err := lines.ReadString('\n'); err != nil || first != "ready\n" {
				t.Fatalf("the command said %q, error %v", first, err)
			}
			cmd.Process.Signal(sig.send)
			if got, err := lines.ReadString('\n'); err != nil || got != sig.want {
				t.Errorf("the command said %q, error %v, want %q", got, err, sig.want)
			}
			cmd.Wait()
		})
	}
}

// However a lab ends, nothing of it is left, and it can be built again.
func TestLabAfterKill(t *testing.T) {
	keeping(t)
	for _, victim := range []string{"keep", "init"} {
		t.Run("lab "+victim+" killed", func(t *testing.T) {
			succeed(t, "lab", "up", "dr")
			pids := processes(t, "lab", victim)
			if len(pids) != 1 {
				t.Fatalf("%d processes run lab %s, want 1", len(pids), victim)
			}
			syscall.Kill(pids[0], syscall.SIGKILL)
			gone(t)
			if out := succeed(t, "lab", "status"); out != "no lab is up\n" {
				t.Errorf("status says %q", out)
			}
			succeed(t, "lab", "up", "dr")
			if r := pktdirector(t, "", "lab", "exec", "dr", "client", "--", testbed.Self, "lab", "client", "open", "192.0.2.80:80"); r.code != 0 ||
				r.out != `{"servers":{"rs1":1,"rs2":2,"rs3":3}}`+"\n" {
				t.Errorf("6 connections: %+v", r)
			}
			succeed(t, "lab", "down")
			gone(t)
		})
	}
}

// A demonstration that is killed leaves nothing behind.
func TestDemoAfterKill(t *testing.T) {
	nstest.New(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			cmd := exec.Command(program(t), "lab", "demo", "dr", "--bytes", "20000000000")
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the demonstration to upload", func() bool { return len(processes(t, "lab", "client", "upload")) > 0 })
			cmd.Process.Signal(sig)
			cmd.Wait()
			if cmd.ProcessState.Success() {
				t.Error("the demonstration that was ended calls itself a success")
			}
			gone(t)
		})
	}
}

// processes returns the processes whose arguments begin with those.
func processes(t *testing.T, args ...string) []int {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, path := range dirs {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it ended
		}
		got := strings.Split(string(text), "\x00")
		if len(got) <= len(args) || !slices.Equal(got[1:1+len(args)], args) {
			continue
		}
		var pid int
		fmt.Sscanf(path, "/proc/%d/", &pid)
		pids = append(pids, pid)
	}
	return pids
}

// gone waits until no process of any lab is left.
func gone(t *testing.T) {
	t.Helper()
	eventually(t, "every process of the lab to end", func() bool {
		return len(processes(t, "lab", "init"))+len(processes(t, "lab", "keep"))+len(processes(t, "lab", "stage"))+
			len(processes(t, "lab", "serve"))+len(processes(t, "lab", "client"))+len(processes(t, "run", "-c")) == 0
	})
}

func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for range 200 {
		if happened() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("waited 10 s for %s", what)
}
