package control

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"pktdirector/lvs"
)

// Step is one thing that a reload does.
type Step struct {
	Op      string `json:"op"`                // add, change or remove
	What    string `json:"what"`              // service, server, marks, sysctl or timeout
	Service string `json:"service,omitempty"` // like tcp 192.0.2.10:80, or fwmark 1
	Server  string `json:"server,omitempty"`  // address and port
	Name    string `json:"name,omitempty"`    // of a setting or timeout
	// Changes are the values that change; of what is added, those that it has.
	Changes []ValueChange `json:"changes,omitempty"`
}

// ValueChange is a value before and after.
type ValueChange struct {
	Field string `json:"field,omitempty"` // none of a setting
	From  string `json:"from,omitempty"`
	To    string `json:"to"`
}

// The operations of steps.
const (
	OpAdd    = "add"
	OpChange = "change"
	OpRemove = "remove"
)

// DriftStep is something that was changed by hand since the file was loaded: a
// step from what the file said to what the director does.
type DriftStep struct {
	Step
	// Fate is what the reload makes of it: kept, restored, adopted (the file
	// says so, too) or replaced (by what the file says now). It is empty where no
	// reload is planned.
	Fate string `json:"fate,omitempty"`
}

// Fates of what was changed by hand.
const (
	FateKept     = "kept"
	FateRestored = "restored"
	FateAdopted  = "adopted"
	FateReplaced = "replaced"
)

// String is the step as a line of a plan.
func (s Step) String() string {
	sign, ok := map[string]string{OpAdd: "+", OpChange: "~", OpRemove: "-"}[s.Op]
	if !ok {
		sign = "?"
	}
	return sign + " " + s.subject() + s.values()
}

func (s Step) subject() string {
	switch s.What {
	case "service":
		return "service " + s.Service
	case "server":
		return "server " + s.Server + " of " + s.Service
	case "marks":
		return "marks"
	}
	return s.What + " " + s.Name
}

func (s Step) values() string {
	var all []string
	for _, c := range s.Changes {
		text := c.To
		if s.Op == OpChange {
			text = c.From + " -> " + c.To
		}
		if c.Field != "" {
			text = c.Field + " " + text
		}
		all = append(all, text)
	}
	if len(all) == 0 {
		return ""
	}
	return ": " + strings.Join(all, ", ")
}

// String is the drift as a line of a plan.
func (d DriftStep) String() string {
	text := "! " + d.subject() + d.values()
	switch d.Op {
	case OpAdd:
		text += ", added by hand"
	case OpRemove:
		text += ", removed by hand"
	default:
		text += " by hand"
	}
	if d.Fate != "" {
		text += ": " + d.Fate
	}
	return text
}

// Diff lists the steps from one state to another: what goes first, then what
// changes or comes.
func Diff(from, to Running) []Step {
	var steps []Step
	was, will := servicesByKey(&from.Ruleset), servicesByKey(&to.Ruleset)
	for i := range from.Ruleset.Services {
		if k := from.Ruleset.Services[i].ServiceKey; will[k] == nil {
			steps = append(steps, Step{Op: OpRemove, What: "service", Service: serviceName(k)})
		}
	}
	for i := range to.Ruleset.Services {
		steps = append(steps, diffService(was[to.Ruleset.Services[i].ServiceKey], &to.Ruleset.Services[i])...)
	}
	if a, b := marksText(from.Ruleset.Marks), marksText(to.Ruleset.Marks); a != b {
		steps = append(steps, Step{Op: OpChange, What: "marks", Changes: []ValueChange{{From: a, To: b}}})
	}
	for _, name := range slices.Sorted(maps.Keys(to.Sysctl)) {
		if a, b := from.Sysctl[name], to.Sysctl[name]; a != b {
			steps = append(steps, Step{Op: OpChange, What: "sysctl", Name: name, Changes: []ValueChange{{From: a, To: b}}})
		}
	}
	for _, f := range timeoutValues() {
		if a, b := *f.of(&from.Timeouts), *f.of(&to.Timeouts); a != b {
			steps = append(steps, Step{Op: OpChange, What: "timeout", Name: f.name, Changes: []ValueChange{{From: seconds(a), To: seconds(b)}}})
		}
	}
	return steps
}

func seconds(d time.Duration) string { return fmt.Sprint(int64(d / time.Second)) }

