package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"pktdirector/conntrack"
	"pktdirector/control"
	"pktdirector/dataplane"
	"pktdirector/host"
	"pktdirector/lvs"
)

// administration carries out ipvsadm's command lines on a running director, one
// at a time. The host is kept off what a command adds before the director
// balances it.
type administration struct {
	mu        sync.Mutex
	handed    bool // over, to another process: nothing can be changed here any more; guarded by mu
	commander control.Commander
	director  *guarded
	links     []control.Link
	events    *control.Events
	changed   func() // is told that rules were changed; nil: nobody is
	log       *slog.Logger
}

// newAdministration returns the administration of a director whose host keepOff keeps
// off what is balanced; nil: there is no host.
func newAdministration(s *source, plan host.Plan, keepOff func(lvs.Ruleset) error, log *slog.Logger) *administration {
	d := s.director
	tcp, tcpFin, udp := d.Timeouts()
	if keepOff == nil {
		keepOff = func(lvs.Ruleset) error { return nil }
	}
	g := &guarded{Director: d, links: plan.Links, keepOff: keepOff}
	return &administration{director: g, links: s.config.Links, events: s.events, log: log, commander: control.Commander{
		Director: g, Interfaces: interfaceNames,
		Connections: func(yield func(control.Connection) bool) { s.Connections(conntrack.Filter{}, yield) },
		Timeouts:    [3]time.Duration{tcp, tcpFin, udp},
	}}
}

// lock takes a.mu, for the caller to release, unless what is changed here would be
// lost.
func (a *administration) lock() error {
	a.mu.Lock()
	if a.handed {
		a.mu.Unlock()
		return control.HandedOver()
	}
	return nil
}

// Ipvsadm implements control.Admin.
//
// No change waits for a resolver that does not answer: names are looked up before the
// lock is taken, and what only lists takes none.
func (a *administration) Ipvsadm(line control.Line) control.Answer {
	names, cancel := systemNames(context.Background())
	defer cancel()
	if line.Lists() {
		if err := a.lock(); err != nil {
			return control.Answer{Code: exitFailed, Stderr: err.Error() + "\n", Refused: err}
		}
		commander := a.commander
		a.mu.Unlock()
		commander.Names = names
		return commander.Do(line.Args, line.Stdin)
	}
	names = names.Remembering()
	line.LookUp(names)
	if err := a.lock(); err != nil {
		return control.Answer{Code: exitFailed, Stderr: err.Error() + "\n", Refused: err}
	}
	defer a.mu.Unlock()
	a.commander.Names = names
	answer := a.commander.Do(line.Args, line.Stdin)
	command, said := "ipvsadm "+strings.Join(line.Args, " "), strings.TrimSpace(answer.Stderr)
	a.log.Info(command, "by", line.By, "code", answer.Code, "said", said)
	a.publish(line.By, []string{command}, said)
	for _, w := range answer.Warnings {
		a.log.Warn(w)
	}
	return answer
}

// interfaceNames lists the host's interfaces; none where they cannot be listed.
func interfaceNames() []string {
	all, err := net.Interfaces()
	if err != nil {
		return nil
	}
	var names []string
	for _, i := range all {
		names = append(names, i.Name)
	}
	return names
}

// guarded is a director whose host follows each change.
type guarded struct {
	*dataplane.Director
	links   []host.Link
	keepOff func(lvs.Ruleset) error
}

// change has the host follow with, what will be balanced too, makes the change,
// and has the host follow what became of it.
func (g *guarded) change(with []lvs.VirtualService, do func() error) error {
	if err := g.tundevTakes(with); err != nil {
		return err
	}
	if len(with) > 0 {
		wide := g.Ruleset()
		wide.Services = append(wide.Services, with...)
		if err := g.follow(wide); err != nil {
			return errors.Join(fmt.Errorf("the host cannot be kept off the service: %w", err), g.follow(g.Ruleset()))
		}
	}
	err := do()
	if after := g.follow(g.Ruleset()); after != nil && err == nil {
		return fmt.Errorf("done, but what the host is kept off could not be changed: %w", after)
	}
	return err
}

