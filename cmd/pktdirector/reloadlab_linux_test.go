package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pktdirector/control"
	"pktdirector/testbed"
)

// A running director follows its file, on network cards and on a tundev: an upload
// goes through all of its reloads, services come and go, and killed at last it
// leaves nothing that cleanup does not take away.
func TestReloadOfARunningDirector(t *testing.T) {
	top := topology(t, "nat")
	for _, kind := range kinds(t, top) {
		t.Run(kind.String(), func(t *testing.T) {
			requireLink(t, top, kind)
			l := lab(t, top, kind, func(*testbed.Lab) bool { return false })
			host, client := top.With(testbed.Director)[0].Name, top.With(testbed.Client)[0].Name
			dir := t.TempDir()
			file, socket := filepath.Join(dir, "director.yaml"), filepath.Join(dir, "s")
			other := strings.Replace(top.VIP.String(), ".80", ".81", 1)
			head := "control: " + socket + "\n"
			plain := head + top.DirectorYAML(kind)
			server := top.With(testbed.RealServer)[0]
			more := plain + fmt.Sprintf("  - {vip: %s, protocol: tcp, port: 80, method: nat, servers: [{address: %s, port: %d}]}\n", other, server.Addr(), top.HTTP.Listen())
			write := func(text string) {
				t.Helper()
				if err := os.WriteFile(file+".new", []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(file+".new", file); err != nil {
					t.Fatal(err)
				}
			}
			look := func() (found []string) {
				t.Helper()
				if err := l.Do(host, func() (err error) { found, err = changeable(); return err }); err != nil {
					t.Fatal(err)
				}
				return found
			}
			before := look()
			write(plain)
			d := startRun(t, l, host, file)
			go io.Copy(io.Discard, d.log) // all of it is more than a pipe holds
			api := control.NewClient(socket)

			uploaded := make(chan error, 1)
			var answer string
			go func() {
				var err error
				answer, err = l.Output(t.Context(), client, "lab", "client", "upload", top.Target(top.HTTP), "--bytes", "150000000")
				uploaded <- err
			}()
			reloads := 0
			for going := true; going || reloads%2 == 1; reloads++ {
				text := plain
				if reloads%2 == 0 {
					text = strings.Replace(more, "weight: 1}", fmt.Sprintf("weight: %d}", reloads%7), 1)
				}
				write(text)
				if _, err := api.Reload(t.Context(), false); err != nil {
					t.Fatalf("reload %d: %v", reloads, err)
				}
				select {
				case err := <-uploaded:
					if err != nil {
						t.Errorf("the upload: %v\n%s", err, answer)
					}
					going = false
				default:
				}
			}
			t.Logf("%d reloads during an upload", reloads)
			open := func(vip string) bool {
				out, err := l.Output(t.Context(), client, "lab", "client", "--timeout", "2s", "open", vip+":80", "-n", "3")
				if err != nil {
					t.Logf("%s: %s", vip, out)
				}
				return err == nil
			}
			if open(other) {
				t.Error("a service that the file lost takes connections")
			}
			write(more)
			if err := d.cmd.Process.Signal(syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
			eventually(t, "SIGHUP has the director load its file", func() bool {
				s, err := api.Status(t.Context())
				return err == nil && len(s.Services) == 3
			})
			if !open(other) {
				t.Error("a service that the file got takes no connections")
			}
			d.cmd.Process.Kill()
			d.cmd.Wait()
			if out, code := exitCode(t, l, host, "cleanup", "-c", file); code != 0 {
				t.Errorf("cleanup: exit code %d\n%s", code, out)
			}
			if diff := cmp.Diff(before, look()); diff != "" {
				t.Errorf("killed after many reloads, and cleaned up (-before +after):\n%s", diff)
			}
		})
	}
}

// The command tells what a reload does, and its exit code says it to scripts.
func TestReloadCommand(t *testing.T) {
	top := topology(t, "nat")
	l := lab(t, top, testbed.AFPacket, func(*testbed.Lab) bool { return false })
	host := top.With(testbed.Director)[0].Name
	file := filepath.Join(t.TempDir(), "director.yaml")
	service := fmt.Sprintf("tcp %s:80", top.VIP)
	server := top.With(testbed.RealServer)[0].Addr().String() + ":8080"
	text := top.DirectorYAML(testbed.AFPacket)
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(text)
	startRun(t, l, host, file)
	for _, c := range []struct {
		name, text string
		hand       string // a command of ipvsadm before
		args       string
		code       int
		want       string
	}{
		{"the same file", text, "", "reload", 0, "nothing to do\n"},
		{"nothing was changed by hand", text, "", "drift", 0, ""},
		{"a dry run of the same file", text, "", "reload --dry-run", 0, "nothing to do\n"},
		{"a dry run", strings.Replace(text, "weight: 1}", "weight: 9}", 1), "", "reload --dry-run", 4, "~ server " + server + " of " + service + ": weight 1 -> 9\n"},
		{"a reload", strings.Replace(text, "weight: 1}", "weight: 9}", 1), "", "reload", 0, "~ server " + server + " of " + service + ": weight 1 -> 9\n"},
		{"drift", text, "-e -t " + top.VIP.String() + ":80 -r " + server + " -m -w 0", "drift", 4, "! server " + server + " of " + service + ": weight 9 -> 0 by hand\n"},
		{"drift that stays", "drift: keep\n" + strings.Replace(text, "weight: 1}", "weight: 9}", 1), "", "reload", 0, "! server " + server + " of " + service + ": weight 9 -> 0 by hand: kept\n"},
		{"a dry run with drift that stays", "drift: keep\n" + strings.Replace(text, "weight: 1}", "weight: 9}", 1), "", "reload --dry-run", 0, "! server " + server + " of " + service + ": weight 9 -> 0 by hand: kept\n"},
		{"drift that the file overtakes", text, "", "reload", 0, "! server " + server + " of " + service + ": weight 9 -> 0 by hand: replaced\n~ server " + server + " of " + service + ": weight 0 -> 1\n"},
		{"a file that is none", "links: [", "", "reload", 1, ""},
		{"a dry run of it", "links: [", "", "reload --dry-run", 1, ""},
		{"another link", strings.Replace(text, "links:\n", "links:\n  - {name: lo}\n", 1), "", "reload", 3, ""},
		{"a dry run with another link", text + "control: /run/other\n", "", "reload --dry-run", 3, "x control: was /run/pktdirector/pktdirector.sock and is /run/other, which no reload can change: start the director anew, or take it out of the file\n"},
		{"an argument", text, "", "reload now", 2, ""},
	} {
		write(c.text)
		if c.hand != "" {
			if out, code := exitCode(t, l, host, append([]string{"ipvsadm"}, strings.Fields(c.hand)...)...); code != 0 {
				t.Fatalf("%s: %s", c.hand, out)
			}
		}
		out, code := exitCode(t, l, host, strings.Fields(c.args)...)
		if code != c.code || out != c.want {
			t.Errorf("%s: exit code %d, want %d; got\n%swant\n%s", c.name, code, c.code, out, c.want)
		}
	}
	write(strings.Replace(text, "weight: 1}", "weight: 4}", 1))
	out, code := exitCode(t, l, host, "reload", "--dry-run", "--json")
	var report control.ReloadReport
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 4 || len(report.Steps) != 1 || report.Steps[0].Op != control.OpChange ||
		len(report.Steps[0].Changes) != 1 || report.Steps[0].Changes[0].To != "4" || report.File != file {
		t.Errorf("--json: exit code %d, %v\n%s", code, err, out)
	}
	write("links: [")
	out, code = exitCode(t, l, host, "reload", "--json")
	var problem control.Problem
	if err := json.Unmarshal([]byte(out), &problem); err != nil || code != 1 || problem.Status != 422 || len(problem.Faults) == 0 {
		t.Errorf("--json of a file that is none: exit code %d, %v\n%s", code, err, out)
	}
}
