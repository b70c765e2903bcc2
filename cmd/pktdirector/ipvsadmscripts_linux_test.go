package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pktdirector/testbed/nstest"
)

// scripts are those of Debian's package ipvsadm, which look for ipvsadm in these
// folders only.
const (
	saveScript    = "/sbin/ipvsadm-save"
	restoreScript = "/sbin/ipvsadm-restore"
	realIpvsadm   = "/sbin/ipvsadm"
)

// savedRules are what ipvsadm 1.31 saved of a kernel.
func savedRules(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../control/migrate/testdata/ipvsadm.save")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestScriptsOfIpvsadmWorkUnchanged: with this program in ipvsadm's place, as a bind
// mount in a mount namespace of the test's own, Debian's scripts save and restore.
func TestScriptsOfIpvsadmWorkUnchanged(t *testing.T) {
	for _, file := range []string{saveScript, restoreScript, realIpvsadm} {
		if _, err := os.Stat(file); err != nil {
			nstest.Require(t, "Debian's package ipvsadm is not installed: "+err.Error())
		}
	}
	program(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s, _ := running(t, "links: [{name: eth0}]\nservices: []\n")
	t.Setenv("PKTDIRECTOR_CONTROL", answering(t, s))
	inPlace := func(stdin string, script string, args ...string) (string, error) {
		var out, told bytes.Buffer
		run := append([]string{"--mount", "--propagation", "private", "sh", "-c",
			`mount --bind "$0" "$1" && shift && exec "$@"`, self, realIpvsadm, script}, args...)
		cmd := exec.CommandContext(t.Context(), "unshare", run...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &told
		err := cmd.Run()
		if err != nil && strings.Contains(told.String(), "unshare failed") {
			nstest.Require(t, "no mount namespace can be made: "+told.String())
		}
		if told.Len() > 0 {
			t.Errorf("%s %v: %s", script, args, told.String())
		}
		return out.String(), err
	}
	saved := savedRules(t)
	for range 2 {
		if out, err := inPlace("# a comment, which the script takes out\n"+saved, restoreScript); err != nil || out != "" {
			t.Fatalf("restore: %v %s", err, out)
		}
		out, err := inPlace("", saveScript, "-n")
		if err != nil || out != saved {
			t.Fatalf("restored and saved: %v\n%s\nwant\n%s", err, out, saved)
		}
	}
	if _, err := inPlace("-A -t 192.0.2.10:80\n", restoreScript); err != nil {
		t.Fatal(err)
	}
	if out, err := inPlace("", saveScript, "-n"); err != nil || out != "-A -t 192.0.2.10:80 -s wlc\n" {
		t.Errorf("what stood there before is gone: %v\n%s", err, out)
	}
}

// TestTheProgramAsALinkCalledIpvsadm loads, saves and loads again, as an operator's own
// scripts do.
func TestTheProgramAsALinkCalledIpvsadm(t *testing.T) {
	program(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), ipvsadmName)
	if err := os.Symlink(self, link); err != nil {
		t.Fatal(err)
	}
	s, _ := running(t, "links: [{name: eth0}]\nservices: []\n")
	t.Setenv("PKTDIRECTOR_CONTROL", answering(t, s))
	call := func(stdin string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), link, args...)
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	saved := savedRules(t)
	for _, args := range [][]string{{"-R"}, {"--restore"}} {
		call("", "-C")
		if out := call(saved, args...); out != "" {
			t.Errorf("%v: %s", args, out)
		}
		if out := call("", "-S", "-n"); out != saved {
			t.Errorf("loaded by %v and saved:\n%s\nwant\n%s", args, out, saved)
		}
	}
	cmd := exec.CommandContext(t.Context(), link, strings.Fields("-e -t 192.0.2.10:80 -r 10.2.0.1:8080 -w 5")...)
	out, err := cmd.CombinedOutput()
	if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 255 || string(out) != "No such destination\n" {
		t.Errorf("an edit without -m: %v %q; recorded is 255, No such destination", err, out)
	}
	if out := call("", "-S", "-n"); out != saved {
		t.Errorf("the edit that was refused changed\n%s", out)
	}
}
