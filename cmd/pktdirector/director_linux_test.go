package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"pktdirector/control"
	"pktdirector/testbed"
	"pktdirector/testbed/nstest"
)

// exitCode runs the program on a host of the lab and returns its output and
// exit code.
func exitCode(t *testing.T, l *testbed.Lab, host string, args ...string) (string, int) {
	t.Helper()
	out, err := l.Output(t.Context(), host, args...)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return out, 0
	case errors.As(err, &exit):
		t.Log(err)
		return out, exit.ExitCode()
	}
	t.Fatal(err)
	return "", -1
}

// Field case 42: asked from the router, the director alone answers for the
// VIP; a real server that answers ARP, too, is found and listed.
func TestCheckARPFindsAServerThatAnswers(t *testing.T) {
	top := topology(t, "dr")
	l := lab(t, top, testbed.AFPacket, nil)
	router := top.With(testbed.Router)[0]
	vip, lan := top.VIP.String(), top.With(testbed.Director)[0].NICs[0].Segment
	own := top.With(testbed.Director)[0].NICs[0].MAC.String()
	server := top.With(testbed.RealServer)[0]

	out, code := exitCode(t, l, router.Name, "check-arp", "--dev", lan, vip)
	if code != 0 || out != own+"\n" {
		t.Errorf("a lab in order: exit code %d, %q; want 0 and %s alone", code, out, own)
	}
	if out, code := exitCode(t, l, router.Name, "check-arp", "--dev", lan, "--expect", own, vip); code != 0 {
		t.Errorf("expecting the director: exit code %d, %q", code, out)
	}
	if out, code := exitCode(t, l, router.Name, "check-arp", "--dev", lan, "--expect", "02:00:00:00:00:99", vip); code != 1 {
		t.Errorf("expecting another: exit code %d, %q; want 1", code, out)
	}
	if out, code := exitCode(t, l, router.Name, "check-arp", "--dev", lan, "--wait", "200ms", "192.0.2.99"); code != 1 || out != "" {
		t.Errorf("an address nobody has: exit code %d, %q; want 1 and nothing", code, out)
	}
	if _, code := exitCode(t, l, router.Name, "check-arp", vip); code != 2 {
		t.Errorf("without --dev: exit code %d; want 2", code)
	}
	if _, code := exitCode(t, l, router.Name, "check-arp", "--dev", lan, "192.0.2.80/24"); code != 2 {
		t.Errorf("a prefix: exit code %d; want 2", code)
	}

	for want, addr := range map[string]string{own: vip, "": "192.0.2.99"} {
		out, code := exitCode(t, l, router.Name, "check-arp", "--json", "--dev", lan, "--wait", "300ms", addr)
		var got arpAnswers
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		ok := want != ""
		if got.Address.String() != addr || got.Interface != lan || strings.Join(got.MACs, " ") != want || got.MACs == nil ||
			got.OK != ok || (code == 0) != ok || (got.Error == "") != ok {
			t.Errorf("--json %s: exit code %d, %+v", addr, code, got)
		}
	}

	if err := l.Do(server.Name, func() error {
		return testbed.Sysctl{Key: "net.ipv4.conf.all.arp_ignore", Value: "0"}.Apply()
	}); err != nil {
		t.Fatal(err)
	}
	out, code = exitCode(t, l, router.Name, "check-arp", "--dev", lan, vip)
	lines := strings.Fields(out)
	if code != 1 || len(lines) != 2 || !strings.Contains(out, own) || !strings.Contains(out, server.NICs[0].MAC.String()) {
		t.Errorf("with an open server: exit code %d, %q; want 1 and both machines", code, out)
	}
}

