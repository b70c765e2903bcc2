package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"pktdirector/control"
	"pktdirector/dataplane"
	"pktdirector/image"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// snapshotOf is a snapshot of a director with a connection and a service by hand.
func snapshotOf(t testing.TB, text string) []byte {
	t.Helper()
	b := newReloadBench(t, text)
	b.route()
	b.forward(0, packettest.Spec{Src: "198.51.100.7:40000", Dst: "192.0.2.10:80", Flags: packet.SYN})
	if a := b.admin.Ipvsadm(control.Line{Args: strings.Fields("-A -t 192.0.2.11:80")}); a.Code != 0 {
		t.Fatal(a.Stderr)
	}
	return b.imageNow(0, 0)
}

// A snapshot that is not as it was written is refused: all of it, in one line, and kept
// for whoever wants to look into it. The director begins as its file says.
func TestUnusableSnapshots(t *testing.T) {
	text := fileHead + caseServices("{address: 10.2.0.1}")
	good := snapshotOf(t, text)
	file := func(data []byte) func(string) error {
		return func(path string) error { return os.WriteFile(path, data, 0o600) }
	}
	other := bytes.Clone(good)
	binary.LittleEndian.PutUint32(other[8:], image.Version+1)
	large := bytes.Clone(good)
	binary.LittleEndian.PutUint64(large[12+8:], 1<<60) // what the first part says it holds
	flipped := bytes.Clone(good)
	flipped[len(flipped)/2] ^= 4
	for _, c := range []struct {
		name string
		make func(path string) error
		want string // in the log
	}{
		{"one bit is another", file(flipped), "checksum"},
		{"the second half is missing", file(good[:len(good)/2]), "ends early"},
		{"it is there twice", file(append(bytes.Clone(good), good...)), "follow the image's end"},
		{"another program's version", file(other), "an image of version 2: this program reads version 1"},
		{"a length that no file has", file(large), "ends early"},
		{"nothing is in it", file(nil), "no image of a director"},
		{"something else is in it", file([]byte(text)), "no image of a director"},
		{"without its configuration", file(withoutCaller(t, good)), "does not tell of which configuration"},
		{"a folder", func(path string) error { return os.Mkdir(path, 0o700) }, "is a folder, must be a file"},
		{"a folder with something in it", func(path string) error { return os.MkdirAll(filepath.Join(path, "more"), 0o700) }, "is a folder"},
		{"a named pipe", func(path string) error { return syscall.Mkfifo(path, 0o600) }, "is a named pipe, must be a file"},
		{"a symbolic link to a good one", func(path string) error {
			return errors.Join(os.WriteFile(path+".elsewhere", good, 0o600), os.Symlink(path+".elsewhere", path))
		}, "is a symbolic link, must be a file"},
		{"a symbolic link to nothing", func(path string) error { return os.Symlink("/nonexistent/file", path) }, "is a symbolic link"},
		{"a socket", func(path string) error {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
			if err != nil {
				return err
			}
			l.SetUnlinkOnClose(false)
			return l.Close()
		}, "no such device"},
		{"one that everybody may write", func(path string) error {
			return errors.Join(os.WriteFile(path, good, 0o600), os.Chmod(path, 0o666))
		}, "others may have written it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "s.snapshot")
			if err := c.make(path); err != nil {
				t.Fatal(err)
			}
			conf, err := control.Parse("director.yaml", []byte("snapshot: {file: "+path+"}\n"+text))
			if err != nil {
				t.Fatal(err)
			}
			told := &logText{}
			b, err := resume(conf, false, slog.New(slog.NewTextHandler(told, nil)))
			if err != nil {
				t.Fatal(err)
			}
			if got := rules(b.director); got != "TCP 192.0.2.10:80 rr: 10.2.0.1:80=1" || b.director.Table().Connections != 0 || b.restored != nil {
				t.Errorf("the director begins with %d connections and\n%s", b.director.Table().Connections, got)
			}
			if strings.Count(told.String(), "\n") != 1 || !strings.Contains(told.String(), c.want) || !strings.Contains(told.String(), "snapshot="+path) {
				t.Errorf("the log has %q, want one line with %q and the file", told.String(), c.want)
			}
			aside, err := filepath.Glob(path + ".damaged-*")
			if _, gone := os.Lstat(path); !errors.Is(gone, fs.ErrNotExist) || err != nil || len(aside) != 1 || !strings.Contains(told.String(), aside[0]) {
				t.Errorf("there are %q, and the file: %v", aside, gone)
			}
		})
	}
}

