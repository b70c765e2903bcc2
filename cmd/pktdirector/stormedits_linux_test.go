package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"pktdirector/control"
	"pktdirector/lvs"
)

// stormOp is one difference of two rulesets, in ipvsadm's and in the API's words.
type stormOp struct {
	ipvsadm string
	change  *control.Change // nil: the API has none
	apply   func(*control.Config)
}

// stormOps are the differences of two states, or nil where they differ in settings,
// which only the file says.
func stormOps(now, next *control.Config) []stormOp {
	if fmt.Sprint(stormSettings(now)) != fmt.Sprint(stormSettings(next)) {
		return nil
	}
	var ops []stormOp
	for _, s := range now.Ruleset.Services {
		if stormService(&next.Ruleset, s.ServiceKey) == nil {
			ops = append(ops, stormOp{"-D " + stormName(s.ServiceKey), &control.Change{Do: "delete", Service: control.ServiceID(s.ServiceKey)},
				func(c *control.Config) {
					c.Ruleset.Services = slices.DeleteFunc(c.Ruleset.Services, func(x lvs.VirtualService) bool { return x.ServiceKey == s.ServiceKey })
				}})
		}
	}
	for _, s := range next.Ruleset.Services {
		was := stormService(&now.Ruleset, s.ServiceKey)
		bare := s
		bare.Servers = nil
		put := &control.Change{Do: "put", Service: control.ServiceID(s.ServiceKey), Spec: stormJSON(stormServiceSpec(&s))}
		switch {
		case was == nil:
			ops = append(ops, stormOp{"-A " + stormWords(&s), put, func(c *control.Config) { c.Ruleset.Services = append(c.Ruleset.Services, bare) }})
		case was.Scheduler != s.Scheduler || was.Flags != s.Flags || was.Persist != s.Persist:
			ops = append(ops, stormOp{"-E " + stormWords(&s), put, func(c *control.Config) {
				to := stormService(&c.Ruleset, s.ServiceKey)
				to.Scheduler, to.Flags, to.Persist = s.Scheduler, s.Flags, s.Persist
			}})
		}
		ops = append(ops, stormServerOps(was, &s)...)
	}
	if now.Timeouts != next.Timeouts {
		t := next.Timeouts
		ops = append(ops, stormOp{fmt.Sprintf("--set %d %d %d", t.TCP/time.Second, t.TCPFin/time.Second, t.UDP/time.Second), nil,
			func(c *control.Config) { c.Timeouts = t }})
	}
	return ops
}

func stormServerOps(was, s *lvs.VirtualService) (ops []stormOp) {
	key := s.ServiceKey
	add := func(op, do string, rs lvs.RealServer, apply func(*lvs.VirtualService)) {
		words := fmt.Sprintf("%s %s -r %s", op, stormName(key), rs.ServerKey)
		c := &control.Change{Do: do, Service: control.ServiceID(key), Server: control.ServerID(rs.ServerKey)}
		if op != "-d" {
			words += fmt.Sprintf(" -m -w %d -x %d -y %d", rs.Weight, rs.Upper, rs.Lower)
			c.Spec = stormServerSpec(&rs)
		}
		ops = append(ops, stormOp{words, c, func(c *control.Config) { apply(stormService(&c.Ruleset, key)) }})
	}
	if was != nil {
		for _, rs := range was.Servers {
			if stormServerOf(s, rs.ServerKey) == nil {
				add("-d", "delete", rs, func(to *lvs.VirtualService) {
					to.Servers = slices.DeleteFunc(to.Servers, func(x lvs.RealServer) bool { return x.ServerKey == rs.ServerKey })
				})
			}
		}
	}
	for _, rs := range s.Servers {
		switch old := stormServerOf(was, rs.ServerKey); {
		case old == nil:
			add("-a", "put", rs, func(to *lvs.VirtualService) { to.Servers = append(to.Servers, rs) })
		case *old != rs:
			add("-e", "patch", rs, func(to *lvs.VirtualService) { *stormServerOf(to, rs.ServerKey) = rs })
		}
	}
	return ops
}

func stormSettings(c *control.Config) map[string]int {
	all := map[string]int{}
	for _, s := range c.Sysctl {
		if n := stormSetting(c, s.Name); n != 0 {
			all[s.Name] = n
		}
	}
	return all
}

func stormName(k lvs.ServiceKey) string { return fmt.Sprintf("-t %s:%d", k.VIP, k.Port) }