func TestListShowsARunningDirector(t *testing.T) {
	top := topology(t, "nat")
	l := lab(t, top, testbed.AFPacket, nil)
	client, director := top.With(testbed.Client)[0].Name, top.With(testbed.Director)[0].Name
	if out, err := l.Output(t.Context(), client, "lab", "client", "open", top.Target(top.HTTP), "-n", "6"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, _ := exitCode(t, l, director, "list")
	if !strings.HasPrefix(out, "IP Virtual Server version 1.2.1 (size=4096)\nProt LocalAddress:Port Scheduler Flags\n  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn\nTCP  203.0.113.80:80 wlc\n  -> 10.0.0.11:8080               Masq    1      ") {
		t.Errorf("list:\n%s", out)
	}
	if out, _ := exitCode(t, l, director, "list", "-c"); strings.Count(out, " 203.0.113.80:80    10.0.0.1") != 6 {
		t.Errorf("list -c shows other than the 6 connections:\n%s", out)
	}
	if out, _ := exitCode(t, l, director, "list", "--stats"); !strings.Contains(out, "TCP  203.0.113.80:80                     6") {
		t.Errorf("list --stats:\n%s", out)
	}
	if out, _ := exitCode(t, l, director, "list", "--verdicts"); !strings.Contains(out, "forwarded") && !strings.Contains(out, "Forwarded") {
		t.Errorf("list --verdicts:\n%s", out)
	}
	out, _ = exitCode(t, l, director, "list", "--json")
	var s control.Status
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if s.Version != control.APIVersion || len(s.Services) != 2 || len(s.Links) != 2 || s.Links[0].Counters["rx_packets"] == 0 {
		t.Errorf("list --json:\n%s", out)
	}
	out, _ = exitCode(t, l, director, "list", "-c", "--json")
	var conns []control.Connection
	if err := json.Unmarshal([]byte(out), &conns); err != nil || len(conns) != 6 {
		t.Errorf("list -c --json: %v\n%s", err, out)
	}
	if _, code := exitCode(t, l, director, "list", "-c", "--stats"); code != 2 {
		t.Errorf("list -c --stats: exit code %d; want 2", code)
	}
	if _, code := exitCode(t, l, director, "run", "-c", testbed.DirectorConfig); code != 1 {
		t.Errorf("a second director on one host: exit code %d; want 1", code)
	}
}

// A director that is killed is followed by one that cleans up after it, or by
// "pktdirector cleanup"; both leave the host as it was.
func TestKilledDirectorIsCleanedUpAfter(t *testing.T) {
	top := topology(t, "nat")
	for _, kind := range kinds(t, top) {
		t.Run(kind.String(), func(t *testing.T) {
			requireLink(t, top, kind)
			var before []string
			host := top.With(testbed.Director)[0].Name
			look := func(l *testbed.Lab) (found []string) {
				if err := l.Do(host, func() (err error) { found, err = changeable(); return err }); err != nil {
					t.Fatal(err)
				}
				return found
			}
			l := lab(t, top, kind, func(l *testbed.Lab) bool { before = look(l); return true })
			director(l).Kill()
			out, code := exitCode(t, l, host, "cleanup")
			if !strings.Contains(out, "removed the control socket "+control.DefaultSocket) {
				t.Errorf("cleanup left the control socket:\n%s", out)
			}
			if code != 0 || (kind == testbed.Tundev) != strings.Contains(out, "removed ip rule 11281") {
				t.Errorf("cleanup: exit code %d\n%s", code, out)
			}
			if diff := cmp.Diff(before, look(l)); diff != "" {
				t.Errorf("after cleanup (-before +after):\n%s", diff)
			}
			again, err := l.StartDirector(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, code := exitCode(t, l, host, "cleanup"); code != 1 {
				t.Errorf("cleanup beside a running director: exit code %d; want 1", code)
			}
			again.Kill()
			again, err = l.StartDirector(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if out, err := l.Output(t.Context(), top.With(testbed.Client)[0].Name, "lab", "client", "open", top.Target(top.HTTP), "-n", "6"); err != nil {
				t.Errorf("after two kills: %v\n%s", err, out)
			}
			if err := again.Stop(); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(before, look(l)); diff != "" {
				t.Errorf("after a clean stop (-before +after):\n%s", diff)
			}
		})
	}
}

// started is a director that a test started by itself on a host of a lab.
type started struct {
	cmd *exec.Cmd
	log *os.File // to read its log from
}

// startConfigured is startRun with the text of a configuration file.
func startConfigured(t *testing.T, l *testbed.Lab, host, text string) started {
	t.Helper()
	file := filepath.Join(t.TempDir(), "director.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return startRun(t, l, host, file)
}

// startRun starts a director, by way of a command that runs it if one is
// given, and waits until it is ready.
func startRun(t *testing.T, l *testbed.Lab, host, file string, by ...string) started {
	t.Helper()
	log, stderr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	program(t) // makes the test binary behave as the program; its file is not the shell's own
	command := append(by, "run", "-c", file)
	if len(by) != 1 {
		command = append(by, executable(t), "run", "-c", file)
	}
	s := started{exec.Command(command[0], command[1:]...), log}
	s.cmd.Stderr = stderr
	err = l.Start(host, s.cmd)
	stderr.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.cmd.Process.Kill(); s.cmd.Wait() })
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		if strings.Contains(lines.Text(), `"msg":"ready"`) {
			return s
		}
		t.Log(lines.Text())
	}
	t.Fatal("the director was not ready")
	return s
}

// Every signal by which people and systems end a program makes the director
// give back what it took from the host; a log that nobody reads does not.
func TestRunStopsCleanlyOnSignals(t *testing.T) {
	top := topology(t, "nat")
	host, client := top.With(testbed.Director)[0], top.With(testbed.Client)[0].Name
	for _, kind := range kinds(t, top) {
		t.Run(kind.String(), func(t *testing.T) {
			requireLink(t, top, kind)
			l := lab(t, top, kind, func(*testbed.Lab) bool { return false })
			const file = "/run/director.yaml"
			look := func() (found []string) {
				if err := l.Do(host.Name, func() (err error) {
					if found, err = changeable(); err != nil {
						return err
					}
					found = append(found, besideSnapshots(filepath.Dir(control.DefaultSocket))...)
					return os.WriteFile(file, []byte(top.DirectorYAML(kind)), 0o644)
				}); err != nil {
					t.Fatal(err)
				}
				return found
			}
			before := look()
			open := func(when string) {
				t.Helper()
				if out, err := l.Output(t.Context(), client, "lab", "client", "open", top.Target(top.HTTP), "-n", "6"); err != nil {
					t.Errorf("%s: %v\n%s", when, err, out)
				}
			}
			for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT} {
				d := startRun(t, l, host.Name, file)
				open("before " + sig.String())
				d.cmd.Process.Signal(sig)
				if err := d.cmd.Wait(); err != nil {
					t.Errorf("%v: ended with %v", sig, err)
				}
				if diff := cmp.Diff(before, look()); diff != "" {
					t.Errorf("after %v (-before +after):\n%s", sig, diff)
				}
			}

			d := startRun(t, l, host.Name, file)
			d.log.Close()
			if err := l.Do(host.Name, func() error { // the director logs both
				for _, set := range []func(netlink.Link) error{netlink.LinkSetDown, netlink.LinkSetUp} {
					nic, err := netlink.LinkByName(host.NICs[0].Segment)
					if err == nil {
						err = set(nic)
					}
					if err != nil {
						return err
					}
					time.Sleep(300 * time.Millisecond)
				}
				d.cmd.Process.Signal(syscall.SIGPIPE)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			open("without a reader of the log")
			d.cmd.Process.Signal(syscall.SIGTERM)
			if err := d.cmd.Wait(); err != nil {
				t.Errorf("without a reader of the log: ended with %v", err)
			}
			d = startRun(t, l, host.Name, file)
			d.cmd.Process.Signal(syscall.SIGTERM)
			d.cmd.Wait()
		})
	}
}

// What "nohup" has a program ignore stays ignored.
func TestRunUnderNohup(t *testing.T) {
	top := topology(t, "dr")
	l := lab(t, top, testbed.AFPacket, func(l *testbed.Lab) bool { return false })
	host := top.With(testbed.Director)[0].Name
	if err := l.Do(host, func() error {
		return os.WriteFile("/run/director.yaml", []byte(top.DirectorYAML(testbed.AFPacket)), 0o644)
	}); err != nil {
		t.Fatal(err)
	}
	d := startRun(t, l, host, "/run/director.yaml", "sh", "-c", `trap "" HUP; exec "$0" "$@"`)
	d.cmd.Process.Signal(syscall.SIGHUP)
	time.Sleep(300 * time.Millisecond) // nothing must happen
	if err := d.cmd.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("SIGHUP that is ignored ended the director: %v", err)
	}
	if out, code := exitCode(t, l, host, "list"); code != 0 {
		t.Errorf("list after SIGHUP: exit code %d, %s", code, out)
	}
	d.cmd.Process.Signal(syscall.SIGTERM)
	if err := d.cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestLogHasDurationsAsText(t *testing.T) {
	var b strings.Builder
	newLogger(&b, false).Info("stopped", "after", 1300*time.Millisecond, slog.Group("g", "wait", time.Minute))
	if !strings.Contains(b.String(), `"after":"1.3s"`) || !strings.Contains(b.String(), `"wait":"1m0s"`) {
		t.Errorf("log line %s", b.String())
	}
}

// besideSnapshots lists what is in a director's state folder beside its snapshot.
func besideSnapshots(dir string) (found []string) {
	entries, _ := os.ReadDir(dir) // there may be none
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".snapshot" {
			found = append(found, "state file "+e.Name())
		}
	}
	return found
}

// changeable lists what a director may change on the calling thread's host.
func changeable() ([]string, error) {
	var all []string
	for _, pattern := range []string{"ipv4/ip_forward", "ipv4/conf/*/rp_filter", "ipv4/neigh/*/proxy_delay"} {
		files, err := filepath.Glob("/proc/sys/net/" + pattern)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				return nil, err
			}
			all = append(all, f+" "+strings.TrimSpace(string(b)))
		}
	}
	rules, err := netlink.RuleList(netlink.FAMILY_V4)
	for _, r := range rules {
		all = append(all, r.String())
	}
	links, err2 := netlink.LinkList()
	for _, l := range links {
		all = append(all, l.Attrs().Name)
	}
	return all, errors.Join(err, err2)
}

