package link_test

import (
	"bytes"
	"context"
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

// Field case 35: a request that comes from the machine that direct routing sends
// it to is told in the log within a second.
func TestPacketsThatBounceAreToldWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDirector(t, lvs.Route, 0, 1)
		front, back, _, server := pipes(link.PipeOptions{})
		var text bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- link.Run(ctx, d, []dataplane.Link{front, back}, slog.New(slog.NewTextHandler(&text, nil)))
		}()
		time.Sleep(100 * time.Millisecond)
		toDirector(server, backInfo.MAC, packettest.Build(t, packettest.Spec{Src: testClient + ":20000", Dst: testVIP + ":80", Flags: packet.SYN}))
		time.Sleep(time.Second)
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if n := d.Bounced(); n != 1 {
			t.Errorf("%d packets bounced, want 1", n)
		}
		if lines := strings.Count(text.String(), "it is a director itself"); lines != 1 || !strings.Contains(text.String(), "packets=1") {
			t.Errorf("%d lines, want one:\n%s", lines, text.String())
		}
	})
}
