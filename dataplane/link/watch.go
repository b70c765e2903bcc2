package link

import (
	"context"
	"log/slog"
	"time"

	"pktdirector/dataplane"
)

// RunWatched is Run of an engine whose time was 0 at begin: in the past, where it goes
// on from an image. watch is told of what workers keep records of (see
// dataplane.Director.Observe), after each batch of which there are some. Several
// goroutines call it, which forward nothing meanwhile; a worker is its for the call.
func RunWatched(ctx context.Context, d *dataplane.Director, links []dataplane.Link, log *slog.Logger, begin time.Time, watch func(*dataplane.Worker)) error {
	return NewLoop(d, links, log, begin, watch).Run(ctx)
}

// tell hands over the records of a batch.
func (s *station) tell() {
	if s.watch != nil && s.worker.Records() {
		s.watch(s.worker)
	}
}
