package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"pktdirector/control"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// command runs one of the program's commands.
func command(ctx context.Context, args ...string) (out, said string, err error) {
	var o, e bytes.Buffer
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(&o)
	root.SetErr(&e)
	err = root.ExecuteContext(ctx)
	return o.String(), e.String(), err
}

// exitOf is the exit code that an error leads to.
func exitOf(err error) int {
	code, is := err.(exitError)
	switch {
	case err == nil:
		return 0
	case is:
		return code.code
	}
	return exitUsage
}

// traced runs trace beside what do does once the director knows of it.
func traced(t *testing.T, shown *source, socket string, do func(), args ...string) (out, said string, err error) {
	t.Helper()
	var wg sync.WaitGroup
	wg.Go(func() {
		out, said, err = command(t.Context(), append([]string{"trace", "--control", socket}, args...)...)
	})
	for shown.events.Wanted() == 0 {
		time.Sleep(time.Millisecond)
	}
	do()
	wg.Wait()
	for shown.events.Wanted() != 0 {
		time.Sleep(time.Millisecond)
	}
	return out, said, err
}

func TestTraceTellsALineAnEvent(t *testing.T) {
	_, shown, socket := newAPI(t)
	w, port := shown.director.NewWorker(), 2000
	packets := func() {
		var in []*packet.Packet
		for _, to := range []string{"192.0.2.10:80", "192.0.2.10:81"} {
			port++
			in = append(in, packettest.Build(t, packettest.Spec{Src: fmt.Sprintf("198.51.100.7:%d", port), Dst: to, Flags: packet.SYN}))
		}
		w.Process(in, time.Duration(port)*time.Millisecond)
		publish(shown.events, w)
	}
	out, said, err := traced(t, shown, socket, packets, "--count", "4")
	if err != nil || said != "4 events, 0 more were lost on the way\n" || strings.Count(out, "\n") != 4 {
		t.Errorf("%v, %s\n%s", err, said, out)
	}
	for _, want := range []string{
		" decision ", "tcp-192.0.2.10-80, found by address and port, gives it to 10.2.0.", "(weight 1, ActiveConn 0, InActConn 0", "; not to 10.2.0.",
		" state    TCP 198.51.100.7:", "-> 192.0.2.10:80, server 10.2.0.", "began: SYN_RECV, by a request\n",
		" drop     TCP 198.51.100.7:", " -> 192.0.2.10:81 [S] 40 bytes: no_service: no virtual service on this port of the VIP: refused. What to do: Someone probes the VIP",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	out, _, err = traced(t, shown, socket, packets, "--count", "1", "--verdict", "no_service", "--json", "dst", "port", "81", "or", "82")
	var e control.Event
	if wrong := json.Unmarshal([]byte(out), &e); err != nil || wrong != nil || e.Drop == nil || e.Drop.Verdict != "no_service" || e.Drop.Advice == "" {
		t.Errorf("%v, %v: %s", err, wrong, out)
	}
}

func TestTraceThatCannotBe(t *testing.T) {
	_, _, socket := newAPI(t)
	for line, want := range map[string]struct {
		code int
		text string
	}{
		"--kind weather":                 {exitUsage, `--kind: "weather"`},
		"--filter tcp port":              {exitUsage, "give it once"},
		"port http":                      {exitUsage, `at byte 6, "http": no port`},
		"--verdict no_weather":           {exitFailed, `?verdict: "no_weather" is no verdict: one of`},
		"--control /nowhere --kind drop": {exitFailed, "no director listens at /nowhere"},
	} {
		args := strings.Fields("trace --control " + socket + " " + line)
		_, _, err := command(t.Context(), args...)
		if err == nil || exitOf(err) != want.code || !strings.Contains(err.Error(), want.text) {
			t.Errorf("%s: exit code %d, %v; want %d, %s", line, exitOf(err), err, want.code, want.text)
		}
	}
}

// TestTraceEndsByCtrlC, which is no error.
func TestTraceEndsByCtrlC(t *testing.T) {
	_, shown, socket := newAPI(t)
	ctx, interrupt := context.WithCancel(t.Context())
	go func() {
		for shown.events.Wanted() == 0 {
			time.Sleep(time.Millisecond)
		}
		interrupt()
	}()
	if _, said, err := command(ctx, "trace", "--control", socket); err != nil || said != "0 events, 0 more were lost on the way\n" {
		t.Errorf("%v, %q", err, said)
	}
}
