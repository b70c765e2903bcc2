package main

import (
	"bytes"
	"context"
	"log/slog"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"pktdirector/control"
)

// onlyStatus is a source that only has a status.
type onlyStatus struct {
	control.Source
	status control.Status
}

func (s onlyStatus) Status() control.Status { return s.status }

// statusSocket serves a status until the test ends, and returns its socket.
func statusSocket(t *testing.T) string {
	t.Helper()
	to := func(addrs ...string) (all []control.Destination) {
		for _, a := range addrs {
			all = append(all, control.Destination{Address: a, Port: 8080})
		}
		return all
	}
	path := filepath.Join(t.TempDir(), "s.sock")
	s, err := control.Listen(path, onlyStatus{status: control.Status{Services: []control.Service{
		{Protocol: "TCP", VIP: "192.0.2.10", Port: 80, Destinations: to("10.2.0.2", "10.2.0.1")},
		{Protocol: "TCP", VIP: "2001:db8::10", Port: 443, Destinations: to("2001:db8:2::1")},
		{Protocol: "UDP", VIP: "192.0.2.10", Port: 53, Destinations: to("10.2.0.1")},
		{Protocol: "FWM", Mark: 7, Destinations: to("10.2.0.9")},
	}}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return path
}

// completions is what a shell would offer for the last of the words.
func completions(t *testing.T, words ...string) []string {
	t.Helper()
	root := newRootCommand()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&bytes.Buffer{})
	root.SetArgs(append([]string{cobra.ShellCompNoDescRequestCmd}, words...))
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	return lines[:len(lines)-1] // the last says what else a shell may offer
}

func TestCompletionOfARunningDirector(t *testing.T) {
	t.Setenv("PKTDIRECTOR_CONTROL", statusSocket(t))
	for _, c := range []struct {
		words []string
		want  []string
	}{
		{[]string{"ipvsadm", "-a", "-t", ""}, []string{"192.0.2.10:80", "[2001:db8::10]:443"}},
		{[]string{"ipvsadm", "--add-server", "--udp-service", ""}, []string{"192.0.2.10:53"}},
		{[]string{"ipvsadm", "-D", "-f", ""}, []string{"7"}},
		{[]string{"ipvsadm", "-e", "-t", "192.0.2.10:80", "-r", ""}, []string{"10.2.0.1:8080", "10.2.0.2:8080"}},
		{[]string{"ipvsadm", "-e", "-f", "7", "--real-server", ""}, []string{"10.2.0.9:8080"}},
		{[]string{"ipvsadm", "-A", "-t", "192.0.2.99:80", "-s", ""}, []string{"dh", "fo", "lblc", "lblcr", "lc", "mh", "none", "nq", "ovf", "rr", "sed", "sh", "twos", "wlc", "wrr"}},
		{[]string{"ipvsadm", "-e", "-w", ""}, nil},
		{[]string{"list", "--service", ""}, []string{"fwm-7", "tcp-192.0.2.10-80", "tcp-2001:db8::10-443", "udp-192.0.2.10-53"}},
		{[]string{"list", "--server", ""}, []string{"10.2.0.1:8080", "10.2.0.2:8080", "10.2.0.9:8080", "[2001:db8:2::1]:8080"}},
		{[]string{"completion", ""}, []string{"bash", "zsh", "fish"}},
	} {
		got := completions(t, c.words...)
		if !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.words, got, c.want)
		}
		for _, id := range got {
			if _, err := control.ParseServiceID(id); err != nil && c.words[len(c.words)-2] == "--service" {
				t.Error(err)
			}
		}
	}
}

// Without a director nothing is offered, and nobody waits.
func TestCompletionWithoutADirector(t *testing.T) {
	for _, socket := range []string{filepath.Join(t.TempDir(), "none.sock"), "https://192.0.2.1:443"} {
		t.Setenv("PKTDIRECTOR_CONTROL", socket)
		if got := completions(t, "ipvsadm", "-a", "-t", ""); len(got) != 0 {
			t.Errorf("%s: %q", socket, got)
		}
	}
}

func TestCompletionScripts(t *testing.T) {
	for shell, check := range map[string][]string{"bash": {"bash", "-n"}, "zsh": {"zsh", "-n"}, "fish": {"fish", "--no-execute"}} {
		root := newRootCommand()
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetArgs([]string{"completion", shell})
		if err := root.Execute(); err != nil || !strings.Contains(out.String(), "pktdirector") {
			t.Errorf("%s: %v, %d bytes", shell, err, out.Len())
		}
		if path, err := exec.LookPath(check[0]); err == nil {
			c := exec.Command(path, check[1:]...)
			c.Stdin = &out
			if said, err := c.CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s", shell, err, said)
			}
		}
	}
}
