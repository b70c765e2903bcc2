package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pktdirector/control"
	"pktdirector/testbed"
)

// replaceable is a program's file that is this test's own, to be put another one in
// its place.
func replaceable(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pktdirector")
	putProgram(t, file, executable(t))
	return file
}

// putProgram puts a copy of a program at path, as an installation does: beside it first.
func putProgram(t *testing.T, path, from string) {
	t.Helper()
	if err := os.Link(from, path+".new"); err != nil {
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path+".new", b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// upgradeLab is a director whose program can be replaced, in a lab.
type upgradeLab struct {
	t            *testing.T
	l            *testbed.Lab
	top          *testbed.Topology
	host, client string
	program      string
	file, socket string
	api          *control.Client
	log          *logText
}

// newUpgradeLab starts one.
func newUpgradeLab(t *testing.T, top *testbed.Topology, kind testbed.LinkKind, more string) *upgradeLab {
	t.Helper()
	requireLink(t, top, kind)
	u := &upgradeLab{t: t, l: lab(t, top, kind, func(*testbed.Lab) bool { return false }), top: top, program: replaceable(t), log: &logText{}}
	u.host, u.client = top.With(testbed.Director)[0].Name, top.With(testbed.Client)[0].Name
	dir := t.TempDir()
	u.file, u.socket = filepath.Join(dir, "director.yaml"), filepath.Join(dir, "s")
	u.api = control.NewClient(u.socket)
	u.write("control: " + u.socket + "\n" + top.DirectorYAML(kind) + more)
	return u
}

func (u *upgradeLab) write(text string) {
	u.t.Helper()
	if err := os.WriteFile(u.file+".new", []byte(text), 0o644); err != nil {
		u.t.Fatal(err)
	}
	if err := os.Rename(u.file+".new", u.file); err != nil {
		u.t.Fatal(err)
	}
}

// start starts the director. Whoever follows it ends with the test.
func (u *upgradeLab) start() started {
	u.t.Helper()
	d := startRun(u.t, u.l, u.host, u.file, u.program)
	go io.Copy(u.log, d.log)
	u.t.Cleanup(func() {
		if s, err := u.api.Status(context.Background()); err == nil {
			syscall.Kill(s.PID, syscall.SIGKILL)
		}
	})
	return d
}

func (u *upgradeLab) status() *control.Status {
	u.t.Helper()
	s, err := u.api.Status(u.t.Context())
	if err != nil {
		u.t.Fatal(err)
	}
	return s
}

// changes lists what a director changes on its host.
func (u *upgradeLab) changes() (found []string) {
	u.t.Helper()
	if err := u.l.Do(u.host, func() (err error) { found, err = changeable(); return err }); err != nil {
		u.t.Fatal(err)
	}
	return found
}

// stop ends the director that listens, and returns when its process is gone.
func (u *upgradeLab) stop() {
	u.t.Helper()
	pid := u.status().PID
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		u.t.Fatal(err)
	}
	inTime(u.t, "the director ends", func() bool { return !alive(pid) })
}

// alive reports whether a process runs, or a thread of it, which holds its files.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	return err == nil && (!strings.Contains(string(b), ") Z ") || len(threads) > 1)
}

