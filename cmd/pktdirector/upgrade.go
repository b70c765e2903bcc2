package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"pktdirector/control"
	"pktdirector/dataplane/link"
	"pktdirector/handover"
	"pktdirector/image"
	"pktdirector/systemd"
)

// handoverPatience is how long a director waits for its successor's next word.
// Forwarding rests during two of them, which take moments each.
const handoverPatience = 20 * time.Second

// upgrades are the SIGUSR2s that come.
type upgrades struct {
	signals chan os.Signal
	program string // this program's file, by the name that it was started by
}

// listenForUpgrades takes SIGUSR2 from now on. One that comes before run is kept.
func listenForUpgrades() *upgrades {
	u := &upgrades{signals: make(chan os.Signal, 1), program: programFile()}
	signal.Notify(u.signals, syscall.SIGUSR2)
	return u
}

func (u *upgrades) close() { signal.Stop(u.signals) }

// run upgrades on each SIGUSR2 until ctx ends. What comes of it, the log says.
func (u *upgrades) run(ctx context.Context, to *upgrader) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-u.signals:
			_, _ = to.Upgrade("SIGUSR2", false)
		}
	}
}

// programFile returns where this program stands, by the name that it was started by:
// that may be a symbolic link, which leads elsewhere after an upgrade. Where that name
// is another program's, the file that runs counts.
func programFile() string {
	running, err := os.Executable()
	if err != nil {
		running = os.Args[0]
	}
	called, err := exec.LookPath(os.Args[0])
	if err == nil {
		called, err = filepath.Abs(called)
	}
	if err != nil || strings.HasPrefix(called, "/proc/") {
		return running
	}
	a, errA := os.Stat(called)
	b, errB := os.Stat(running)
	if errA != nil || errB != nil || !os.SameFile(a, b) {
		return running
	}
	return called
}

// upgrader hands a running director over to a successor.
type upgrader struct {
	held    *held
	loop    *link.Loop
	kept    *snapshots // nil: none are
	reloads *reloader
	service *supervised
	program string          // file of the successor
	run     context.Context // ends when the director stops
	stop    func()
	log     *slog.Logger

	busy sync.Mutex
}

// errBusy refuses a second upgrade at a time.
var errBusy = errors.New("an upgrade is under way")

// Upgrade implements control.Upgrader.
func (u *upgrader) Upgrade(who string, dryRun bool) (control.UpgradeReport, error) {
	if !u.busy.TryLock() {
		u.log.Warn("not upgraded", "asked by", who, "error", errBusy)
		return control.UpgradeReport{}, control.NotUpgraded(errBusy)
	}
	defer u.busy.Unlock()
	defer u.kept.pause()() // from now on the successor's
	// Whoever changes something is done first, and who comes meanwhile waits.
	u.reloads.mu.Lock()
	defer u.reloads.mu.Unlock()
	admin := u.reloads.admin
	if err := admin.lock(); err != nil {
		return control.UpgradeReport{}, err
	}
	defer admin.mu.Unlock()

	report := control.UpgradeReport{DryRun: dryRun, Old: control.Program{Version: thisBuild().Version, PID: os.Getpid()}}
	to, err := handover.Start(u.program, os.Args, systemd.Environment(os.Environ()))
	if err != nil {
		err = fmt.Errorf("the new program does not start: %w", err)
	} else {
		err = u.handOver(to, &report)
	}
	switch {
	case err != nil:
		u.log.Error("not upgraded: the director goes on as it was", "asked by", who, "program", u.program, "error", err)
		return report, control.NotUpgraded(err)
	case dryRun:
		return report, nil
	}
	admin.handed = true
	u.reloads.left.Store(true)
	u.held.left = true
	u.held.api.Leave(true)
	admin.publish("upgrade asked by "+who, []string{fmt.Sprintf("handed over to process %d, version %s", report.New.PID, report.New.Version)}, "")
	u.log.Info("handed over", "asked by", who, "version", report.New.Version, "pid", report.New.PID,
		"connections", report.Connections, "pause", time.Duration(report.PauseMS*float64(time.Millisecond)).Round(time.Microsecond))
	u.stop()
	return report, nil
}

// handOver goes through all that is said with a successor. With an error, or when it was
// only a try, the successor has ended, and all is as before.
func (u *upgrader) handOver(to *handover.Successor, report *control.UpgradeReport) (err error) {
	t := &talk{to: to, ctx: u.run}
	defer func() {
		if err == nil && !report.DryRun {
			return // it lives on
		}
		t.end()
		if g := u.held.guard; g != nil && !g.Owned() {
			err = errors.Join(err, g.RemoveBeside())
		}
	}()
	hello := t.hear(sayHello)
	if t.err == nil && hello.Protocol != upgradeProtocol {
		t.err = fmt.Errorf("the new program takes over by version %d of the protocol, this one hands over by %d: restart the director", hello.Protocol, upgradeProtocol)
	}
	report.New = hello.Program
	u.offer(t)
	t.hear(sayPrepared)
	if t.err != nil || report.DryRun {
		return t.err
	}

	now, goOn, err := u.loop.Rest(u.run)
	if err != nil {
		return err
	}
	rested, used := momentNow(), false
	defer func() {
		if err == nil {
			return
		}
		t.end() // before anything moves here
		for _, l := range u.held.links {
			l.(link.Movable).TakeBack(used)
		}
		if used {
			err = errors.Join(err, u.held.claim.Own())
		}
		goOn()
	}()
	for _, l := range u.held.links {
		at := l.(link.Movable).HandOver()
		t.say(word{Say: sayLinks, Place: &at})
	}
	u.image(t, now, rested)
	ready := t.hear(sayReady)
	used = t.err == nil
	t.say(word{Say: sayGo})
	forwards := t.hear(sayForwards)
	if t.err != nil {
		return t.err
	}
	report.Connections, report.Templates = ready.Connections, ready.Templates
	report.PauseMS = float64(forwards.At-rested.uptime) / float64(time.Millisecond)
	u.service.leave(to.PID())
	t.say(word{Say: sayBye}) // and if it does not hear, it goes on all the same
	return nil
}