// stormWords names a service to ipvsadm with all that it is.
func stormWords(s *lvs.VirtualService) string {
	words := stormName(s.ServiceKey) + " -s " + s.Scheduler
	if s.Flags != 0 {
		words += " -b " + s.Scheduler + "-fallback"
	}
	if s.Persist != 0 {
		words += fmt.Sprintf(" -p %d", s.Persist/time.Second)
	}
	return words
}

// stormServiceSpec writes a service without its servers for the API.
func stormServiceSpec(s *lvs.VirtualService) control.ServiceSpec {
	spec := control.ServiceSpec{Scheduler: s.Scheduler, Timeout: int64(s.Persist / time.Second)}
	if s.Flags != 0 {
		spec.Flags = []string{s.Scheduler + "-fallback"}
	}
	return spec
}

// stormWholeSpec writes it with name and servers.
func stormWholeSpec(s *lvs.VirtualService) control.ServiceSpec {
	spec := stormServiceSpec(s)
	spec.VIP, spec.Protocol, spec.Port = s.VIP.String(), "tcp", &s.Port
	spec.Servers = []control.ServerSpec{}
	for i := range s.Servers {
		rs := &s.Servers[i]
		spec.Servers = append(spec.Servers, control.ServerSpec{Address: rs.RIP.String(), Port: &rs.Port, Weight: &rs.Weight, Method: "nat", Upper: rs.Upper, Lower: rs.Lower})
	}
	return spec
}

func stormJSON(v any) json.RawMessage {
	text, _ := json.Marshal(v) // plain values
	return text
}

func stormServerSpec(rs *lvs.RealServer) json.RawMessage {
	return stormJSON(map[string]any{"weight": rs.Weight, "method": "nat", "uthreshold": rs.Upper, "lthreshold": rs.Lower})
}

// stormCopy is a configuration that may be changed.
func stormCopy(c control.Config) control.Config {
	c.Ruleset.Services = slices.Clone(c.Ruleset.Services)
	for i := range c.Ruleset.Services {
		c.Ruleset.Services[i].Servers = slices.Clone(c.Ruleset.Services[i].Servers)
	}
	c.Sysctl = slices.Clone(c.Sysctl)
	return c
}

// stormScript chooses edits.
type stormScript struct {
	rng    *rand.Rand
	main   []lvs.ServiceKey // stay, with two usable servers at least
	beside []lvs.ServiceKey // come and go
	pool   []lvs.ServerKey
}

// stormSchedulers are those that pass a connection on whenever a server is usable.
func stormSchedulers() []string {
	return []string{"rr", "wrr", "lc", "wlc", "sed", "nq", "lblc", "lblcr", "fo", "twos", "sh", "mh"}
}

// steady reports whether the services that stay can serve.
func (s *stormScript) steady(c *control.Config) bool {
	return !slices.ContainsFunc(s.main, func(k lvs.ServiceKey) bool { return stormUsable(stormService(&c.Ruleset, k)) < 2 })
}

// next makes one to four random changes to a state. longAgo are servers that have
// been away for long.
func (s *stormScript) next(c control.Config, longAgo []stormServer) control.Config {
	for {
		next := stormCopy(c)
		for range 1 + max(s.rng.IntN(6)-2, 0) {
			s.mutate(&next, longAgo)
		}
		if s.steady(&next) && stormText(&next) != stormText(&c) {
			return next
		}
	}
}

func (s *stormScript) server(key lvs.ServerKey) lvs.RealServer {
	rs := lvs.RealServer{ServerKey: key, Method: lvs.Masq, Weight: 1 + s.rng.IntN(9)}
	switch s.rng.IntN(8) {
	case 0:
		rs.Weight = 0
	case 1:
		rs.Upper = uint32(1 + s.rng.IntN(200))
		rs.Lower = rs.Upper / 2
	}
	return rs
}

func (s *stormScript) service(key lvs.ServiceKey) lvs.VirtualService {
	v := lvs.VirtualService{ServiceKey: key}
	s.schedule(&v)
	for _, i := range s.rng.Perm(len(s.pool))[:2+s.rng.IntN(3)] {
		v.Servers = append(v.Servers, lvs.RealServer{ServerKey: s.pool[i], Method: lvs.Masq, Weight: 1 + s.rng.IntN(9)})
	}
	return v
}

