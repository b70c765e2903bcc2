package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"pktdirector/control"
	"pktdirector/dataplane"
	"pktdirector/dataplane/link"
	"pktdirector/handover"
	"pktdirector/host"
	"pktdirector/image"
)

// predecessor is a running director that this process is to take over from. A nil one
// is none.
type predecessor struct {
	*handover.Conn
	log  *slog.Logger
	next *control.Config // what the file says now
	took bool            // over: there is no way back
}

// greet returns the director that has started this process to be its successor; nil
// where nobody has.
func greet(ctx context.Context, log *slog.Logger) (*predecessor, error) {
	conn, err := handover.Inherited()
	if conn == nil || err != nil {
		return nil, err
	}
	p := &predecessor{Conn: conn, log: log}
	hello := word{Say: sayHello, Protocol: upgradeProtocol, Program: control.Program{Version: thisBuild().Version, PID: os.Getpid()}}
	if err := p.Send(ctx, hello); err != nil {
		return nil, errors.Join(fmt.Errorf("the director that hands over: %w", err), conn.Close())
	}
	return p, nil
}

// refuse tells the predecessor why this process does not take over. What it was told
// nobody else needs to hear from here.
func (p *predecessor) refuse(err error) error {
	if p == nil || p.took {
		return err
	}
	defer p.Close()
	if err == nil {
		err = errors.New("it was told to stop")
	}
	const longest = 4096 // bytes
	why := err.Error()
	told, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if p.Send(told, word{Say: sayNo, Why: why[:min(len(why), longest)]}) != nil {
		return err // the director is gone
	}
	return exitError{code: exitFailed}
}

// hear waits for a word.
func (p *predecessor) hear(ctx context.Context, say string) (word, []*os.File, error) {
	var w word
	files, err := p.Receive(ctx, &w)
	if errors.Is(err, io.EOF) {
		err = errors.New("it is gone")
	}
	if err == nil && w.Say != say {
		for _, f := range files {
			f.Close()
		}
		err = fmt.Errorf("it says %q, not %q", w.Say, say)
	}
	if err != nil {
		return w, nil, fmt.Errorf("the director that hands over: %w", err)
	}
	return w, files, nil
}

// inherit takes what a director holds of its host, and returns the configuration that
// it had loaded and an engine that goes on where it stopped. c is what the file says now.
func (h *held) inherit(ctx context.Context, from *predecessor, c *control.Config) (*control.Config, *begun, error) {
	h.left = true // the predecessor's, so far
	from.next = c
	was, err := h.prepare(ctx, from)
	if err != nil {
		return nil, nil, err
	}
	if err := from.Send(ctx, word{Say: sayPrepared}); err != nil {
		return nil, nil, err
	}
	places := make([]link.Place, len(h.links))
	for i := range places {
		w, _, err := from.hear(ctx, sayLinks)
		if err != nil {
			return nil, nil, err
		}
		if w.Place == nil {
			return nil, nil, fmt.Errorf("the director that hands over: link %d: it does not say where it stands", i)
		}
		places[i] = *w.Place
	}
	_, files, err := from.hear(ctx, sayImage)
	if err != nil {
		return nil, nil, err
	}
	b, err := imageIn(files, was)
	if err != nil {
		return nil, nil, err
	}
	for i, l := range h.links {
		if err := l.(link.Movable).GoOn(places[i]); err != nil {
			return nil, nil, err
		}
	}
	h.plan.Rules = b.does.Ruleset
	if err := h.watch(b.director); err != nil {
		return nil, nil, err
	}
	if h.guard != nil {
		rules := h.plan.Rules
		if b.director.Standby() {
			rules.Services, rules.Marks = nil, nil
		}
		if err := h.guard.Apply(host.RulesFor(h.plan.Links, rules)); err != nil {
			return nil, nil, err
		}
	}
	h.watcher.Keep(h.claim)
	return was, b, nil
}

// imageIn returns the engine whose image is in files.
func imageIn(files []*os.File, was *control.Config) (*begun, error) {
	if len(files) != 1 {
		return nil, fmt.Errorf("the director that hands over: an image in %d files", len(files))
	}
	defer files[0].Close()
	data, release, err := handover.Map(files[0])
	if err != nil {
		return nil, err
	}
	defer release() // nothing refers to it any more
	parts, err := image.Parts(data)
	if err != nil {
		return nil, err
	}
	return restore(parts, was, connMax(host.Memory()))
}

