package control

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"pktdirector/lvs"
)

// difference says in words what changes from one ruleset to another; nothing where
// they are the same but for the order.
func difference(now, next *lvs.Ruleset) []string {
	var words []string
	old := map[lvs.ServiceKey]*lvs.VirtualService{}
	for i := range now.Services {
		old[now.Services[i].ServiceKey] = &now.Services[i]
	}
	kept := map[lvs.ServiceKey]bool{}
	for i := range next.Services {
		s := &next.Services[i]
		kept[s.ServiceKey] = true
		before := old[s.ServiceKey]
		if before == nil {
			words = append(words, fmt.Sprintf("service %s: added, scheduler %s", s.ServiceKey, s.Scheduler))
			before = &lvs.VirtualService{ServiceKey: s.ServiceKey}
		} else {
			a, b := *before, *s
			a.Servers, b.Servers = nil, nil
			if !reflect.DeepEqual(a, b) {
				words = append(words, members("service "+s.ServiceKey.String(), specOf(&a), specOf(&b))...)
			}
		}
		words = append(words, serverDifference(before, s)...)
	}
	for i := range now.Services {
		if k := now.Services[i].ServiceKey; !kept[k] {
			words = append(words, fmt.Sprintf("service %s: removed", k))
		}
	}
	return words
}

func serverDifference(now, next *lvs.VirtualService) []string {
	var words []string
	old := map[lvs.ServerKey]*lvs.RealServer{}
	for i := range now.Servers {
		old[now.Servers[i].ServerKey] = &now.Servers[i]
	}
	kept := map[lvs.ServerKey]bool{}
	for i := range next.Servers {
		rs := &next.Servers[i]
		kept[rs.ServerKey] = true
		name := fmt.Sprintf("server %s of %s", rs.ServerKey, next.ServiceKey)
		switch before := old[rs.ServerKey]; {
		case before == nil:
			words = append(words, fmt.Sprintf("%s: added, method %s, weight %d", name, rs.Method.Short(), rs.Weight))
		case *before != *rs:
			words = append(words, members(name, serverSpecOf(before), serverSpecOf(rs))...)
		}
	}
	for i := range now.Servers {
		if k := now.Servers[i].ServerKey; !kept[k] {
			words = append(words, fmt.Sprintf("server %s of %s: removed", k, next.ServiceKey))
		}
	}
	return words
}

// members says which members of two specs of one thing differ.
func members(name string, now, next any) []string {
	a, b := specJSON(now), specJSON(next)
	all := maps.Clone(a)
	maps.Copy(all, b)
	text := func(m json.RawMessage) string {
		if m == nil {
			return "default"
		}
		return string(m)
	}
	var words []string
	for _, k := range slices.Sorted(maps.Keys(all)) {
		if from, to := text(a[k]), text(b[k]); from != to {
			words = append(words, fmt.Sprintf("%s: %s %s -> %s", name, k, from, to))
		}
	}
	return words
}