// diffService lists the steps to a service, from another with its key or none.
func diffService(from, to *lvs.VirtualService) []Step {
	name := serviceName(to.ServiceKey)
	var steps []Step
	s := Step{Op: OpAdd, What: "service", Service: name}
	bare := lvs.VirtualService{ServiceKey: to.ServiceKey}
	if from != nil {
		s.Op, bare = OpChange, *from
	}
	for _, f := range serviceValues() {
		a, b := f.text(&bare), f.text(to)
		switch {
		case a == b:
		case from == nil:
			s.Changes = append(s.Changes, ValueChange{Field: f.name, To: b})
		default:
			s.Changes = append(s.Changes, ValueChange{Field: f.name, From: a, To: b})
		}
	}
	if from == nil || len(s.Changes) > 0 {
		steps = append(steps, s)
	}
	was, will := serversByKey(from), serversByKey(to)
	if from != nil {
		for i := range from.Servers {
			if k := from.Servers[i].ServerKey; will[k] == nil {
				steps = append(steps, Step{Op: OpRemove, What: "server", Service: name, Server: k.String()})
			}
		}
	}
	for i := range to.Servers {
		rs := &to.Servers[i]
		s := Step{Op: OpAdd, What: "server", Service: name, Server: rs.ServerKey.String()}
		before := was[rs.ServerKey]
		if before != nil {
			s.Op = OpChange
		}
		for _, f := range serverValues() {
			switch {
			case before == nil && (f.name != "thresholds" || rs.Upper != 0):
				s.Changes = append(s.Changes, ValueChange{Field: f.name, To: f.text(rs)})
			case before != nil && f.text(before) != f.text(rs):
				s.Changes = append(s.Changes, ValueChange{Field: f.name, From: f.text(before), To: f.text(rs)})
			}
		}
		if before == nil || len(s.Changes) > 0 {
			steps = append(steps, s)
		}
	}
	return steps
}

// Drifted lists what was changed by hand, one value each, without their fates.
func Drifted(base, now Running) []DriftStep {
	all := []DriftStep{}
	for _, s := range Diff(base, now) {
		if s.Op != OpChange {
			all = append(all, DriftStep{Step: s})
			continue
		}
		for _, c := range s.Changes {
			one := s
			one.Changes = []ValueChange{c}
			all = append(all, DriftStep{Step: one})
		}
	}
	return all
}

// DriftFates lists what was changed by hand, and what a reload to target makes
// of it.
func DriftFates(base, file, now, target Running) []DriftStep {
	all := Drifted(base, now)
	was, says, will := valuesOf(base), valuesOf(file), valuesOf(target)
	is := valuesOf(now)
	for i := range all {
		switch k := all[i].key(); {
		case says[k] == is[k] && will[k] == is[k]:
			all[i].Fate = FateAdopted
		case will[k] == is[k]:
			all[i].Fate = FateKept
		case will[k] == was[k]:
			all[i].Fate = FateRestored
		default:
			all[i].Fate = FateReplaced
		}
	}
	return all
}

// valueKey names a value of a state: one of a service, of a server, a setting; or,
// without a field, that it is there.
type valueKey struct{ what, service, server, name string }

func (s Step) key() valueKey {
	k := valueKey{s.What, s.Service, s.Server, s.Name}
	if s.Op == OpChange && k.name == "" && len(s.Changes) == 1 {
		k.name = s.Changes[0].Field
	}
	return k
}

// valuesOf lists all values of a state.
func valuesOf(r Running) map[valueKey]string {
	all := map[valueKey]string{{what: "marks"}: marksText(r.Ruleset.Marks)}
	for i := range r.Ruleset.Services {
		s := &r.Ruleset.Services[i]
		name := serviceName(s.ServiceKey)
		all[valueKey{what: "service", service: name}] = "there"
		for _, f := range serviceValues() {
			all[valueKey{"service", name, "", f.name}] = f.text(s)
		}
		for j := range s.Servers {
			rs := &s.Servers[j]
			all[valueKey{"server", name, rs.ServerKey.String(), ""}] = "there"
			for _, f := range serverValues() {
				all[valueKey{"server", name, rs.ServerKey.String(), f.name}] = f.text(rs)
			}
		}
	}
	for name, value := range r.Sysctl {
		all[valueKey{what: "sysctl", name: name}] = value
	}
	for _, f := range timeoutValues() {
		all[valueKey{what: "timeout", name: f.name}] = seconds(*f.of(&r.Timeouts))
	}
	return all
}

// WritePlan writes drift and steps, one line each.
func WritePlan(w io.Writer, drift []DriftStep, steps []Step) error {
	for _, d := range drift {
		if _, err := fmt.Fprintln(w, d); err != nil {
			return err
		}
	}
	for _, s := range steps {
		if _, err := fmt.Fprintln(w, s); err != nil {
			return err
		}
	}
	return nil
}
