package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"pktdirector/control"
	"pktdirector/host"
	"pktdirector/image"
)

// resume returns an engine that goes on from the last snapshot, or, where there is
// none, where it cannot be used, or where fresh says so, one that begins as the
// configuration says.
func resume(c *control.Config, fresh bool, log *slog.Logger) (*begun, error) {
	memory := host.Memory()
	path, most := snapshotFile(c), connMax(memory)
	if path == "" || fresh {
		return begin(c, most)
	}
	b, err := restoreFile(path, int64(memory/2), c, most)
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist):
		return begin(c, most)
	case errors.As(err, new(unusable)):
		to, asideErr := setAside(path, time.Now())
		if asideErr != nil {
			to = "where it is: " + asideErr.Error()
		}
		log.Error("the snapshot cannot be used, none of it: the director begins as the configuration says", "snapshot", path, "error", err, "kept", to)
		return begin(c, most)
	default:
		return nil, err
	}
	tundev := func(l control.Link) bool { return l.Type == control.Tundev }
	if b.director.Standby() && slices.ContainsFunc(c.Links, tundev) {
		b.director.SetStandby(false)
		b.remarks = append(b.remarks, "a director with a tundev cannot stand by, as it did before")
	}
	table := b.director.Table()
	log.Info("goes on from a snapshot", "snapshot", path, "age", b.passed.Round(time.Millisecond), "connections", table.Connections, "templates", table.Templates, "left out", b.leftOut)
	b.tell(log)
	b.restored = &control.Restored{Age: b.passed.Seconds(), Connections: table.Connections, Templates: table.Templates}
	return b, nil
}

// snapshotFile returns where a director's snapshot is kept; nowhere: "".
func snapshotFile(c *control.Config) string {
	folder, _, _ := strings.Cut(os.Getenv("STATE_DIRECTORY"), ":") // systemd.exec(5)
	return c.SnapshotFile(folder)
}

// restoreFile is restore of the snapshot at path, of at most size bytes.
func restoreFile(path string, size int64, c *control.Config, connMax int) (*begun, error) {
	data, err := readSnapshot(path, uint32(os.Geteuid()), size)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err != nil {
		return nil, unusable{err}
	}
	parts, err := image.Parts(data)
	if err != nil {
		return nil, unusable{err}
	}
	return restore(parts, c, connMax)
}

// tell logs what is worth it of an engine that was restored.
func (b *begun) tell(log *slog.Logger) {
	for _, r := range b.remarks {
		log.Warn(r)
	}
	for _, d := range b.drift {
		log.Warn("changed by hand: " + d.String())
	}
	for _, s := range b.steps {
		log.Info("the configuration says otherwise than when the snapshot was made: " + s.String())
	}
}

// Between snapshots is more time than the configuration says where one takes long: the
// rest is snapshotRest times as long. Where rules were changed it is less, but time for
// others to follow.
const (
	snapshotRest    = 20
	snapshotSettles = 500 * time.Millisecond
)

// snapshots writes, while a director is at work, what the next start goes on from.
type snapshots struct {
	file    string
	every   time.Duration
	shown   *source
	reloads *reloader
	admin   *administration
	log     *slog.Logger
	changes chan struct{} // rules were changed

	busy sync.Mutex // held while one is written, or none may be; taken before all others

	mu    sync.Mutex
	state control.SnapshotState
	abort context.CancelFunc // of the one that is written
	given bool               // it was told to give up
}

// newSnapshots returns the snapshots of a director; nil: none are to be kept.
func newSnapshots(c *control.Config, b *begun, shown *source, admin *administration, reloads *reloader, log *slog.Logger) *snapshots {
	file := snapshotFile(c)
	if file == "" {
		return nil
	}
	s := &snapshots{file: file, every: c.SnapshotEvery(), shown: shown, reloads: reloads, admin: admin, log: log, changes: make(chan struct{}, 1)}
	s.state = control.SnapshotState{File: file, Restored: b.restored}
	admin.changed = s.changed
	return s
}

