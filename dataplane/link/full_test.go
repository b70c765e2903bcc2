package link_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pktdirector/dataplane"
	"pktdirector/dataplane/link"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// floodLog runs the director for 30 s in which a client opens 600 connections, and
// returns what it logs.
func floodLog(t *testing.T, d *dataplane.Director) string {
	t.Helper()
	front, back, client, _ := pipes(link.PipeOptions{})
	var text bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- link.Run(ctx, d, []dataplane.Link{front, back}, slog.New(slog.NewTextHandler(&text, nil)))
	}()
	for i := range 600 {
		syn := packettest.Build(t, packettest.Spec{Src: fmt.Sprint(testClient, ":", 20000+i), Dst: testVIP + ":80", Flags: packet.SYN})
		toDirector(client, frontInfo.MAC, syn)
		time.Sleep(50 * time.Millisecond)
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// A full connection table is told in the log, once in ten seconds however many
// packets meet it.
func TestAFullTableIsToldWithMeasure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDirector(t, lvs.Route, 0, 1)
		if err := d.SetTunable("conn_max", "2"); err != nil {
			t.Fatal(err)
		}
		text := floodLog(t, d)
		lines := strings.Count(text, "the connection table is full")
		if lines < 2 || lines > 4 {
			t.Errorf("in 30 s of flood %d lines, want one in 10 s:\n%s", lines, text)
		}
		if !strings.Contains(text, "conn_max=2 refused=0 evicted=") {
			t.Errorf("the line does not say how full:\n%s", text)
		}
	})
}
