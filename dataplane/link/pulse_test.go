package link_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pktdirector/dataplane"
	"pktdirector/dataplane/link"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// sticky is a link that stops answering when told to.
type sticky struct {
	dataplane.Link
	read, info atomic.Pointer[chan struct{}] // what the next call waits for; nil: nothing
}

func wait(until *atomic.Pointer[chan struct{}]) {
	if c := until.Load(); c != nil {
		<-*c
	}
}

func (s *sticky) Info() dataplane.LinkInfo {
	wait(&s.info)
	return s.Link.Info()
}

func (s *sticky) Readers() []dataplane.Reader {
	return []dataplane.Reader{&stickyReader{s.Link.Readers()[0], s}}
}

type stickyReader struct {
	dataplane.Reader
	of *sticky
}

func (r *stickyReader) Read(batch []*packet.Packet) (int, error) {
	wait(&r.of.read)
	return r.Reader.Read(batch)
}

func TestPulse(t *testing.T) {
	for name, c := range map[string]struct {
		stick func(*sticky, *chan struct{})
		want  []string // nil: all is well
	}{
		"an idle director is alive":               {func(*sticky, *chan struct{}) {}, nil},
		"a queue that is not read any more":       {func(s *sticky, c *chan struct{}) { s.read.Store(c) }, []string{"receive queue 0 of back stand still"}},
		"timers that do not run any more":         {func(s *sticky, c *chan struct{}) { s.info.Store(c) }, []string{"the engine's timers stand still"}},
		"a queue that ended is no fault":          {func(s *sticky, _ *chan struct{}) { s.Close() }, nil},
		"all of it: each is named, not the front": {func(s *sticky, c *chan struct{}) { s.read.Store(c); s.info.Store(c) }, []string{"receive queue 0 of back stand still", "the engine's timers stand still"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				front, back, _, _ := pipes(link.PipeOptions{})
				slow := &sticky{Link: back}
				var pulse link.Pulse
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error)
				links := pulse.Links([]dataplane.Link{front, slow})
				go func() { done <- link.Run(ctx, newDirector(t, lvs.Route, 0, 1), links, nil) }()
				for range 3 {
					time.Sleep(time.Second)
					if err := pulse.Check(); err != nil {
						t.Errorf("a director at work: %v", err)
					}
				}
				loose := make(chan struct{})
				c.stick(slow, &loose)
				time.Sleep(time.Second)
				pulse.Check() // what moved before it stuck is seen now
				time.Sleep(time.Second)
				err := pulse.Check()
				if (err == nil) != (c.want == nil) {
					t.Errorf("%v, want %q", err, c.want)
				}
				for _, w := range c.want {
					if !strings.Contains(err.Error(), w) || strings.Contains(err.Error(), "front") {
						t.Errorf("%v, want %q", err, w)
					}
				}
				close(loose)
				time.Sleep(time.Second)
				if err := pulse.Check(); err != nil {
					t.Errorf("after it went on: %v", err)
				}
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A director that never began is not alive, however often it is asked.
func TestPulseOfNothing(t *testing.T) {
	front, _, _, _ := pipes(link.PipeOptions{})
	var pulse link.Pulse
	pulse.Links([]dataplane.Link{front})
	_ = pulse.Check()
	if pulse.Check() == nil {
		t.Error("nobody runs, and all is said to be well")
	}
}
