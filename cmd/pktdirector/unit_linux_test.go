package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pktdirector/testbed"
	"pktdirector/testbed/nstest"
)

const unitFile = "../../packaging/pktdirector.service"

// unit returns the value of each of the unit's settings, the last where there are
// several.
func unit(t testing.TB) map[string]string {
	t.Helper()
	b, err := os.ReadFile(unitFile)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^([A-Za-z]+)=(.*)$`).FindAllStringSubmatch(string(b), -1) {
		values[m[1]] = m[2]
	}
	return values
}

// TestTheUnitsRightsAreEnough runs a lab's director with the unit's capabilities and
// no others, on both kinds of link, and hears it tell the service manager what it is
// promised: that it is ready, that it is alive, and that it stops.
func TestTheUnitsRightsAreEnough(t *testing.T) {
	nstest.Enter(t)
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		nstest.Require(t, "setpriv is missing: install util-linux")
	}
	caps := strings.Fields(strings.ToLower(unit(t)["CapabilityBoundingSet"]))
	bounding := "-all"
	for _, c := range caps {
		bounding += ",+" + strings.TrimPrefix(c, "cap_")
	}
	for _, kind := range []testbed.LinkKind{testbed.AFPacket, testbed.Tundev} {
		t.Run(kind.String(), func(t *testing.T) {
			top := topology(t, "nat")
			requireLink(t, top, kind)
			heard := listen(t)
			wrapper := filepath.Join(t.TempDir(), "pktdirector")
			program(t)
			self, err := os.Executable() // the wrapper's own would be the shell's
			if err != nil {
				t.Fatal(err)
			}
			script := fmt.Sprintf("#!/bin/sh\n[ \"$1\" = run ] && exec %s --bounding-set %s --inh-caps -all --no-new-privs %s \"$@\"\nexec %[3]s \"$@\"\n", setpriv, bounding, self)
			if err := os.WriteFile(wrapper, []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
			t.Setenv("WATCHDOG_USEC", "4000000")
			l, err := testbed.Build(top, testbed.Options{Program: wrapper, Link: kind})
			if err != nil {
				t.Fatal(err)
			}
			closed := false
			defer func() {
				if !closed {
					l.Close()
				}
			}()
			if err := l.StartServers(t.Context()); err != nil {
				t.Fatal(err)
			}
			p, err := l.StartDirector(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := effective(t, p.PID()); got != 1<<12|1<<13 { // CAP_NET_ADMIN, CAP_NET_RAW: capabilities(7)
				t.Errorf("the director's capabilities are %#x", got)
			}
			if _, err := l.Transfer(t.Context(), "upload", 1_000_000, 1); err != nil {
				t.Errorf("over %v: %v", kind, err)
			}
			if out, err := l.Output(t.Context(), top.With(testbed.Director)[0].Name, "reload"); err != nil {
				t.Errorf("reload: %v\n%s", err, out)
			}
			time.Sleep(1500 * time.Millisecond) // the second look at what is alive
			closed = true
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			said := heard()
			ready := regexp.MustCompile(`(?m)^READY=1\nSTATUS=forwarding: services [1-9]\d*, servers [1-9]\d*, connections \d+ of at most \d+$`)
			switch {
			case len(said) < 4 || !ready.MatchString(said[0]):
				t.Errorf("the manager heard %q, first that it is ready", said)
			case strings.Count(strings.Join(said, "\n"), "WATCHDOG=1") < 2:
				t.Errorf("the watchdog heard %q", said)
			case !regexp.MustCompile(`(?s)RELOADING=1\nMONOTONIC_USEC=\d+\nSTATUS=loading.*READY=1`).MatchString(strings.Join(said, "\n")):
				t.Errorf("of the reload the manager heard %q", said)
			case !strings.HasPrefix(said[len(said)-1], "STOPPING=1\nSTATUS="):
				t.Errorf("last the manager heard %q", said[len(said)-1])
			}
		})
	}
}

// listen makes a manager's socket, and returns what was heard there.
func listen(t testing.TB) func() []string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("NOTIFY_SOCKET", name)
	return func() (all []string) {
		defer c.Close()
		c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		for b := make([]byte, 4096); ; {
			n, err := c.Read(b)
			if err != nil {
				return all
			}
			all = append(all, string(b[:n]))
		}
	}
}

// effective returns the effective capabilities of a process.
func effective(t testing.TB, pid int) (caps uint64) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "CapEff:"); ok {
			fmt.Sscanf(strings.TrimSpace(v), "%x", &caps)
		}
	}
	return caps
}

// The unit is what the director needs and says.
func TestTheUnit(t *testing.T) {
	u := unit(t)
	for key, want := range map[string]string{
		"Type": "notify", "NotifyAccess": "main", "CapabilityBoundingSet": "CAP_NET_ADMIN CAP_NET_RAW", "NoNewPrivileges": "yes", "RuntimeDirectoryPreserve": "yes",
	} {
		if u[key] != want {
			t.Errorf("%s=%s, want %s", key, u[key], want)
		}
	}
	// What it calls is there.
	var names []string
	for _, c := range newRootCommand().Commands() {
		names = append(names, c.Name())
	}
	for _, key := range []string{"ExecStart", "ExecReload"} {
		words := strings.Fields(u[key])
		if len(words) < 2 || words[0] != "/usr/bin/pktdirector" || !slices.Contains(names, words[1]) {
			t.Errorf("%s=%s: no such command; there are %v", key, u[key], names)
		}
	}
	if path, err := exec.LookPath("systemd-analyze"); err == nil {
		out, err := exec.Command(path, "verify", "--man=no", unitFile).CombinedOutput()
		for line := range strings.Lines(string(out)) {
			if !strings.Contains(line, "is not executable") { // where the package is not installed
				t.Errorf("%v: %s", err, line)
			}
		}
	}
}