// prepare takes what can be taken while the predecessor forwards.
func (h *held) prepare(ctx context.Context, from *predecessor) (*control.Config, error) {
	offer, files, err := from.hear(ctx, sayOffer)
	if err != nil {
		return nil, err
	}
	if offer.Protocol != upgradeProtocol || offer.Image != image.Version {
		return nil, fmt.Errorf("the director that runs hands over by version %d of the protocol with an image of version %d, this program takes %d and %d: restart the director",
			offer.Protocol, offer.Image, upgradeProtocol, image.Version)
	}
	named := map[string]*os.File{}
	for i, f := range files {
		h.after(func() error { f.Close(); return nil })
		if i < len(offer.Files) {
			named[offer.Files[i]] = f
		}
	}
	for _, name := range []string{fileConfig, fileClaim, fileLock, fileAPI} {
		if named[name] == nil {
			return nil, fmt.Errorf("the director that hands over: no file %q came", name)
		}
	}
	text, err := io.ReadAll(named[fileConfig])
	if err != nil {
		return nil, err
	}
	was, err := control.Parse("the configuration that runs", text)
	if err != nil {
		return nil, err
	}
	if err := was.CheckSysctl(dataplane.CheckTunable); err != nil {
		return nil, err
	}
	if faults := was.Restart(from.next); len(faults) > 0 {
		return nil, fmt.Errorf("the configuration file: %w: %s", errNeedsRestart, faults[0])
	}
	h.plan = planOf(was)
	if err := h.inheritListeners(named); err != nil {
		return nil, err
	}
	state, err := io.ReadAll(named[fileClaim])
	if err != nil {
		return nil, err
	}
	claim, err := host.AdoptClaim(named[fileLock], state)
	if err != nil {
		return nil, err
	}
	h.hold(claim)
	if err := h.inheritLinks(ctx, from, offer.Links, was); err != nil {
		return nil, err
	}
	if offer.Guard == "" {
		return was, nil
	}
	if h.guard, err = host.NewGuardBeside(offer.Guard); err != nil {
		return nil, err
	}
	h.after(h.guard.Close)
	return was, nil
}

// errNeedsRestart says why a file cannot be loaded.
var errNeedsRestart = errors.New("it says what only a restart can change")

// inheritListeners takes the addresses at which the predecessor is asked.
func (h *held) inheritListeners(files map[string]*os.File) error {
	for name, f := range files {
		switch name {
		case fileAPI, fileAPITCP, fileMetrics:
		default:
			continue
		}
		l, err := net.FileListener(f)
		if err != nil {
			return fmt.Errorf("the director that hands over: %s: %w", name, err)
		}
		tcp, isTCP := l.(*net.TCPListener)
		unix, isUnix := l.(*net.UnixListener)
		switch {
		case name == fileAPI && isUnix:
			h.taken.api = unix
		case name == fileAPITCP && isTCP:
			h.taken.apiTCP = tcp
		case name == fileMetrics && isTCP:
			h.taken.metrics = tcp
		default:
			l.Close()
			return fmt.Errorf("the director that hands over: %s is a listener of %s", name, l.Addr().Network())
		}
	}
	return nil
}

// inheritLinks takes the open links.
func (h *held) inheritLinks(ctx context.Context, from *predecessor, n int, c *control.Config) error {
	if n != len(c.Links) {
		return fmt.Errorf("the director that hands over has %d links, its configuration %d", n, len(c.Links))
	}
	for i := range c.Links {
		w, files, err := from.hear(ctx, sayLink)
		if err != nil {
			return err
		}
		if w.Place == nil || w.Place.Name != c.Links[i].Name || len(files) == 0 {
			return fmt.Errorf("the director that hands over: no link %s came", c.Links[i].Name)
		}
		l, err := takeLink(*w.Place, files, &c.Links[i], h.log)
		if err != nil {
			return err
		}
		h.links = append(h.links, l)
		h.after(l.Close)
	}
	return nil
}

// takeLink is openLink of one that the predecessor has open.
func takeLink(at link.Place, files []*os.File, l *control.Link, log *slog.Logger) (dataplane.Link, error) {
	if l.Type == control.AFPacket {
		a, err := link.TakeAFPacket(at, files, afpacketOptions(l, log))
		if err != nil {
			return nil, err
		}
		return a, nil
	}
	t, err := link.TakeTundev(at, files[0], tundevOptions(l, log))
	if err != nil {
		return nil, err
	}
	return t, nil
}

// ready says that this process could forward, and returns when it is to. What the file
// says otherwise than the predecessor had loaded must be right, too.
func (p *predecessor) ready(ctx context.Context, reloads *reloader) error {
	if p.differs(reloads) {
		if _, err := reloads.reload(true); err != nil {
			return err
		}
	}
	table := reloads.admin.director.Table()
	if err := p.Send(ctx, word{Say: sayReady, Connections: table.Connections, Templates: table.Templates}); err != nil {
		return err
	}
	if _, _, err := p.hear(ctx, sayGo); err != nil {
		return err
	}
	p.took = true
	return nil
}

// differs reports whether the file says otherwise than what is loaded.
func (p *predecessor) differs(reloads *reloader) bool {
	was := reloads.loaded.Load()
	return len(control.Diff(was.Asked(defaults()), p.next.Asked(defaults()))) > 0 || was.Drift() != p.next.Drift() || was.Watch != p.next.Watch
}

// own makes what was a predecessor's this process's.
func (h *held) own() {
	h.left = false
	h.api.Leave(false)
	if err := h.claim.Own(); err != nil {
		h.log.Warn("the lock does not say who holds it", "error", err)
	}
}

// leaves says that this process forwards, once it does, and returns when the
// predecessor has told whoever must know. Then it does what the file says otherwise.
func (p *predecessor) leaves(ctx context.Context, moving <-chan struct{}, reloads *reloader) {
	if p == nil {
		return
	}
	defer p.Close()
	at := momentNow().uptime
	select {
	case <-moving:
	case <-ctx.Done():
		return
	}
	told, cancel := context.WithTimeout(ctx, handoverPatience)
	defer cancel()
	err := p.Send(told, word{Say: sayForwards, At: at})
	if err == nil {
		_, _, err = p.hear(told, sayBye)
	}
	if err != nil {
		p.log.Warn("the service manager may not know of this process", "error", err)
	}
	if p.differs(reloads) {
		reloads.run("the upgrade")
	}
}