func (s *stormScript) schedule(v *lvs.VirtualService) {
	v.Scheduler, v.Flags = stormSchedulers()[s.rng.IntN(len(stormSchedulers()))], 0
	if v.Scheduler == "sh" || v.Scheduler == "mh" {
		v.Flags = lvs.FlagFallback
	}
}

// mutate makes one random change.
func (s *stormScript) mutate(c *control.Config, longAgo []stormServer) {
	if len(longAgo) > 0 && s.rng.IntN(2) == 0 {
		back := longAgo[s.rng.IntN(len(longAgo))]
		if v := stormService(&c.Ruleset, back.service); v == nil {
			v := s.service(back.service)
			if stormServerOf(&v, back.server) == nil {
				v.Servers = append(v.Servers, s.server(back.server))
			}
			c.Ruleset.Services = append(c.Ruleset.Services, v)
		} else if stormServerOf(v, back.server) == nil {
			v.Servers = append(v.Servers, s.server(back.server))
		}
		return
	}
	all := slices.Concat(s.main, s.main, s.beside)
	key := all[s.rng.IntN(len(all))]
	v := stormService(&c.Ruleset, key)
	if v == nil {
		c.Ruleset.Services = append(c.Ruleset.Services, s.service(key))
		return
	}
	switch kind := s.rng.IntN(20); {
	case kind < 6: // a weight, a threshold, or quiesced
		if len(v.Servers) > 0 {
			rs := &v.Servers[s.rng.IntN(len(v.Servers))]
			*rs = s.server(rs.ServerKey)
		}
	case kind < 9:
		if len(v.Servers) > 0 {
			v.Servers = slices.Delete(v.Servers, 0, 1)
			if n := len(v.Servers); n > 0 { // another one the next time
				at := s.rng.IntN(n)
				v.Servers = slices.Concat(v.Servers[at:], v.Servers[:at])
			}
		}
	case kind < 13:
		if server := s.pool[s.rng.IntN(len(s.pool))]; stormServerOf(v, server) == nil {
			v.Servers = append(v.Servers, s.server(server))
		}
	case kind < 15:
		s.schedule(v)
	case kind < 16:
		v.Persist = time.Duration(s.rng.IntN(3)) * 30 * time.Second
	case kind < 18: // of those that come and go
		if slices.Contains(s.beside, key) {
			c.Ruleset.Services = slices.DeleteFunc(c.Ruleset.Services, func(x lvs.VirtualService) bool { return x.ServiceKey == key })
		}
	case kind < 19:
		c.Timeouts.TCP = time.Duration(300+s.rng.IntN(600)) * time.Second
		c.Timeouts.TCPFin = time.Duration(100+s.rng.IntN(100)) * time.Second
		c.Timeouts.UDP = time.Duration(100+s.rng.IntN(100)) * time.Second
	default:
		name := []string{"expire_nodest_conn", "expire_quiescent_template"}[s.rng.IntN(2)]
		value := 1 - stormSetting(c, name)
		c.Sysctl = slices.DeleteFunc(c.Sysctl, func(x control.Sysctl) bool { return x.Name == name })
		c.Sysctl = append(c.Sysctl, control.Sysctl{Name: name, Value: fmt.Sprint(value)})
	}
}

// restoreAll is a state in which every service serves with every server.
func (s *stormScript) restoreAll(c control.Config) control.Config {
	next := stormCopy(c)
	next.Sysctl = nil
	next.Ruleset.Services = nil
	for _, key := range slices.Concat(s.main, s.beside) {
		v := lvs.VirtualService{ServiceKey: key, Scheduler: "wlc"}
		for _, server := range s.pool {
			v.Servers = append(v.Servers, lvs.RealServer{ServerKey: server, Method: lvs.Masq, Weight: 1})
		}
		next.Ruleset.Services = append(next.Ruleset.Services, v)
	}
	return next
}

// words tell what a reload changes.
func stormPlan(now, next *control.Config) string {
	var words []string
	for _, op := range stormOps(&control.Config{Ruleset: now.Ruleset, Timeouts: now.Timeouts}, &control.Config{Ruleset: next.Ruleset, Timeouts: next.Timeouts}) {
		words = append(words, op.ipvsadm)
	}
	if a, b := fmt.Sprint(stormSettings(now)), fmt.Sprint(stormSettings(next)); a != b {
		words = append(words, "settings "+b)
	}
	return strings.Join(words, "; ")
}