// changed tells that rules were changed.
func (s *snapshots) changed() {
	select {
	case s.changes <- struct{}{}:
	default:
	}
}

// State returns what is known of the snapshots; nil where there are none.
func (s *snapshots) State() *control.SnapshotState {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.state
	return &state
}

// pause gives up a snapshot that is being written and keeps others from being begun, until
// release is called.
func (s *snapshots) pause() (release func()) {
	if s == nil {
		return func() {}
	}
	s.mu.Lock()
	if s.abort != nil {
		s.abort()
		s.given = true
	}
	s.mu.Unlock()
	s.busy.Lock()
	return s.busy.Unlock
}

// run writes snapshots until ctx ends.
func (s *snapshots) run(ctx context.Context) error {
	p := pace{every: s.every, due: time.Now().Add(s.every)}
	timer := time.NewTimer(s.every)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.changes:
			p.changed(time.Now())
		case <-timer.C:
			began := time.Now()
			s.write(ctx)
			p.wrote(began, time.Now())
		}
		timer.Reset(time.Until(p.due))
	}
}

// pace says when the next snapshot is due.
type pace struct {
	every         time.Duration
	due, earliest time.Time
}

// wrote notes a snapshot.
func (p *pace) wrote(began, ended time.Time) {
	p.earliest = ended.Add(snapshotRest * ended.Sub(began))
	p.due = began.Add(p.every)
	if p.due.Before(p.earliest) {
		p.due = p.earliest
	}
}

// changed notes that rules were changed.
func (p *pace) changed(now time.Time) {
	soon := now.Add(snapshotSettles)
	if soon.Before(p.earliest) {
		soon = p.earliest
	}
	if soon.Before(p.due) {
		p.due = soon
	}
}

// write writes a snapshot. That it cannot is logged when it begins and when it ends.
func (s *snapshots) write(ctx context.Context) {
	s.busy.Lock()
	defer s.busy.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.mu.Lock()
	s.abort, s.given = cancel, false
	s.mu.Unlock()
	began := time.Now()
	size, err := s.replace(ctx)
	if ctx.Err() != nil || errors.As(err, new(*control.Problem)) {
		return // the last one is about to be written, or it is a successor's to do
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		if s.state.Failures++; s.state.Error == "" {
			s.log.Error("the snapshot cannot be written: the director would start from an older one, or none", "snapshot", s.file, "error", err)
		}
		s.state.Error = err.Error()
		return
	}
	if s.state.Error != "" {
		s.log.Info("the snapshot is written again", "snapshot", s.file)
	}
	s.state.Error, s.state.Written, s.state.Bytes, s.state.Took = "", began, size, time.Since(began).Seconds()
}

// last writes the snapshot of a director that stops, whose workers rest.
func (s *snapshots) last() {
	if s != nil {
		s.write(context.Background())
	}
}

// replace writes the image of the present into the file. It ends early with ctx.
func (s *snapshots) replace(ctx context.Context) (size int64, err error) {
	if err := s.admin.lock(); err != nil {
		return 0, err // another process has the director's place
	}
	s.admin.mu.Unlock()
	if err := os.MkdirAll(filepath.Dir(s.file), 0o700); err != nil {
		return 0, err
	}
	taken, now := momentNow(), time.Since(s.shown.began)
	err = replaceFile(s.file, func(w io.Writer) (err error) {
		size, err = writeImage(writerUntil{ctx, w}, s.shown.director, now, func() (carried, func()) {
			s.reloads.mu.Lock()
			s.admin.mu.Lock()
			return carriedBy(s.reloads.file, s.reloads.loaded.Load(), taken), func() {
				s.admin.mu.Unlock()
				s.reloads.mu.Unlock()
			}
		})
		return err
	})
	if err != nil {
		return size, fmt.Errorf("%s: %w", s.file, err)
	}
	return size, nil
}

// writerUntil is a Writer until ctx ends.
type writerUntil struct {
	ctx context.Context
	io.Writer
}

func (w writerUntil) Write(b []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.Writer.Write(b)
}
