package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pktdirector/capture"
	"pktdirector/control"
	"pktdirector/testbed"
	"pktdirector/testbed/nstest"
)

// TestWatchingALab: trace, explain and capture of a director that balances real traffic by
// each method. tshark reads the captured file, and replay finds nothing wrong in it.
func TestWatchingALab(t *testing.T) {
	for _, name := range []string{"nat", "dr", "tun"} {
		t.Run(name, func(t *testing.T) {
			top := topology(t, name)
			l := lab(t, top, testbed.AFPacket, nil)
			client, director := top.With(testbed.Client)[0].Name, top.With(testbed.Director)[0].Name
			file := filepath.Join(t.TempDir(), "out.pcapng")
			target := top.Target(top.HTTP)

			// A capture has no end of its own: traffic goes on until trace saw enough, and
			// then the capture is interrupted.
			capturing := exec.Command(program(t), "capture", "-w", file, "host", top.VIP.String(), "or", "net", "10.0.0.0/8", "or", "arp")
			var said strings.Builder
			capturing.Stderr = &said
			if err := l.Start(director, capturing); err != nil {
				t.Fatal(err)
			}
			for { // from when the file is there, every packet is captured
				if _, err := os.Stat(file); err == nil {
					break
				}
				time.Sleep(time.Millisecond)
			}
			var traced string
			var tracing sync.WaitGroup
			tracing.Go(func() {
				out, err := l.Output(t.Context(), director, "trace", "--json", "--count", "12", "tcp", "port", fmt.Sprint(top.HTTP.Port))
				if err != nil {
					t.Errorf("trace: %v\n%s", err, out)
				}
				traced = out
			})
			done := make(chan struct{})
			go func() { tracing.Wait(); close(done) }()
			for more := true; more; {
				select {
				case <-done:
					more = false
				default:
				}
				if out, err := l.Output(t.Context(), client, "lab", "client", "open", target, "-n", "6"); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
			}
			if err := capturing.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			if err := capturing.Wait(); err != nil || !strings.Contains(said.String(), "\n0 packets lost") {
				t.Errorf("capture: %v, %s", err, said.String())
			}

			var picked *control.Decision
			for line := range strings.Lines(traced) {
				var e control.Event
				if err := json.Unmarshal([]byte(line), &e); err != nil {
					t.Fatalf("%v: %s", err, line)
				}
				if e.Decision != nil {
					picked = e.Decision
				}
			}
			if picked == nil || picked.Picked == "" || len(picked.Candidates) < 2 {
				t.Fatalf("no decision was traced:\n%s", traced)
			}
			ends := []string{fmt.Sprintf("%s:%d", picked.Flow.Source, picked.Flow.SourcePort), fmt.Sprintf("%s:%d", picked.Flow.Destination, picked.Flow.DestinationPort)}
			story, code := exitCode(t, l, director, append([]string{"explain"}, ends...)...)
			for _, want := range []string{fmt.Sprintf("decision %d: ", picked.ID), "-> ESTABLISHED", "* "} {
				if code != 0 || !strings.Contains(story, want) {
					t.Errorf("explain: exit code %d, no %q in\n%s", code, want, story)
				}
			}
			if out, code := exitCode(t, l, director, "explain", "--would", strings.Replace(ends[0], fmt.Sprint(picked.Flow.SourcePort), "9", 1), ends[1]); code != 0 || !strings.Contains(out, "verdict forwarded") || !strings.Contains(out, "next hop ") {
				t.Errorf("explain --would: exit code %d\n%s", code, out)
			}

			came, left := map[uint64]bool{}, 0
			all := readCapture(t, "", file)
			var comments []string
			for i := range all {
				r := &all[i]
				comments = append(comments, r.Comments...)
				switch {
				case r.PacketID == 0:
				case r.Direction == capture.Incoming:
					came[r.PacketID] = true
				case came[r.PacketID]:
					left++
				}
			}
			text := strings.Join(comments, "\n")
			want := map[string]string{"nat": "rewritten: destination " + ends[1] + " -> ", "dr": "rewritten: TTL ", "tun": "rewritten: put into a tunnel ("}[name]
			for _, want := range []string{want, "decision ", "state NONE -> SYN_RECV", "-> ESTABLISHED"} {
				if left < 10 || !strings.Contains(text, want) {
					t.Errorf("%d packets left; no %q in the comments of %d packets:\n%.3000s", left, want, len(all), text)
				}
			}
			tshark, err := exec.LookPath("tshark")
			if err != nil {
				nstest.Require(t, "tshark is missing: apt-get install tshark")
			}
			out, err := exec.Command(tshark, "-n", "-r", file, "-T", "fields", "-e", "frame.number", "-e", "frame.interface_name", "-e", "frame.comment").Output()
			if err != nil || strings.Count(string(out), "\n") != len(all) || !strings.Contains(string(out), "state NONE -> SYN_RECV") {
				t.Errorf("tshark: %v, %d of %d packets\n%.2000s", err, strings.Count(string(out), "\n"), len(all), out)
			}
			// What was captured, played to a director of the same configuration: the same
			// picks, and nothing is wrong.
			if out, code := exitCode(t, l, director, "replay", file, "-c", testbed.DirectorConfig); code != 0 || !strings.Contains(out, "nothing is wrong") {
				t.Errorf("replay: exit code %d\n%.3000s", code, out)
			}
		})
	}
}