// withoutCaller is an image without what stands beside the engine's state.
func withoutCaller(t *testing.T, file []byte) []byte {
	t.Helper()
	parts, err := image.Parts(file)
	if err != nil {
		t.Fatal(err)
	}
	b, n := image.AppendHead(nil), 0
	for _, p := range parts {
		if p.Kind != dataplane.ImageOfCaller {
			b = image.AppendPart(b, p.Kind, n, func(b []byte) []byte { return append(b, p.Payload...) })
			n++
		}
	}
	return image.AppendEnd(b, n, int64(len(b)-len(image.AppendHead(nil))))
}

// Whatever bit of a snapshot is another, and wherever it ends, it is refused.
func TestNoBitOfASnapshotMayBeAnother(t *testing.T) {
	text := fileHead + caseServices("{address: 10.2.0.1}")
	good := snapshotOf(t, text)
	c, err := control.Parse("director.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, at int, file []byte) {
		t.Helper()
		parts, err := image.Parts(file)
		if err == nil {
			_, err = restore(parts, c, 1<<16)
			if err != nil && !errors.As(err, new(unusable)) {
				t.Fatalf("%s at %d: the configuration is blamed: %v", what, at, err)
			}
		}
		if err == nil {
			t.Fatalf("%s at %d of %d was not noticed", what, at, len(file))
		}
	}
	for at := range good {
		good[at] ^= 1 << (at % 8)
		refused("another bit", at, good)
		good[at] ^= 1 << (at % 8)
	}
	for at := range good {
		refused("an end", at, good[:at])
	}
}

// fileOf tells of a file that belongs to a user.
type fileOf struct {
	fs.FileInfo
	uid uint32
}

func (f fileOf) Sys() any { return &syscall.Stat_t{Uid: f.uid} }

func TestWhoseSnapshotIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	for _, c := range []struct {
		name     string
		mode     fs.FileMode
		of, asks uint32
		want     string
	}{
		{"one's own", 0o600, 7, 7, ""},
		{"root's", 0o600, 0, 7, ""},
		{"one that all may read", 0o644, 7, 7, ""},
		{"another user's", 0o600, 8, 7, "belongs to another user"},
		{"another user's, and root asks", 0o600, 8, 0, "belongs to another user"},
		{"one that a group may write", 0o660, 7, 7, "others may have written it"},
	} {
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, c.mode)); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := unlikeSnapshot(fileOf{info, c.of}, c.asks); !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, make([]byte, 101), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readSnapshot(path, uint32(os.Geteuid()), 100); err == nil || !strings.Contains(err.Error(), "has 101 bytes, of at most 100") {
		t.Errorf("a large one: %v", err)
	}
}

