package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"pktdirector/lvs"
	"pktdirector/sched"
)

// Editor changes what is balanced: one change at a time, all of each or none. who
// is who asked for it, for the log.
type Editor interface {
	// Ruleset returns what is balanced now.
	Ruleset() lvs.Ruleset
	// Edit hands change what is balanced now, and makes live what it returns with
	// words about it. Without words it changes nothing.
	Edit(who string, change func(now lvs.Ruleset) (next lvs.Ruleset, words []string, err error)) error
	// Zero has a service, or with nil all, counted from now on.
	Zero(who string, service *lvs.ServiceKey) error
	// Links are those the director works on.
	Links() []Link
}

// ServiceState is a service with its counters and its real servers, under the name
// that the API's paths have for it.
type ServiceState struct {
	ID string `json:"id"` // as ServiceID writes it
	Service
	Spec ServiceSpec `json:"spec"` // what a PUT of it takes
}

// ServerState is a real server with its counters.
type ServerState struct {
	ID string `json:"id"` // as ServerID writes it
	Destination
	Spec ServerSpec `json:"spec"` // what a PUT of it takes
}

// RulesetSpec is all that is balanced.
type RulesetSpec struct {
	Services []ServiceSpec `json:"services"`
}

// maxChanges is how many changes a transaction may have.
const maxChanges = 10_000

func (a *api) listServices(*http.Request) ([]ServiceState, error) {
	shown, rules := a.Status().Services, a.Ruleset()
	list := make([]ServiceState, 0, len(shown))
	specs := map[string]ServiceSpec{}
	for i := range rules.Services {
		specs[ServiceID(rules.Services[i].ServiceKey)] = wholeSpec(&rules.Services[i])
	}
	for _, s := range shown {
		id := s.id()
		if spec, there := specs[id]; there { // else it was removed a moment ago
			list = append(list, ServiceState{id, s, spec})
		}
	}
	return list, nil
}

// id is the service's name in paths.
func (s *Service) id() string {
	if s.Mark != 0 {
		return ServiceID(lvs.ServiceKey{Mark: s.Mark, V6: s.IPv6})
	}
	return fmt.Sprintf("%s-%s-%d", strings.ToLower(s.Protocol), s.VIP, s.Port)
}

// serviceOf finds the service that a request's path names.
func (a *api) serviceOf(r *http.Request) (ServiceState, error) {
	key, err := ParseServiceID(r.PathValue("service"))
	if err != nil {
		return ServiceState{}, faultAt(http.StatusUnprocessableEntity, "service", r.PathValue("service"), err.Error())
	}
	all, err := a.listServices(r)
	if err != nil {
		return ServiceState{}, err
	}
	i := slices.IndexFunc(all, func(s ServiceState) bool { return s.ID == ServiceID(key) })
	if i < 0 {
		return ServiceState{}, problem(http.StatusNotFound, "there is no service %s", key)
	}
	return all[i], nil
}

func (a *api) showService(r *http.Request) (ServiceState, error) { return a.serviceOf(r) }

func (a *api) listServers(r *http.Request) ([]ServerState, error) {
	s, err := a.serviceOf(r)
	if err != nil {
		return nil, err
	}
	list := make([]ServerState, 0, len(s.Destinations))
	specs := map[string]ServerSpec{}
	for _, spec := range s.Spec.Servers {
		specs[fmt.Sprintf("%s-%d", spec.Address, *spec.Port)] = spec
	}
	for _, d := range s.Destinations {
		id := fmt.Sprintf("%s-%d", d.Address, d.Port)
		if spec, there := specs[id]; there {
			list = append(list, ServerState{id, d, spec})
		}
	}
	return list, nil
}

func (a *api) showServer(r *http.Request) (ServerState, error) {
	key, err := ParseServerID(r.PathValue("server"))
	if err != nil {
		return ServerState{}, faultAt(http.StatusUnprocessableEntity, "server", r.PathValue("server"), err.Error())
	}
	all, err := a.listServers(r)
	if err != nil {
		return ServerState{}, err
	}
	i := slices.IndexFunc(all, func(s ServerState) bool { return s.ID == ServerID(key) })
	if i < 0 {
		return ServerState{}, problem(http.StatusNotFound, "the service %s has no server %s", r.PathValue("service"), key)
	}
	return all[i], nil
}

