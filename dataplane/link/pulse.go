package link

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"pktdirector/dataplane"
	"pktdirector/packet"
)

// Pulse tells whether Run's goroutines are at work: that each receive queue is
// read again and again, and that the engine's timers run. Its zero value is ready.
type Pulse struct {
	mu    sync.Mutex
	parts []*beat
}

// beat is one goroutine's part of a Pulse.
type beat struct {
	name  string
	count atomic.Uint64
	ended atomic.Bool
	seen  uint64   // guarded by Pulse.mu
	_     [64]byte // queues count side by side
}

// unseen is a count that is never reached.
const unseen = math.MaxUint64

func (p *Pulse) add(name string) *beat {
	b := &beat{name: name, seen: unseen}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parts = append(p.parts, b)
	return b
}

// Links returns links for Run to work with, whose use by Run p notices.
func (p *Pulse) Links(links []dataplane.Link) []dataplane.Link {
	felt := make([]dataplane.Link, len(links))
	for i, l := range links {
		felt[i] = &feltLink{Link: l, pulse: p, timers: new(beat)}
	}
	if len(links) > 0 { // Run's timers look at each link: one tells enough
		felt[0].(*feltLink).timers = p.add("the engine's timers")
	}
	return felt
}

// Check returns nil if all have gone on since the Check before, the first time
// nil. It names those that have not. Leave at least a second between two.
func (p *Pulse) Check() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, b := range p.parts {
		now := b.count.Load()
		if now == b.seen && !b.ended.Load() {
			errs = append(errs, fmt.Errorf("%s stand still", b.name))
		}
		b.seen = now
	}
	return errors.Join(errs...)
}

// feltLink is a link whose use is noticed.
type feltLink struct {
	dataplane.Link
	pulse  *Pulse
	timers *beat
}

// Info implements dataplane.Link. Run's timers ask for it each time.
func (l *feltLink) Info() dataplane.LinkInfo {
	l.timers.count.Add(1)
	return l.Link.Info()
}

// Readers implements dataplane.Link.
func (l *feltLink) Readers() []dataplane.Reader {
	readers := l.Link.Readers()
	felt := make([]dataplane.Reader, len(readers))
	for i, r := range readers {
		felt[i] = &feltReader{Reader: r, beat: l.pulse.add(fmt.Sprintf("the packets of receive queue %d of %s", i, l.Link.Info().Name))}
	}
	return felt
}

// feltReader is a receive queue whose use is noticed.
type feltReader struct {
	dataplane.Reader
	beat *beat
}

// Read implements dataplane.Reader.
func (r *feltReader) Read(batch []*packet.Packet) (int, error) {
	r.beat.count.Add(1)
	n, err := r.Reader.Read(batch)
	if err != nil {
		r.beat.ended.Store(true) // Run tells why
	}
	return n, err
}
