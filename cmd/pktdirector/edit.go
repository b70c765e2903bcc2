package main

import (
	"errors"
	"slices"
	"time"

	"pktdirector/control"
	"pktdirector/lvs"
)

// Ruleset implements control.Editor.
func (a *administration) Ruleset() lvs.Ruleset { return a.director.Ruleset() }

// Edit implements control.Editor.
func (a *administration) Edit(who string, change func(lvs.Ruleset) (lvs.Ruleset, []string, error)) error {
	if err := a.lock(); err != nil {
		return err
	}
	defer a.mu.Unlock()
	now := a.director.Ruleset()
	next, words, err := change(now)
	if err != nil || len(words) == 0 {
		return err
	}
	err = a.director.Apply(next)
	a.tell(who, words, err)
	return err
}

// tell logs a change, and that it was refused, and tells those who listen to events.
func (a *administration) tell(who string, words []string, err error) {
	refused := ""
	if err != nil {
		refused = err.Error()
	}
	a.publish(who, words, refused)
	for i, w := range words {
		if i == maxToldChanges {
			a.log.Info("changed", "by", who, "and_more", len(words)-i)
			break
		}
		if err != nil {
			a.log.Warn("not changed", "by", who, "what", w, "error", err)
			break
		}
		a.log.Info("changed", "by", who, "what", w)
	}
}

// publish tells those who listen to events of a change.
func (a *administration) publish(who string, words []string, refused string) {
	if a.changed != nil {
		a.changed()
	}
	now := time.Now()
	a.events.Publish(control.AdminEvents, 1+len(words), &control.Subject{}, func() control.Event {
		return control.Event{Time: now, Kind: control.AdminEvents.String(), Admin: &control.AdminChange{By: who, Changes: words, Refused: refused}}
	})
}

// maxToldChanges is how many changes of one request the log tells.
const maxToldChanges = 100

// Zero implements control.Editor.
func (a *administration) Zero(who string, service *lvs.ServiceKey) error {
	if err := a.lock(); err != nil {
		return err
	}
	defer a.mu.Unlock()
	words := "counters: zeroed"
	if service == nil {
		a.director.ZeroAll()
	} else if err := a.director.ZeroCounters(*service); err != nil {
		return err
	} else {
		words = "service " + service.String() + ": counters zeroed"
	}
	a.tell(who, []string{words}, nil)
	return nil
}

// Links implements control.Editor.
func (a *administration) Links() []control.Link { return a.links }

// Apply makes a ruleset live: all of it or, with an error, none. The host follows.
func (g *guarded) Apply(next lvs.Ruleset) error {
	if err := g.tundevTakes(next.Services); err != nil {
		return err
	}
	now := g.Ruleset()
	return g.change(additions(&now, &next), func() error {
		err := g.Director.Apply(next)
		if err != nil {
			return errors.Join(err, g.Director.Apply(now))
		}
		return nil
	})
}

// additions are the services of next that now lacks, and those that get servers or
// methods of servers, with these alone: what the host must be kept off first.
func additions(now, next *lvs.Ruleset) []lvs.VirtualService {
	old := map[lvs.ServiceKey]*lvs.VirtualService{}
	for i := range now.Services {
		old[now.Services[i].ServiceKey] = &now.Services[i]
	}
	var more []lvs.VirtualService
	for _, s := range next.Services {
		before := old[s.ServiceKey]
		if before == nil {
			more = append(more, s)
			continue
		}
		known := map[lvs.ServerKey]lvs.Method{}
		for _, rs := range before.Servers {
			known[rs.ServerKey] = rs.Method
		}
		s.Servers = slices.DeleteFunc(slices.Clone(s.Servers), func(rs lvs.RealServer) bool {
			method, there := known[rs.ServerKey]
			return there && (method == rs.Method || !rs.Method.RewritesPorts())
		})
		if len(s.Servers) > 0 || !slices.Equal(s.Sources.Addrs, before.Sources.Addrs) {
			more = append(more, s)
		}
	}
	return more
}
