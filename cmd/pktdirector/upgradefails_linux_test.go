package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"

	"pktdirector/control"
	"pktdirector/handover"
	"pktdirector/testbed"
)

// asSuccessor makes the test binary behave as a successor of the kind that it names.
const asSuccessor = "PKTDIRECTOR_TEST_SUCCESSOR"

// successor says what a director's successor says, up to where its kind goes another
// way. It returns an exit code.
func successor(kind string) int {
	c, err := handover.Inherited()
	if err != nil || c == nil {
		return 9
	}
	ctx := context.Background()
	heard := func(until string) (w word) {
		for w.Say != until {
			if _, err := c.Receive(ctx, &w); err != nil {
				os.Exit(8)
			}
		}
		return w
	}
	hello := word{Say: sayHello, Protocol: upgradeProtocol, Program: control.Program{Version: "test", PID: os.Getpid()}}
	if kind == "another version" {
		hello.Protocol++
	}
	if kind == "another word" {
		hello.Say = sayForwards
	}
	c.Send(ctx, hello)
	links := heard(sayOffer).Links
	for range links {
		heard(sayLink)
	}
	switch kind {
	case "ends early":
		return 4
	case "crashes":
		panic("as a test wants it")
	}
	c.Send(ctx, word{Say: sayPrepared})
	heard(sayImage)
	switch kind {
	case "ends with the image":
		return 5
	case "refuses the image":
		c.Send(ctx, word{Say: sayNo, Why: "no image of this kind"})
		return 1
	case "hangs with the image":
		time.Sleep(time.Hour)
	}
	c.Send(ctx, word{Say: sayReady})
	heard(sayGo)
	return 6 // "ends when it is to forward"
}

// tables lists the nftables tables of the calling thread's namespace.
func tables() (names []string, err error) {
	c, err := nftables.New()
	if err != nil {
		return nil, err
	}
	all, err := c.ListTables()
	for _, t := range all {
		names = append(names, fmt.Sprint(t.Family, " ", t.Name))
	}
	return names, err
}

// Whatever is wrong with the new program, the director goes on forwarding as if nothing
// had been, says why in one line, and nothing of the new program stays.
func TestUpgradesThatFail(t *testing.T) {
	top := topology(t, "nat")
	links := kinds(t, top)
	if testing.Short() {
		links = links[:1]
	}
	for _, kind := range links {
		t.Run(kind.String(), func(t *testing.T) {
			u := newUpgradeLab(t, top, kind, "")
			text, err := os.ReadFile(u.file)
			if err != nil {
				t.Fatal(err)
			}
			u.start()
			uploaded := make(chan error, 1)
			var answer string
			go func() {
				var err error
				answer, err = u.l.Output(t.Context(), u.client, "lab", "client", "--timeout", "120s", "upload", top.Target(top.HTTP), "--bytes", "400000000")
				uploaded <- err
			}()
			inTime(t, "traffic comes", func() bool { return u.status().Stats.InPkts > 100 })
			state := func() []string {
				var nft []string
				if err := u.l.Do(u.host, func() (err error) { nft, err = tables(); return err }); err != nil {
					t.Fatal(err)
				}
				return append(u.changes(), nft...)
			}
			before, was := state(), u.status()
			script := func(lines string) func() {
				return func() {
					if err := os.WriteFile(u.program+".sh", []byte("#!/bin/sh\n"+lines+"\n"), 0o755); err != nil {
						t.Fatal(err)
					}
					if err := os.Rename(u.program+".sh", u.program); err != nil {
						t.Fatal(err)
					}
				}
			}
			plays := func(kind string) func() {
				return script(asSuccessor + "='" + kind + "' exec " + executable(t) + ` "$@"`)
			}
			cases := []struct {
				name string
				make func()
				want string
			}{
				{"the file is missing", func() { os.Remove(u.program) }, "no such file"},
				{"it is not executable", func() { script("")(); os.Chmod(u.program, 0o644) }, "permission denied"},
				{"it is no program", func() {
					os.WriteFile(u.program+".x", []byte("text"), 0o755)
					os.Rename(u.program+".x", u.program)
				}, "exec format error"},
				{"it ends at once", script("exit 3"), "exit status 3"},
				{"it speaks another version", plays("another version"), "by version 2 of the protocol, this one hands over by 1"},
				{"it says another word", plays("another word"), `says "forwards", and was to say "hello"`},
				{"it ends early", plays("ends early"), `(exit status 4), and was to say "prepared"`},
				{"it crashes", plays("crashes"), `(exit status 2), and was to say "prepared"`},
				{"it ends with the image", plays("ends with the image"), `(exit status 5), and was to say "ready"`},
				{"it refuses the image", plays("refuses the image"), "refuses: no image of this kind"},
				{"it ends when it is to forward", plays("ends when it is to forward"), `(exit status 6), and was to say "forwards"`},
				{"its configuration makes no sense", func() {
					putProgram(t, u.program, executable(t))
					u.write("links: [")
				}, "refuses: "},
				{"its configuration has another link", func() {
					u.write(strings.Replace(string(text), "links:\n", "links:\n  - {name: lo}\n", 1))
				}, "what only a restart can change"},
				{"its configuration is missing", func() { os.Remove(u.file) }, "no such file"},
			}
			if kind == testbed.AFPacket && !testing.Short() {
				cases = append(cases, []struct {
					name string
					make func()
					want string
				}{
					{"it hangs", script("exec sleep 1000"), "nothing for 20s"},
					{"it hangs with the image", plays("hangs with the image"), "nothing for 20s"},
				}...)
			}
			for _, c := range cases {
				c.make()
				u.log.since()
				out, err := u.l.Output(t.Context(), u.host, "upgrade", "--control", u.socket)
				if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "the director goes on as it was") {
					t.Errorf("%s: %v, want %q\n%s", c.name, err, c.want, out)
				}
				inTime(t, "the log says so", func() bool { return u.log.count("not upgraded") == 1 })
				is := u.status()
				if is.PID != was.PID {
					t.Fatalf("%s: process %d is %d", c.name, was.PID, is.PID)
				}
				inTime(t, c.name+": it forwards", func() bool { return u.status().Stats.InPkts > is.Stats.InPkts || len(uploaded) > 0 })
				if diff := cmp.Diff(before, state()); diff != "" {
					t.Errorf("%s: (-before +after):\n%s", c.name, diff)
				}
				if out, err := u.l.Output(t.Context(), u.client, "lab", "client", "--timeout", "60s", "open", top.Target(top.HTTP), "-n", "6"); err != nil {
					t.Errorf("%s: %v\n%s", c.name, err, out)
				}
			}
			u.write(string(text))
			putProgram(t, u.program, executable(t))
			if out, code := exitCode(t, u.l, u.host, "upgrade", "--dry-run", "--control", u.socket); code != 0 || !strings.Contains(out, "could hand over") {
				t.Errorf("a dry run: exit code %d\n%s", code, out)
			}
			if diff := cmp.Diff(before, state()); diff != "" || u.status().PID != was.PID {
				t.Errorf("a dry run: (-before +after):\n%s", diff)
			}
			if out, code := exitCode(t, u.l, u.host, "upgrade", "--control", u.socket); code != 0 || !strings.Contains(out, "handed over") {
				t.Errorf("at last: exit code %d\n%s", code, out)
			}
			if err := <-uploaded; err != nil {
				t.Errorf("the upload: %v\n%s", err, answer)
			}
			u.stop()
		})
	}
}