func (a *api) showRuleset(*http.Request) (RulesetSpec, error) {
	rules := a.Ruleset()
	set := RulesetSpec{Services: make([]ServiceSpec, 0, len(rules.Services))}
	for i := range rules.Services {
		set.Services = append(set.Services, wholeSpec(&rules.Services[i]))
	}
	return set, nil
}

// edit carries out a request that names its service, and server, in the path.
func edit(do string) func(*api, *http.Request, json.RawMessage) (Outcome, error) {
	return func(a *api, r *http.Request, spec json.RawMessage) (Outcome, error) {
		dry, err := dryRun(r)
		if err != nil {
			return Outcome{}, err
		}
		c := Change{Do: do, Service: r.PathValue("service"), Server: r.PathValue("server"), Spec: spec}
		return a.transact(r, dry, func(d *draft) error { return d.make(c, "") })
	}
}

// remove is edit without a body.
func remove(a *api, r *http.Request, _ None) (Outcome, error) { return edit(doDelete)(a, r, nil) }

func (a *api) transaction(r *http.Request, t Transaction) (Outcome, error) {
	if len(t.Changes) > maxChanges {
		return Outcome{}, faultAt(http.StatusUnprocessableEntity, "changes", fmt.Sprint(len(t.Changes)),
			fmt.Sprintf("at most %d changes go together: PUT /v1/ruleset takes any number of services", maxChanges))
	}
	return a.transact(r, t.DryRun, func(d *draft) error {
		for i, c := range t.Changes {
			if err := d.make(c, fmt.Sprintf("changes[%d].", i)); err != nil {
				return err
			}
		}
		return nil
	})
}

func (a *api) putRuleset(r *http.Request, body json.RawMessage) (Outcome, error) {
	dry, err := dryRun(r)
	if err != nil {
		return Outcome{}, err
	}
	return a.transact(r, dry, func(d *draft) error {
		doc, v, err := parseJSON(body, "")
		if err != nil {
			return err
		}
		c := &Config{Links: d.links}
		sd := serviceDecoder{config: c, seen: map[lvs.ServiceKey]int{}}
		services := v.mapping("services")["services"]
		if v.needs(services, "services is missing: all that shall be balanced; [] for nothing") {
			items, _ := services.list()
			for i, one := range items {
				sd.decode(one, i)
			}
		}
		checkSources(&c.Ruleset, sd.sources)
		if p := doc.problem(nil); p != nil {
			return p
		}
		d.rules.Services = c.Ruleset.Services
		return nil
	})
}

// transact makes what change does to a draft live, or nothing.
func (a *api) transact(r *http.Request, dry bool, change func(*draft) error) (Outcome, error) {
	out := Outcome{Changes: []string{}, DryRun: dry}
	var refused error
	err := a.Edit(caller(r), func(now lvs.Ruleset) (lvs.Ruleset, []string, error) {
		d := newDraft(now, a.Links())
		if refused = change(d); refused != nil {
			return now, nil, refused
		}
		if err := d.rules.Validate(sched.Known); err != nil {
			refused = faultAt(http.StatusUnprocessableEntity, "", "", err.Error())
			return now, nil, refused
		}
		out.Changes = append(out.Changes, difference(&now, &d.rules)...)
		if dry {
			return now, nil, nil
		}
		return d.rules, out.Changes, nil
	})
	switch {
	case refused != nil:
		return Outcome{}, refused
	case errors.As(err, new(*Problem)):
		return Outcome{}, err
	case err != nil:
		return Outcome{}, problem(http.StatusConflict, "%v", err)
	}
	out.Changed = len(out.Changes) > 0 && !dry
	return out, nil
}

func (a *api) zeroAll(r *http.Request, _ None) (None, error) { return None{}, a.Zero(caller(r), nil) }

func (a *api) zeroService(r *http.Request, _ None) (None, error) {
	key, err := ParseServiceID(r.PathValue("service"))
	if err != nil {
		return None{}, faultAt(http.StatusUnprocessableEntity, "service", r.PathValue("service"), err.Error())
	}
	if err := a.Zero(caller(r), &key); errors.Is(err, lvs.ErrNoService) {
		return None{}, problem(http.StatusNotFound, "there is no service %s", key)
	} else if err != nil {
		return None{}, err
	}
	return None{}, nil
}