// A director is upgraded three times while connections come, go, and carry what they
// can: none of them notices, counters go on, and at the end nothing is left.
func TestUpgradesUnderTraffic(t *testing.T) {
	top := topology(t, "nat")
	for _, kind := range kinds(t, top) {
		t.Run(kind.String(), func(t *testing.T) {
			u := newUpgradeLab(t, top, kind, "")
			before := u.changes()
			d := u.start()
			first := d.cmd.Process.Pid

			uploaded := make(chan error, 1)
			var answer string
			var over atomic.Bool
			go func() {
				var err error
				answer, err = u.l.Output(t.Context(), u.client, "lab", "client", "upload", top.Target(top.HTTP), "--bytes", "300000000")
				uploaded <- err
			}()
			opened := make(chan error, 1)
			go func() {
				for !over.Load() {
					if out, err := u.l.Output(t.Context(), u.client, "lab", "client", "open", top.Target(top.HTTP), "-n", "30"); err != nil {
						opened <- fmt.Errorf("%w\n%s", err, out)
						return
					}
				}
				opened <- nil
			}()
			inTime(t, "traffic comes", func() bool { return u.status().Stats.Conns > 10 })
			for i := range 3 {
				was := u.status()
				out, code := exitCode(t, u.l, u.host, "upgrade", "--json", "--control", u.socket)
				var r control.UpgradeReport
				if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 {
					t.Fatalf("upgrade %d: exit code %d, %v\n%s\n%s", i, code, err, out, u.log.since())
				}
				is := u.status()
				if is.PID == was.PID || is.PID != r.New.PID || r.Old.PID != was.PID || r.Connections == 0 || r.PauseMS <= 0 {
					t.Errorf("upgrade %d: %+v; the director was process %d, is %d", i, r, was.PID, is.PID)
				}
				if is.Stats.Conns < was.Stats.Conns || is.Stats.InPkts < was.Stats.InPkts {
					t.Errorf("upgrade %d: counters went from %+v to %+v", i, was.Stats, is.Stats)
				}
				for j := range was.Links {
					for name, n := range was.Links[j].Counters {
						if is.Links[j].Counters[name] < n {
							t.Errorf("upgrade %d: %s of %s went from %d to %d", i, name, was.Links[j].Name, n, is.Links[j].Counters[name])
						}
					}
				}
				inTime(t, "the old director ends", func() bool { return !alive(was.PID) })
				t.Logf("upgrade %d: %d connections, pause %.1f ms", i, r.Connections, r.PauseMS)
			}
			if err := d.cmd.Wait(); err != nil {
				t.Errorf("the first director, process %d: %v", first, err)
			}
			if err := <-uploaded; err != nil {
				t.Errorf("the upload: %v\n%s", err, answer)
			}
			over.Store(true)
			if err := <-opened; err != nil {
				t.Error(err)
			}
			u.stop()
			if diff := cmp.Diff(before, u.changes()); diff != "" {
				t.Errorf("after the end (-before +after):\n%s", diff)
			}
		})
	}
}

// The service manager hears from the old process who the director is, and then from
// that one that it is ready and alive.
func TestTheManagerHearsOfAnUpgrade(t *testing.T) {
	top := topology(t, "nat")
	u := newUpgradeLab(t, top, testbed.AFPacket, "")
	name := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	t.Setenv("NOTIFY_SOCKET", name)
	t.Setenv("WATCHDOG_USEC", "4000000")
	os.Unsetenv("WATCHDOG_PID")
	u.start()
	heard := func(want string) {
		t.Helper()
		c.SetReadDeadline(time.Now().Add(30 * time.Second))
		for b := make([]byte, 4096); ; {
			n, err := c.Read(b)
			if err != nil {
				t.Fatalf("%q was not heard: %v", want, err)
			}
			if s := string(b[:n]); strings.HasPrefix(s, want) {
				return
			} else if strings.HasPrefix(s, "STOPPING") {
				t.Fatalf("waiting for %q, heard %q", want, s)
			}
		}
	}
	heard("READY=1")
	r, err := u.api.Upgrade(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	heard(fmt.Sprintf("MAINPID=%d", r.New.PID))
	heard("READY=1")
	heard("WATCHDOG=1")
	inTime(t, "the old director ends", func() bool { return !alive(r.Old.PID) })
	heard("WATCHDOG=1")
	u.stop()
}

// Who listens to events goes on listening to the new program.
func TestEventsAcrossAnUpgrade(t *testing.T) {
	top := topology(t, "nat")
	u := newUpgradeLab(t, top, testbed.AFPacket, "")
	u.start()
	traced := make(chan error, 1)
	go func() {
		_, err := u.l.Output(t.Context(), u.host, "trace", "--control", u.socket, "--kind", "admin", "--count", "4")
		traced <- err
	}()
	edits := 0
	edit := func() {
		edits++
		service, server := fmt.Sprintf("tcp-%s-80", top.VIP), fmt.Sprintf("%s-8080", top.With(testbed.RealServer)[0].Addr())
		if _, err := u.api.PatchServer(t.Context(), service, server, control.Patch{"weight": edits}); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		edit()
		if _, err := u.api.Upgrade(t.Context(), false); err != nil {
			t.Fatal(err)
		}
	}
	inTime(t, "events of the last program are heard", func() bool {
		edit()
		select {
		case err := <-traced:
			if err != nil {
				t.Error(err)
			}
			return true
		default:
			return false
		}
	})
	u.stop()
}

// inTime is eventually for what processes that start and end have to do, on a busy
// machine.
func inTime(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for end := time.Now().Add(90 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if happened() {
			return
		}
	}
	t.Fatalf("waited 90 s for: %s", what)
}