// tundevTakes refuses what no director with a tundev can do, as the configuration
// file does.
func (g *guarded) tundevTakes(with []lvs.VirtualService) error {
	at := slices.IndexFunc(g.links, func(l host.Link) bool { return l.Tundev })
	if at < 0 {
		return nil
	}
	name := g.links[at].Name
	for _, s := range with {
		for _, rs := range s.Servers {
			switch {
			case rs.Method == lvs.Route:
				return fmt.Errorf("the link %s is a tundev, which carries packets without frames: direct routing (-g) cannot work there, use -m or -i", name)
			case rs.Method == lvs.FullNAT && len(s.Sources.Addrs) == 0:
				return fmt.Errorf("the link %s is a tundev, to which the host hands no answers to its own address: FullNAT needs sources there", name)
			}
		}
	}
	return nil
}

// checkAll reports what the director would refuse of a ruleset.
func (g *guarded) checkAll(r lvs.Ruleset) error {
	if err := g.tundevTakes(r.Services); err != nil {
		return err
	}
	return g.Director.Check(r)
}

// follower has the host follow what is balanced: its packet filter, if there is a
// guard, and what it routes into tundevs.
func follower(plan host.Plan, guard *host.Guard, claim *host.Claim) func(lvs.Ruleset) error {
	return func(r lvs.Ruleset) error {
		if guard != nil {
			if err := guard.Apply(host.RulesFor(plan.Links, r)); err != nil {
				return err
			}
		}
		for _, l := range plan.Links {
			if l.Tundev {
				if err := claim.Steer(l.Name, r); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// AddService implements control.Administrator.
func (g *guarded) AddService(s lvs.VirtualService) error {
	return g.change([]lvs.VirtualService{s}, func() error { return g.Director.AddService(s) })
}

// DeleteService implements control.Administrator.
func (g *guarded) DeleteService(k lvs.ServiceKey) error {
	return g.change(nil, func() error { return g.Director.DeleteService(k) })
}

// AddServer implements control.Administrator.
func (g *guarded) AddServer(k lvs.ServiceKey, rs lvs.RealServer) error {
	return g.change(g.withServer(k, rs), func() error { return g.Director.AddServer(k, rs) })
}

// EditServer implements control.Administrator.
func (g *guarded) EditServer(k lvs.ServiceKey, rs lvs.RealServer) error {
	with := g.withServer(k, rs)
	s, _ := g.service(k)
	if err := g.tundevTakes(with); err != nil {
		return err
	}
	known := slices.ContainsFunc(s.Servers, func(now lvs.RealServer) bool { return now.ServerKey == rs.ServerKey && now.Method == rs.Method })
	if known || !rs.Method.RewritesPorts() {
		with = nil // the host is kept off already, or no replies pass
	}
	return g.change(with, func() error { return g.Director.EditServer(k, rs) })
}

// withServer is the service as it is with one server: rs. There is none where
// there is no such service.
func (g *guarded) withServer(k lvs.ServiceKey, rs lvs.RealServer) []lvs.VirtualService {
	s, there := g.service(k)
	if !there {
		return nil
	}
	s.Servers = []lvs.RealServer{rs}
	return []lvs.VirtualService{s}
}

func (g *guarded) service(k lvs.ServiceKey) (lvs.VirtualService, bool) {
	all := g.Ruleset().Services
	i := slices.IndexFunc(all, func(s lvs.VirtualService) bool { return s.ServiceKey == k })
	if i < 0 {
		return lvs.VirtualService{}, false
	}
	return all[i], true
}

// DeleteServer implements control.Administrator.
func (g *guarded) DeleteServer(k lvs.ServiceKey, server lvs.ServerKey) error {
	return g.change(nil, func() error { return g.Director.DeleteServer(k, server) })
}

// Flush implements control.Administrator.
func (g *guarded) Flush() {
	_ = g.change(nil, func() error { g.Director.Flush(); return nil }) // the host is kept off too much for a while, at worst
}