func TestCommandLines(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "director.yaml")
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("links: [{name: eth0}]\nservices:\n  - vip: 192.0.2.300\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		args []string
		want int
	}{
		{"help", []string{"--help"}, 0},
		{"an unknown command", []string{"balance"}, 2},
		{"an unknown flag", []string{"run", "--fast"}, 2},
		{"run without a file", []string{"run"}, 2},
		{"run with a file that is not there", []string{"run", "-c", filepath.Join(dir, "none")}, 1},
		{"run with a bad file", []string{"run", "-c", bad}, 1},
		{"check with a bad file", []string{"check", "-c", bad}, 1},
		{"init", []string{"init", file}, 0},
		{"init over a file", []string{"init", file}, 1},
		{"init over a file by force", []string{"init", "--force", "--dev", "eth7", file}, 0},
		{"init with a bad interface", []string{"init", "--dev", "a/b"}, 2},
		{"list without a director", []string{"list", "--control", filepath.Join(dir, "none.sock")}, 1},
		{"cleanup with nothing to do", []string{"cleanup", "--state", dir}, 0},
		{"an unknown command of lab", []string{"lab", "fly"}, 2},
		{"an unknown command of lab client", []string{"lab", "client", "get", "192.0.2.80"}, 2},
		{"lab alone", []string{"lab"}, 0},
	} {
		if got := execute(c.args); got != c.want {
			t.Errorf("%s: exit code %d; want %d", c.name, got, c.want)
		}
	}
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("cleanup removed a folder that it did not make: %v", err)
	}
	if got := execute([]string{"cleanup", "--state", filepath.Join(dir, "new")}); got != 0 {
		t.Errorf("cleanup in a new folder: exit code %d", got)
	}
	if _, err := os.Stat(filepath.Join(dir, "new")); !os.IsNotExist(err) {
		t.Errorf("cleanup left the folder that it made: %v", err)
	}
	c, err := control.Load(file)
	if err != nil || c.Links[0].Name != "eth7" {
		t.Errorf("the file that init wrote: %v, %+v", err, c)
	}
}