// Only the newest snapshots that could not be used are kept.
func TestFewSnapshotsAreKeptAside(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i := range 6 {
		if err := os.WriteFile(path, fmt.Append(nil, i), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := setAside(path, begin.Add(time.Duration(i)*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range left {
		names = append(names, e.Name())
	}
	if got := strings.Join(names, " "); got != "s.damaged-20260102T030408.000Z s.damaged-20260102T030409.000Z s.damaged-20260102T030410.000Z" {
		t.Errorf("left are %s", got)
	}
}

// Whoever dies while he writes leaves the old file whole, and no more than one beside it.
func TestReplaceFileIsWholeOrNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	text := func(s string) func(io.Writer) error {
		return func(w io.Writer) error { _, err := io.WriteString(w, s); return err }
	}
	if err := replaceFile(path, text("one")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(freshName(path), []byte("ha"), 0o600); err != nil { // of one that was killed
		t.Fatal(err)
	}
	broken := errors.New("broken")
	if err := replaceFile(path, func(w io.Writer) error {
		if got, _ := os.ReadFile(path); string(got) != "one" {
			t.Errorf("while another is written, %q can be read", got)
		}
		_, _ = io.WriteString(w, "tw")
		return broken
	}); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	if got, _ := os.ReadFile(path); string(got) != "one" {
		t.Errorf("after a try that failed, %q can be read", got)
	}
	if err := replaceFile(path, text("two")); err != nil {
		t.Fatal(err)
	}
	left, _ := os.ReadDir(dir)
	if got, _ := os.ReadFile(path); string(got) != "two" || len(left) != 1 {
		t.Errorf("%q can be read, in a folder of %d", got, len(left))
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// keptBy is the snapshots of a bench's director, written every so often.
func keptBy(b *reloadBench, file string, every time.Duration) *snapshots {
	c := *b.loaded.Load()
	c.Snapshot = control.Snapshot{File: file, Every: every}
	shown := &source{director: b.director(), config: &c, began: time.Now(), Admin: b.admin, Reloader: b.reloader}
	return newSnapshots(&c, &begun{}, shown, b.admin, b.reloader, b.log)
}

// A change of rules is in a snapshot soon, however seldom there is one.
func TestAChangeOfRulesIsSoonInASnapshot(t *testing.T) {
	b := newReloadBench(t, fileHead+"services: []\n")
	file := filepath.Join(t.TempDir(), "deeper", "s")
	kept := keptBy(b, file, time.Hour)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- kept.run(ctx) }()
	for i, line := range []string{"-A -t 192.0.2.10:80 -s rr", "-a -t 192.0.2.10:80 -r 10.2.0.1 -g -w 5"} {
		if a := b.admin.Ipvsadm(control.Line{Args: strings.Fields(line)}); a.Code != 0 {
			t.Fatal(a.Stderr)
		}
		want := []string{"TCP 192.0.2.10:80 rr:", "TCP 192.0.2.10:80 rr: 10.2.0.1:80=5"}[i]
		eventually(t, line+" is in the snapshot", func() bool {
			data, err := os.ReadFile(file)
			return err == nil && rules(b.restored(data, fileHead+"services: []\n").director) == want
		})
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if s := kept.State(); s.Failures != 0 || s.Bytes == 0 || s.Written.IsZero() || s.Took <= 0 || s.Error != "" {
		t.Errorf("%+v", s)
	}
}

// A snapshot that cannot be written is told once, and counted each time; so is that it
// can be written again.
func TestSnapshotsThatCannotBeWritten(t *testing.T) {
	b := newReloadBench(t, fileHead+"services: []\n")
	dir := filepath.Join(t.TempDir(), "d")
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // no folder
		t.Fatal(err)
	}
	kept := keptBy(b, filepath.Join(dir, "s"), time.Hour)
	for range 3 {
		kept.write(t.Context())
	}
	said := func(what string) int { return strings.Count(b.told.String(), what) }
	if s := kept.State(); s.Failures != 3 || !strings.Contains(s.Error, "not a directory") || said("cannot be written") != 1 {
		t.Errorf("%+v\n%s", s, b.told)
	}
	shown := kept.shown
	shown.kept = kept
	if found := shown.Diagnose(); len(found) != 1 || found[0].Code != "snapshot_failing" {
		t.Errorf("diagnosed is %v", found)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		kept.write(t.Context())
	}
	if s := kept.State(); s.Failures != 3 || s.Error != "" || said("written again") != 1 || said("cannot be written") != 1 {
		t.Errorf("%+v\n%s", s, b.told)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	before, _ := os.ReadFile(kept.file)
	if kept.write(ended); kept.State().Failures != 3 {
		t.Error("a snapshot that is given up counts as one that failed")
	}
	after, _ := os.ReadFile(kept.file)
	if left, _ := os.ReadDir(dir); len(left) != 1 || !bytes.Equal(before, after) {
		t.Errorf("%d files are left of one that was given up", len(left))
	}
}

// While rules are changed and connections come and go, every snapshot is one that a
// director can begin with, and what was counted is in it.
func TestSnapshotsOfADirectorAtWork(t *testing.T) {
	text := fileHead + "drift: keep\n" + caseServices("{address: 10.2.0.1}")
	b := newReloadBench(t, text)
	b.route()
	kept := keptBy(b, filepath.Join(t.TempDir(), "s"), time.Hour)
	ctx, stop := context.WithCancel(t.Context())
	working := make(chan struct{})
	go func() {
		defer close(working)
		w := b.director().NewWorker()
		for i := 0; ctx.Err() == nil; i++ {
			p := packettest.Build(t, packettest.Spec{Src: fmt.Sprintf("198.51.100.%d:%d", i%250+1, 1024+i%60000), Dst: "192.0.2.10:80", Flags: packet.SYN})
			w.Process([]*packet.Packet{p}, time.Since(kept.shown.began))
			if i%50 == 0 {
				b.admin.Ipvsadm(control.Line{Args: strings.Fields(fmt.Sprintf("-%c -t 192.0.2.11:%d", "AD"[i/50%2], 100+i%70))})
			}
		}
	}()
	counted := uint64(0)
	for range 30 {
		kept.write(t.Context())
		data, err := os.ReadFile(kept.file)
		if err != nil {
			t.Fatal(err, kept.State().Error)
		}
		r := b.restored(data, text)
		if err := r.director.Check(r.does.Ruleset); err != nil {
			t.Error(err)
		}
		for _, s := range r.director.Status() {
			if s.Service.Port != 80 || s.Service.VIP != packet.MustParseAddr("192.0.2.10") {
				continue
			}
			if s.Stats.Conns < counted {
				t.Errorf("%d connections were counted, after %d", s.Stats.Conns, counted)
			}
			counted = s.Stats.Conns
			if active := s.Destinations[0].InAct + s.Destinations[0].Active; int(active) != r.director.Table().Connections {
				t.Errorf("the server has %d connections, the table %d", active, r.director.Table().Connections)
			}
		}
	}
	stop()
	<-working
	t.Logf("%d connections in the last snapshot", counted)
}

func TestSnapshotsArePaced(t *testing.T) {
	at := func(seconds float64) time.Time {
		return time.Unix(1000, 0).Add(time.Duration(seconds * float64(time.Second)))
	}
	for _, c := range []struct {
		name string
		do   func(*pace)
		due  float64
	}{
		{"nothing happened yet", func(*pace) {}, 10},
		{"a short one", func(p *pace) { p.wrote(at(10), at(10.1)) }, 20},
		{"a long one", func(p *pace) { p.wrote(at(10), at(12)) }, 52},
		{"a change at the start", func(p *pace) { p.changed(at(0)) }, 0.5},
		{"changes in a row", func(p *pace) { p.changed(at(1)); p.changed(at(1.2)); p.changed(at(1.4)) }, 1.5},
		{"a change while one was written", func(p *pace) { p.wrote(at(10), at(10.2)); p.changed(at(10.2)) }, 14.2},
		{"a change long after a short one", func(p *pace) { p.wrote(at(10), at(10.01)); p.changed(at(15)) }, 15.5},
		{"a change after a long one", func(p *pace) { p.wrote(at(10), at(12)); p.changed(at(13)) }, 52},
		{"a change shortly before one is due", func(p *pace) { p.changed(at(9.9)) }, 10},
	} {
		p := &pace{every: 10 * time.Second, due: at(10)}
		if c.do(p); !p.due.Equal(at(c.due)) {
			t.Errorf("%s: due at %v, want %v", c.name, p.due.Sub(at(0)), at(c.due).Sub(at(0)))
		}
	}
}

// While a director is handed over its snapshot is the successor's to write: one that is
// being written is given up, and none is begun.
func TestNoSnapshotDuringAHandover(t *testing.T) {
	b := newReloadBench(t, fileHead+"services: []\n")
	kept := keptBy(b, filepath.Join(t.TempDir(), "s"), time.Hour)
	kept.write(t.Context())
	before, err := os.ReadFile(kept.file)
	if err != nil {
		t.Fatal(err)
	}
	b.reloader.mu.Lock() // what is written waits for it, as it does for an upgrade that holds it
	done := make(chan struct{})
	go func() { defer close(done); kept.write(t.Context()) }()
	eventually(t, "a snapshot is being written", func() bool {
		_, err := os.Stat(freshName(kept.file))
		return err == nil
	})
	paused := make(chan func())
	go func() { paused <- kept.pause() }()
	eventually(t, "it is told to give up", func() bool {
		kept.mu.Lock()
		defer kept.mu.Unlock()
		return kept.given
	})
	b.reloader.mu.Unlock()
	release := <-paused
	<-done
	b.admin.mu.Lock()
	b.admin.handed = true
	b.admin.mu.Unlock()
	release()
	kept.write(t.Context())
	after, err := os.ReadFile(kept.file)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the snapshot was written anew: %v", err)
	}
	if _, err := os.Stat(freshName(kept.file)); err == nil || kept.State().Failures > 0 {
		t.Errorf("something is left of the one that was given up, %+v", kept.State())
	}
}
