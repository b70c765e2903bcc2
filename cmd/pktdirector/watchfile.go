package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"pktdirector/control"
)

// Changes of a file come in bursts: a reload waits until nothing has come for
// fileSettles, but at most filePatience.
const (
	fileSettles  = 200 * time.Millisecond
	filePatience = 2 * time.Second
)

// maxLinksToFile bounds how many symbolic links lead to the file.
const maxLinksToFile = 16

// newReloader returns the reloader of a director that was started with file, which
// says c.
func newReloader(file string, c *control.Config, admin *administration, log *slog.Logger) (*reloader, error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	r := &reloader{file: path, admin: admin, log: log}
	r.loaded.Store(c)
	return r, nil
}

// watch reloads whenever the file is another, while the file that is loaded says so,
// until ctx ends. It watches folders, not the file: editors move a new file to its
// place, and a ConfigMap's folders are exchanged behind symbolic links.
func (r *reloader) watch(ctx context.Context) error {
	f := &folders{log: r.log, events: make(chan fsnotify.Event), errors: make(chan error)}
	defer f.close()
	if err := f.follow(r.file); err != nil && r.watches() {
		r.log.Warn("the configuration file cannot be watched: reload by \"pktdirector reload\"", "error", err)
	}
	seen := read(r.file)
	var due <-chan time.Time
	var first time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.events:
			if first.IsZero() {
				first = time.Now()
			}
			due = time.After(min(fileSettles, max(0, filePatience-time.Since(first))))
		case err := <-f.errors:
			r.log.Debug("watching the configuration file", "error", err)
			due = time.After(fileSettles) // events were lost
		case <-due:
			due, first = nil, time.Time{}
			if err := f.follow(r.file); err != nil {
				r.log.Debug("watching the configuration file", "error", err)
			}
			now := read(r.file)
			if now == nil || bytes.Equal(now, seen) {
				continue // gone for a moment, or something else of the folder
			}
			seen = now
			if r.watches() {
				r.run("the file changed")
			}
		}
	}
}

// watches reports whether the file that is loaded wants to be watched.
func (r *reloader) watches() bool { return r.loaded.Load().Watch }

// read returns what is in the file; nil where it cannot be read.
func read(file string) []byte {
	data, err := control.ReadFile(file)
	if err != nil {
		return nil
	}
	return data
}

// folders watches those that a file stands in.
type folders struct {
	log    *slog.Logger
	paths  []string // sorted, without symbolic links
	w      *fsnotify.Watcher
	events chan fsnotify.Event // of w, once there is one
	errors chan error
}

func (f *folders) close() {
	if f.w != nil {
		f.w.Close()
	}
}

// follow watches the folders that file stands in, by way of all symbolic links. Other
// folders get another watcher: one that is told to forget a folder that is gone, or
// known by two names, may fail.
func (f *folders) follow(file string) error {
	paths := foldersOf(file)
	if f.w != nil && slices.Equal(paths, f.paths) && len(f.w.WatchList()) == len(paths) {
		return nil
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	f.close()
	f.w, f.paths, f.events, f.errors = w, paths, w.Events, w.Errors
	var errs error
	for _, path := range paths {
		errs = errors.Join(errs, w.Add(path))
	}
	return errs
}

// foldersOf lists the folders in which the file, or a symbolic link on the way to it,
// stands.
func foldersOf(file string) []string {
	var all []string
	for path, n := file, 0; n < maxLinksToFile; n++ {
		// A folder on the way may be a link, too: what it leads to, and where it stands.
		for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
			info, err := os.Lstat(dir)
			if err == nil && info.Mode().Type() == os.ModeSymlink {
				all = append(all, filepath.Dir(dir))
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
		all = append(all, filepath.Dir(path))
		to, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		path = to
	}
	var whole []string
	for _, dir := range all {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			whole = append(whole, real)
		}
	}
	slices.Sort(whole)
	return slices.Compact(whole)
}