// Output that cannot be written is a failure, also of commands that have
// nothing else to do.
func TestFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		nstest.Require(t, fmt.Sprintf("/dev/full cannot be opened (%v): mount a /dev that has it", err))
	}
	defer full.Close()
	for _, args := range [][]string{{"--help"}, {"init"}, {"lab"}, {"lab", "list"}, {"lab", "client", "--help"}, {"cleanup", "--state", t.TempDir()},
		{"lab", "role", "--lab", "dr", "--host", "rs1", "--dry-run"}} {
		cmd := exec.Command(program(t), args...)
		var complaint strings.Builder
		cmd.Stdout, cmd.Stderr = full, &complaint
		err := cmd.Run()
		if cmd.ProcessState.ExitCode() != exitFailed || !strings.Contains(complaint.String(), "no space left") {
			t.Errorf("%q: %v, %q; want exit code 1 and why", args, err, complaint.String())
		}
	}
}

func TestInterrupted(t *testing.T) {
	l := lab(t, topology(t, "dr"), testbed.AFPacket, nil)
	cmd := exec.Command(program(t), "check-arp", "--dev", "lan", "--wait", "30s", "192.0.2.80")
	var complaint strings.Builder
	cmd.Stderr = &complaint
	if err := l.Start("router", cmd); err != nil {
		t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond) // until it asks
	cmd.Process.Signal(syscall.SIGINT)
	cmd.Wait()
	if cmd.ProcessState.ExitCode() != exitFailed || complaint.String() != "pktdirector: interrupted\n" {
		t.Errorf("exit code %d, %q", cmd.ProcessState.ExitCode(), complaint.String())
	}
}
