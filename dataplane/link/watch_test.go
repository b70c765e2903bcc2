package link_test

import (
	"context"
	"testing"
	"time"

	"pktdirector/dataplane"
	"pktdirector/dataplane/link"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// TestRunWatchedTellsOfRecords: from the moment at which something is observed.
func TestRunWatchedTellsOfRecords(t *testing.T) {
	front, back, client, _ := pipes(link.PipeOptions{})
	d := newDirector(t, lvs.Route, 0, 1)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	told := make(chan packet.Flow, 10)
	done := make(chan error, 1)
	go func() {
		done <- link.RunWatched(ctx, d, []dataplane.Link{front, back}, nil, time.Now(), func(w *dataplane.Worker) {
			for _, x := range w.Decisions {
				told <- x.Flow
			}
		})
	}()
	send := func(port string) {
		toDirector(client, frontInfo.MAC, packettest.Build(t, packettest.Spec{Src: testClient + port, Dst: testVIP + ":80", Flags: packet.SYN}))
	}
	send(":1")
	for d.Count(dataplane.Forwarded) == 0 {
		arrived(t, client) // gives the loop time
	}
	d.Observe(dataplane.ObserveDecisions)
	send(":2")
	if f := <-told; f.SrcPort != 2 {
		t.Errorf("told of %v", f)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
