package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"pktdirector/dataplane"
	"pktdirector/packet"
)

// batchSize is how many packets a reader takes at once.
const batchSize = 64

// tickEvery is how often the engine's timers run; it asks for 50 ms at least.
const tickEvery = 25 * time.Millisecond

// Run moves packets between the links and the director until ctx ends, every
// link is closed, or every link has come to its end, as a capture file does:
// then it returns nil. It returns the first error of a link otherwise. The
// index of a link in links is what packets name it by.
//
// Each receive queue has one goroutine that owns a batch from read to write,
// and one more runs the engine's timers. All have ended when Run returns. The
// links stay open; closing them is the caller's.
func Run(ctx context.Context, d *dataplane.Director, links []dataplane.Link, log *slog.Logger) error {
	return RunWatched(ctx, d, links, log, time.Now(), nil)
}

func (r *runner) run(ctx context.Context) error {
	r.tellLinks()
	reading, fail := context.WithCancel(ctx)
	defer fail()
	ticking, stop := context.WithCancel(ctx)
	defer stop()

	var readers, ticker sync.WaitGroup
	var first error
	var once sync.Once
	for i, queues := range r.queues() {
		for _, q := range queues {
			readers.Go(func() {
				if err := r.read(reading, i, q); err != nil {
					once.Do(func() { first = err })
					fail()
				}
			})
		}
	}
	ticker.Go(func() { r.tick(ticking) })
	readers.Wait()
	stop()
	ticker.Wait()
	return first
}

// runner is what the goroutines of one Run share.
type runner struct {
	director *dataplane.Director
	links    []dataplane.Link
	log      *slog.Logger
	begin    time.Time
	infos    []dataplane.LinkInfo // what the engine knows; the ticker's after the start
	watch    func(*dataplane.Worker)
	readers  [][]dataplane.Reader // by link; those of the first run
	moving   chan struct{}        // closed when the timers have run once
	moved    sync.Once
}

// queues are the links' receive queues, the same each time.
func (r *runner) queues() [][]dataplane.Reader {
	if r.readers == nil {
		r.readers = make([][]dataplane.Reader, len(r.links))
		for i, l := range r.links {
			r.readers[i] = l.Readers()
		}
	}
	return r.readers
}

// now is the engine's clock.
func (r *runner) now() time.Duration { return time.Since(r.begin) }

// tellLinks tells the engine what the links are like, when that changed.
func (r *runner) tellLinks() {
	infos := make([]dataplane.LinkInfo, len(r.links))
	for i, l := range r.links {
		infos[i] = l.Info()
	}
	if !slices.Equal(infos, r.infos) {
		r.director.SetLinks(infos)
		r.infos = infos
	}
}

// read runs one receive queue.
func (r *runner) read(ctx context.Context, index int, q dataplane.Reader) error {
	defer q.Read(nil) // gives the last packets' memory back
	s := newStation(r)
	batch := make([]*packet.Packet, batchSize)
	for i := range batch {
		batch[i] = new(packet.Packet)
	}
	for ctx.Err() == nil {
		n, err := q.Read(batch)
		switch {
		case err == nil:
		case errors.Is(err, net.ErrClosed), errors.Is(err, io.EOF):
			r.log.Debug("a link's queue ended", "link", r.links[index].Info().Name, "reason", err)
			return nil
		default:
			return fmt.Errorf("link %s stopped receiving: %w", r.links[index].Info().Name, err)
		}
		if n == 0 {
			continue
		}
		for _, p := range batch[:n] {
			p.Link = index
		}
		s.send(s.worker.Process(batch[:n], r.now()))
		s.tell()
	}
	return nil
}

// tick runs the engine's timers and follows changes of the links.
func (r *runner) tick(ctx context.Context) {
	s := newStation(r)
	var full fullness
	var short shortage
	var back bounces
	t := time.NewTicker(tickEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			r.tellLinks()
			r.tellFull(&full)
			r.tellExhausted(&short)
			r.tellBounced(&back)
			s.send(s.worker.Tick(r.now()))
			s.tell()
			r.moved.Do(func() { close(r.moving) })
		}
	}
}

// noticeEvery is the least time between two lines in the log about one
// shortage: a full connection table, or source ports that ran out.
const noticeEvery = 10 * time.Second

// fullness is what the log has been told of a full connection table.
type fullness struct {
	at               time.Duration
	refused, evicted uint64
}

// tellFull logs that the connection table is full, not more often than every
// noticeEvery.
func (r *runner) tellFull(told *fullness) {
	now := r.now()
	if told.at > 0 && now-told.at < noticeEvery {
		return
	}
	table, refused := r.director.Table(), r.director.Count(dataplane.TableFull)
	if refused == told.refused && table.Evicted == told.evicted {
		return
	}
	r.log.Warn("the connection table is full: half-open entries make way, or new connections are refused",
		"conn_max", table.Max, "refused", refused-told.refused, "evicted", table.Evicted-told.evicted)
	*told = fullness{at: now, refused: refused, evicted: table.Evicted}
}

// station is one goroutine's way through the engine: a worker, and a writer
// to each link.
type station struct {
	worker  *dataplane.Worker
	writers []dataplane.Writer
	sorted  [][]*packet.Packet // by link
	watch   func(*dataplane.Worker)
}

func newStation(r *runner) *station {
	s := &station{worker: r.director.NewWorker(), sorted: make([][]*packet.Packet, len(r.links)), watch: r.watch}
	for _, l := range r.links {
		s.writers = append(s.writers, l.NewWriter())
	}
	return s
}

// send hands packets to the links they leave by.
func (s *station) send(out []*packet.Packet) {
	if len(out) == 0 {
		return
	}
	for i := range s.sorted {
		s.sorted[i] = s.sorted[i][:0]
	}
	for _, p := range out {
		s.sorted[p.Link] = append(s.sorted[p.Link], p)
	}
	for i, batch := range s.sorted {
		if len(batch) == 0 {
			continue
		}
		s.writers[i].Write(batch)
		for _, p := range batch {
			if !p.Sent {
				s.worker.Unsent(p)
			}
		}
	}
}
