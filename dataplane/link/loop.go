package link

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"pktdirector/dataplane"
)

// Loop moves packets between links and a director, as Run does, and can rest in
// between.
type Loop struct {
	runner *runner
	rests  chan *rest
	ended  chan struct{} // closed when Run returns
}

// rest is a time in which nothing moves.
type rest struct {
	begun, over chan struct{}
}

// NewLoop returns what moves packets for an engine whose time was 0 at begin. watch may
// be nil: see RunWatched.
func NewLoop(d *dataplane.Director, links []dataplane.Link, log *slog.Logger, begin time.Time, watch func(*dataplane.Worker)) *Loop {
	return &Loop{
		runner: &runner{director: d, links: links, log: logger(log), begin: begin, watch: watch, moving: make(chan struct{})},
		rests:  make(chan *rest), ended: make(chan struct{}),
	}
}

// Run is like the function Run. Call it once.
func (l *Loop) Run(ctx context.Context) error {
	defer close(l.ended)
	for {
		moving, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- l.runner.run(moving) }()
		select {
		case err := <-done:
			stop()
			return err
		case r := <-l.rests:
			stop()
			if err := <-done; err != nil {
				return err
			}
			close(r.begun)
			select {
			case <-r.over:
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// Moving is closed when the loop has begun: its queues are read and the engine's timers
// have run.
func (l *Loop) Moving() <-chan struct{} { return l.runner.moving }

// Rest has each goroutine finish its batch and stop, so that the engine and the links
// stand still, and what arrives waits in the links' queues. It returns the engine's
// time, which is after that of every packet. goOn ends the rest; call it once.
func (l *Loop) Rest(ctx context.Context) (now time.Duration, goOn func(), err error) {
	r := &rest{begun: make(chan struct{}), over: make(chan struct{})}
	select {
	case l.rests <- r:
	case <-l.ended:
		return 0, nil, errEnded
	case <-ctx.Done():
		return 0, nil, context.Cause(ctx)
	}
	select { // soon: a queue waits for packets no longer than idle
	case <-r.begun:
		return l.runner.now(), func() { close(r.over) }, nil
	case <-l.ended:
		return 0, nil, errEnded
	}
}

// errEnded says that there is nothing to rest any more.
var errEnded = errors.New("the links are not read any more")