// SIGUSR2 upgrades, too. What is changed meanwhile is not lost, in whatever process it
// arrives; a second upgrade at a time is refused; a file that says otherwise is loaded.
func TestUpgradesAmongEdits(t *testing.T) {
	top := topology(t, "nat")
	u := newUpgradeLab(t, top, testbed.AFPacket, "")
	text, err := os.ReadFile(u.file)
	if err != nil {
		t.Fatal(err)
	}
	u.start()
	service := fmt.Sprintf("tcp-%s-80", top.VIP)
	server := fmt.Sprintf("%s-8080", top.With(testbed.RealServer)[0].Addr())
	stop, ended := make(chan struct{}), make(chan int, 1)
	go func() { // each edit must be there afterwards, so none may get lost
		n := 0
		defer func() { ended <- n }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			n++
			if _, err := u.api.PatchServer(t.Context(), service, server, control.Patch{"weight": n}); err != nil {
				t.Errorf("edit %d: %v", n, err)
				return
			}
			now, err := u.api.Server(t.Context(), service, server)
			if err != nil || now.Spec.Weight == nil || *now.Spec.Weight != n {
				t.Errorf("edit %d: %+v, %v", n, now.Spec, err)
				return
			}
		}
	}()
	for range 3 {
		was := u.status().PID
		if err := syscall.Kill(was, syscall.SIGUSR2); err != nil {
			t.Fatal(err)
		}
		inTime(t, "SIGUSR2 upgrades", func() bool { return u.status().PID != was })
		inTime(t, "the old director ends", func() bool { return !alive(was) })
	}
	both := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := u.api.Upgrade(t.Context(), false)
			both <- err
		}()
	}
	for range 2 {
		if err := <-both; err != nil && !strings.Contains(err.Error(), "an upgrade is under way") {
			t.Errorf("two upgrades at once: %v", err)
		}
	}
	close(stop)
	edits := <-ended
	t.Logf("%d edits during the upgrades", edits)
	u.write(strings.Replace(string(text), "weight: 2}", "weight: 77}", 1))
	if _, err := u.api.Upgrade(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	inTime(t, "the new program loads the file", func() bool {
		report, err := u.api.Reload(t.Context(), true)
		return err == nil && len(report.Steps) == 0
	})
	u.stop()
}
