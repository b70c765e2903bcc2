package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"

	"pktdirector/control"
	"pktdirector/dataplane"
	"pktdirector/host"
	"pktdirector/metrics"
)

// held is what a director has taken from its host, and gives back.
type held struct {
	log     *slog.Logger
	fresh   bool // begin without the last snapshot
	plan    host.Plan
	claim   *host.Claim
	links   []dataplane.Link
	watcher *host.Watcher
	guard   *host.Guard // nil: the host does not touch the director's packets
	api     *control.Server
	scraped *metrics.Server // nil: none

	serves   bool           // the API runs, or did
	taken    listeners      // from a predecessor
	releases []func() error // in the order in which things were taken
	left     bool           // to another process, which gives back what outlives the two
}

// listeners are those that a predecessor has opened; nil: none.
type listeners struct {
	api             *net.UnixListener
	apiTCP, metrics *net.TCPListener
}

// after has release called at the end, before those that were named before it.
func (h *held) after(release func() error) { h.releases = append(h.releases, release) }

// release gives everything back.
func (h *held) release() (err error) {
	for i := len(h.releases) - 1; i >= 0; i-- {
		err = errors.Join(err, h.releases[i]())
	}
	return err
}

// take takes from the host what c asks for, and returns an engine for it.
func (h *held) take(ctx context.Context, c *control.Config) (*begun, error) {
	folder := stateFolder(filepath.Dir(c.Control))
	h.after(func() error { folder(); return nil })
	claim, done, err := host.TakeClaim(filepath.Dir(c.Control))
	for _, d := range done {
		h.log.Info("a director that was killed left something behind: " + d)
	}
	if err != nil {
		return nil, err
	}
	h.hold(claim)

	b, err := resume(c, h.fresh, h.log)
	if err != nil {
		return nil, err
	}
	h.plan = planOf(c)
	h.plan.Rules = b.does.Ruleset
	findings, err := host.Check(ctx, h.plan)
	if err != nil {
		return nil, err
	}
	logFindings(h.log, findings)

	links, err := openLinks(c, h.log)
	h.holdLinks(links)
	if err != nil {
		return nil, err
	}
	if err := h.watch(b.director); err != nil {
		return nil, err
	}
	if h.guard, err = startGuard(h.plan, h.log); err != nil {
		return nil, err
	}
	if h.guard != nil {
		h.after(h.guard.Close)
	}
	for _, l := range h.plan.Links {
		if l.Tundev {
			if err := claim.Steer(l.Name, h.plan.Rules); err != nil {
				return nil, err
			}
		}
		if l.Local {
			if err := claim.OpenLocal(l.Name); err != nil {
				return nil, err
			}
		}
	}
	h.watcher.Keep(claim)
	return b, nil
}

// hold holds a claim, until it is given back or left to another process.
func (h *held) hold(claim *host.Claim) {
	h.claim = claim
	h.after(func() error {
		if h.left {
			return claim.Leave()
		}
		return claim.Release()
	})
}

func (h *held) holdLinks(links []dataplane.Link) {
	h.links = links
	for _, l := range links {
		h.after(l.Close)
	}
}

// watch has the engine know the links, and what the host does.
func (h *held) watch(d *dataplane.Director) (err error) {
	d.SetLinks(infos(h.links))
	if h.watcher, err = host.NewWatcher(h.plan.Links, h.plan.Static, d, h.log); err != nil {
		return err
	}
	h.after(h.watcher.Close)
	return nil
}

// listen opens the addresses at which the director is asked, or goes on at those that
// its predecessor has opened.
func (h *held) listen(c *control.Config, shown *exposed) (err error) {
	if h.scraped, err = listenMetrics(c.Metrics, h.taken.metrics, shown, h.log); err != nil {
		return err
	}
	if h.scraped != nil {
		h.after(h.scraped.Close)
	}
	if h.api, err = listenAPI(c, h.taken, shown, h.log); err != nil {
		return err
	}
	h.after(func() error {
		if h.serves {
			return nil // the API's Run has closed it
		}
		return h.api.Close()
	})
	return nil
}