// offer sends what the director holds of its host.
func (u *upgrader) offer(t *talk) {
	if t.err != nil {
		return
	}
	var files []*os.File
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	offer := word{Say: sayOffer, Protocol: upgradeProtocol, Image: image.Version, Links: len(u.held.links)}
	add := func(name string, f *os.File, err error) {
		if err != nil {
			t.err = errors.Join(t.err, fmt.Errorf("%s: %w", name, err))
			return
		}
		files = append(files, f)
		offer.Files = append(offer.Files, name)
	}
	k := carriedBy(u.reloads.file, u.reloads.loaded.Load(), moment{})
	f, err := inMemory(fileConfig, []byte(k.text))
	add(fileConfig, f, err)
	lock, state, err := u.held.claim.Hand()
	add(fileLock, lock, err)
	f, err = inMemory(fileClaim, state)
	add(fileClaim, f, err)
	listeners, err := u.held.api.Files()
	add(fileAPI, first(listeners), err)
	if len(listeners) > 1 {
		add(fileAPITCP, listeners[1], nil)
	}
	if u.held.scraped != nil {
		f, err := u.held.scraped.File()
		add(fileMetrics, f, err)
	}
	if u.held.guard != nil {
		offer.Guard = u.held.guard.Name()
	}
	t.say(offer, files...)
	for _, l := range u.held.links {
		m, ok := l.(link.Movable)
		if !ok {
			t.err = errors.Join(t.err, fmt.Errorf("link %s cannot be handed over", l.Info().Name))
			return
		}
		sockets, err := m.Files()
		t.err = errors.Join(t.err, err)
		files = append(files, sockets...)
		at := m.Place()
		t.say(word{Say: sayLink, Place: &at}, sockets...)
	}
}

func first(files []*os.File) *os.File {
	if len(files) == 0 {
		return nil
	}
	return files[0]
}

// inMemory returns a file with data, to be read from its beginning.
func inMemory(name string, data []byte) (*os.File, error) {
	f, err := handover.NewMemory(name)
	if err != nil {
		return nil, err
	}
	if _, err = f.Write(data); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// image sends the engine's state. now is the engine's time, which was rested.
func (u *upgrader) image(t *talk, now time.Duration, rested moment) {
	if t.err != nil {
		return
	}
	f, err := handover.NewMemory("image")
	if err != nil {
		t.err = err
		return
	}
	defer f.Close()
	k := carriedBy(u.reloads.file, u.reloads.loaded.Load(), rested)
	if t.err = writeAtRest(f, u.reloads.admin.director.Director, now, &k); t.err == nil {
		t.say(word{Say: sayImage}, f)
	}
}

// talk is what is said with a successor. After an error nothing more is.
type talk struct {
	to  *handover.Successor
	ctx context.Context
	err error
}

// say says a word.
func (t *talk) say(w word, files ...*os.File) {
	if t.err != nil {
		return
	}
	ctx, cancel := context.WithTimeoutCause(t.ctx, handoverPatience, errNoWord)
	defer cancel()
	err := t.to.Send(ctx, w, files...)
	if errors.Is(err, handover.ErrGone) {
		return // what is heard next tells why
	}
	if err != nil {
		t.err = fmt.Errorf("telling the new program %q: %w", w.Say, err)
	}
}

// errNoWord says that patience ended.
var errNoWord = fmt.Errorf("nothing for %v", handoverPatience)

// hear waits for a word.
func (t *talk) hear(say string) (w word) {
	if t.err != nil {
		return w
	}
	ctx, cancel := context.WithTimeoutCause(t.ctx, handoverPatience, errNoWord)
	defer cancel()
	files, err := t.to.Receive(ctx, &w)
	for _, f := range files {
		f.Close() // none is expected
	}
	switch {
	case errors.Is(err, io.EOF):
		t.err = fmt.Errorf("the new program has ended (%s), and was to say %q", t.how(), say)
	case err != nil:
		t.err = fmt.Errorf("the new program was to say %q: %w", say, err)
	case w.Say == sayNo:
		t.err = fmt.Errorf("the new program refuses: %s", w.Why)
	case w.Say != say:
		t.err = fmt.Errorf("the new program says %q, and was to say %q", w.Say, say)
	}
	return w
}

// how tells how the successor, which has closed its end, has ended.
func (t *talk) how() string {
	select {
	case <-t.to.Ended():
		return t.to.How()
	case <-time.After(time.Second):
		return "it lives, and closed its end"
	}
}

// end ends the successor.
func (t *talk) end() { _ = t.to.Kill() }
