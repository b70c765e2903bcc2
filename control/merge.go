package control

import (
	"slices"

	"pktdirector/lvs"
)

// Drift says what a reload makes of what was changed by hand since the file was
// loaded: by ipvsadm's commands, or through the API.
type Drift string

// What can be made of it. Whatever else the file says, what it changed itself
// since it was loaded counts.
const (
	DriftRestore Drift = "restore" // it becomes what the file says, the default
	DriftKeep    Drift = "keep"    // it stays
)

// Merge returns what a director is to do after a reload: base is what the file
// said when it was loaded, file what it says now, and now what the director does.
//
// By DriftRestore that is what the file says. By DriftKeep a value that was changed
// by hand stays unless the file changed the same value; what was added by hand stays
// unless the file had it and has it no more; what was deleted by hand comes back only
// when the file changed something of it (of a service, or of a server in it).
//
// What is there stays in its place; what is new follows in the file's order.
func Merge(base, file, now Running, drift Drift) Running {
	m := merger{keep: drift == DriftKeep}
	out := Running{Sysctl: map[string]string{}, Timeouts: file.Timeouts}
	for name, says := range file.Sysctl {
		out.Sysctl[name] = says
		if m.keep && says == base.Sysctl[name] {
			out.Sysctl[name] = now.Sysctl[name]
		}
	}
	for _, f := range timeoutValues() {
		if m.keep && *f.of(&file.Timeouts) == *f.of(&base.Timeouts) {
			*f.of(&out.Timeouts) = *f.of(&now.Timeouts)
		}
	}
	out.Ruleset.Marks = slices.Clone(file.Ruleset.Marks)
	if m.keep && marksText(file.Ruleset.Marks) == marksText(base.Ruleset.Marks) {
		out.Ruleset.Marks = slices.Clone(now.Ruleset.Marks)
	}
	was, says, is := servicesByKey(&base.Ruleset), servicesByKey(&file.Ruleset), servicesByKey(&now.Ruleset)
	for _, k := range bothKeys(now.Ruleset.Services, file.Ruleset.Services, func(s *lvs.VirtualService) lvs.ServiceKey { return s.ServiceKey }) {
		if s := m.service(was[k], says[k], is[k]); s != nil {
			out.Ruleset.Services = append(out.Ruleset.Services, *s)
		}
	}
	return out
}

// merger merges what there may be none of: nil.
type merger struct{ keep bool }

func (m merger) service(base, file, now *lvs.VirtualService) *lvs.VirtualService {
	switch {
	case file == nil && (base != nil || !m.keep):
		return nil
	case file == nil:
		return now // by hand
	case now == nil && m.keep && base != nil && sameService(base, file):
		return nil // by hand
	case now == nil:
		return file
	}
	out := *now
	for _, f := range serviceValues() {
		if base == nil || !m.keep || f.text(file) != f.text(base) {
			f.copy(&out, file)
		}
	}
	was, says, is := serversByKey(base), serversByKey(file), serversByKey(now)
	out.Servers = nil
	for _, k := range bothKeys(now.Servers, file.Servers, func(rs *lvs.RealServer) lvs.ServerKey { return rs.ServerKey }) {
		if rs := m.server(was[k], says[k], is[k]); rs != nil {
			out.Servers = append(out.Servers, *rs)
		}
	}
	return &out
}

func (m merger) server(base, file, now *lvs.RealServer) *lvs.RealServer {
	switch {
	case file == nil && (base != nil || !m.keep):
		return nil
	case file == nil:
		return now
	case now == nil && m.keep && base != nil && sameServer(base, file):
		return nil
	case now == nil:
		return file
	}
	out := *now
	for _, f := range serverValues() {
		if base == nil || !m.keep || f.text(file) != f.text(base) {
			f.copy(&out, file)
		}
	}
	return &out
}

// sameService compares services with their servers, in whatever order those are.
func sameService(a, b *lvs.VirtualService) bool {
	for _, f := range serviceValues() {
		if f.text(a) != f.text(b) {
			return false
		}
	}
	others := serversByKey(b)
	for i := range a.Servers {
		if other := others[a.Servers[i].ServerKey]; other == nil || !sameServer(&a.Servers[i], other) {
			return false
		}
	}
	return len(a.Servers) == len(b.Servers)
}

func sameServer(a, b *lvs.RealServer) bool {
	for _, f := range serverValues() {
		if f.text(a) != f.text(b) {
			return false
		}
	}
	return true
}

func servicesByKey(r *lvs.Ruleset) map[lvs.ServiceKey]*lvs.VirtualService {
	all := make(map[lvs.ServiceKey]*lvs.VirtualService, len(r.Services))
	for i := range r.Services {
		all[r.Services[i].ServiceKey] = &r.Services[i]
	}
	return all
}

func serversByKey(s *lvs.VirtualService) map[lvs.ServerKey]*lvs.RealServer {
	all := map[lvs.ServerKey]*lvs.RealServer{}
	if s == nil {
		return all
	}
	for i := range s.Servers {
		all[s.Servers[i].ServerKey] = &s.Servers[i]
	}
	return all
}

// bothKeys lists the keys of first, then those that only second has.
func bothKeys[T any, K comparable](first, second []T, key func(*T) K) []K {
	var all []K
	seen := map[K]bool{}
	for _, list := range [][]T{first, second} {
		for i := range list {
			if k := key(&list[i]); !seen[k] {
				seen[k] = true
				all = append(all, k)
			}
		}
	}
	return all
}
