package control

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"pktdirector/lvs"
	"pktdirector/sched"
)

// Change is one change of a transaction. Each says what shall be, so that made
// twice it changes nothing the second time.
type Change struct {
	// Do is put (the service or server is as Spec says), patch (the members of
	// Spec are as it says, null for the default, all others stay; RFC 7396), or
	// delete (it is not there).
	Do      string          `json:"do"`
	Service string          `json:"service"`          // as ServiceID writes it
	Server  string          `json:"server,omitempty"` // as ServerID writes it; "": the service itself
	Spec    json.RawMessage `json:"spec,omitempty"`   // a ServiceSpec or ServerSpec
}

// Transaction is a list of changes, made in their order. All of them are live or,
// where one is refused, none.
type Transaction struct {
	Changes []Change `json:"changes"`
	DryRun  bool     `json:"dry_run,omitempty"` // tell what would change, and change nothing
}

// Outcome is what a request changed.
type Outcome struct {
	Changed bool     `json:"changed"`
	Changes []string `json:"changes"`           // in words
	DryRun  bool     `json:"dry_run,omitempty"` // nothing was changed: it would have been
}

// What Change.Do says.
const (
	doPut    = "put"
	doPatch  = "patch"
	doDelete = "delete"
)

// draft is a ruleset while it is changed.
type draft struct {
	links []Link
	rules lvs.Ruleset
	at    map[lvs.ServiceKey]int
	own   map[lvs.ServiceKey]bool // their lists of servers are the draft's
}

// newDraft leaves r as it is.
func newDraft(r lvs.Ruleset, links []Link) *draft {
	r.Services = slices.Clone(r.Services)
	d := &draft{links: links, rules: r, at: map[lvs.ServiceKey]int{}, own: map[lvs.ServiceKey]bool{}}
	for i := range r.Services {
		d.at[r.Services[i].ServiceKey] = i
	}
	return d
}

// service is nil where there is none.
func (d *draft) service(k lvs.ServiceKey) *lvs.VirtualService {
	i, there := d.at[k]
	if !there {
		return nil
	}
	return &d.rules.Services[i]
}

// make makes one change. Places of faults begin with place.
func (d *draft) make(c Change, place string) error {
	key, err := ParseServiceID(c.Service)
	if err != nil {
		return faultAt(http.StatusUnprocessableEntity, place+"service", c.Service, err.Error())
	}
	if c.Do != doPut && c.Do != doPatch && c.Do != doDelete {
		return faultAt(http.StatusUnprocessableEntity, place+"do", c.Do, fmt.Sprintf("%q is no change: write put, patch or delete", c.Do))
	}
	if c.Server != "" {
		return d.makeServer(c, key, place)
	}
	now := d.service(key)
	switch {
	case c.Do == doDelete:
		d.delete(key)
		return nil
	case c.Do == doPatch && now == nil:
		return faultAt(http.StatusNotFound, place+"service", c.Service, fmt.Sprintf("there is no service %s: put it first", key))
	}
	next, err := d.decodeService(c, key, now, specPlace(place))
	if err != nil {
		return err
	}
	if now != nil {
		*now = next
		return nil
	}
	d.at[key] = len(d.rules.Services)
	d.rules.Services = append(d.rules.Services, next)
	return nil
}

func (d *draft) delete(key lvs.ServiceKey) {
	i, there := d.at[key]
	if !there {
		return
	}
	last := len(d.rules.Services) - 1 // the order of services means nothing
	d.rules.Services[i] = d.rules.Services[last]
	d.at[d.rules.Services[i].ServiceKey] = i
	d.rules.Services = d.rules.Services[:last]
	delete(d.at, key)
	delete(d.own, key)
}

// servers returns a service's list of servers, to change.
func (d *draft) servers(s *lvs.VirtualService) []lvs.RealServer {
	if !d.own[s.ServiceKey] {
		s.Servers = slices.Clone(s.Servers)
		d.own[s.ServiceKey] = true
	}
	return s.Servers
}

// specPlace is where a change's spec stands: the body itself where that is it.
func specPlace(place string) string {
	if place == "" {
		return ""
	}
	return place + "spec"
}

// decodeService reads a service by the rules of the configuration file.
func (d *draft) decodeService(c Change, key lvs.ServiceKey, now *lvs.VirtualService, place string) (lvs.VirtualService, error) {
	doc, v, err := parseJSON(c.Spec, place)
	if err != nil {
		return lvs.VirtualService{}, err
	}
	var known []fault
	if now != nil {
		_, current, err := parseJSON(marshal(specOf(now)), place)
		if err != nil {
			return lvs.VirtualService{}, err
		}
		d.serviceOf(current)
		known = current.doc.faults
		if c.Do == doPatch {
			v = current.patched(v, doc)
		}
	}
	keyed := specOf(&lvs.VirtualService{ServiceKey: key})
	v.fillIn(marshal(ServiceSpec{VIP: keyed.VIP, Protocol: keyed.Protocol, Port: keyed.Port, FWMark: keyed.FWMark, IPv6: keyed.IPv6}))
	next := d.serviceOf(v)
	if p := doc.problem(known); p != nil {
		return next, p
	}
	if next.ServiceKey != key {
		return next, faultAt(http.StatusUnprocessableEntity, place, next.ServiceKey.String(), fmt.Sprintf("speaks of %s, but the change is of %s: leave vip, protocol, port and fwmark out", next.ServiceKey, key))
	}
	if now != nil && !v.has("servers") {
		next.Servers = now.Servers
	}
	return next, validate(next, place)
}

// serviceOf decodes a service; what is wrong with it, v's document knows.
func (d *draft) serviceOf(v value) lvs.VirtualService {
	c := &Config{Links: d.links}
	sd := serviceDecoder{config: c, seen: map[lvs.ServiceKey]int{}}
	sd.decode(v, 0)
	return c.Ruleset.Services[0]
}

func (d *draft) makeServer(c Change, key lvs.ServiceKey, place string) error {
	server, err := ParseServerID(c.Server)
	if err != nil {
		return faultAt(http.StatusUnprocessableEntity, place+"server", c.Server, err.Error())
	}
	s := d.service(key)
	i := -1
	if s != nil {
		i = slices.IndexFunc(s.Servers, func(rs lvs.RealServer) bool { return rs.ServerKey == server })
	}
	switch {
	case c.Do == doDelete:
		if i >= 0 {
			s.Servers = slices.Delete(d.servers(s), i, i+1)
		}
		return nil
	case s == nil:
		return faultAt(http.StatusNotFound, place+"service", c.Service, fmt.Sprintf("there is no service %s: put it first", key))
	case c.Do == doPatch && i < 0:
		return faultAt(http.StatusNotFound, place+"server", c.Server, fmt.Sprintf("the service %s has no server %s: put it first", key, server))
	}
	place = specPlace(place)
	doc, v, err := parseJSON(c.Spec, place)
	if err != nil {
		return err
	}
	var known []fault
	if i >= 0 {
		_, current, err := parseJSON(marshal(serverSpecOf(&s.Servers[i])), place)
		if err != nil {
			return err
		}
		d.serverOf(current, s)
		known = current.doc.faults
		if c.Do == doPatch {
			v = current.patched(v, doc)
		}
	}
	port := server.Port
	v.fillIn(marshal(ServerSpec{Address: server.RIP.String(), Port: &port}))
	next := d.serverOf(v, s)
	if p := doc.problem(known); p != nil {
		return p
	}
	if next.ServerKey != server {
		return faultAt(http.StatusUnprocessableEntity, place, next.ServerKey.String(), fmt.Sprintf("speaks of %s, but the change is of %s: leave address and port out", next.ServerKey, server))
	}
	one := *s
	one.Servers = []lvs.RealServer{next}
	if err := validate(one, place); err != nil {
		return err
	}
	if s.Servers = d.servers(s); i >= 0 {
		s.Servers[i] = next
	} else {
		s.Servers = append(s.Servers, next)
	}
	return nil
}

func (d *draft) serverOf(v value, s *lvs.VirtualService) lvs.RealServer {
	sd := serverDecoder{links: d.links, service: s, method: value{doc: v.doc}, seen: map[lvs.ServerKey]int{}}
	return sd.decode(v, 0)
}

// validate holds a service against the kernel's rules.
func validate(s lvs.VirtualService, place string) error {
	err := (&lvs.Ruleset{Services: []lvs.VirtualService{s}}).Validate(sched.Known)
	if err == nil {
		return nil
	}
	what := strings.TrimPrefix(err.Error(), fmt.Sprintf("services[0] (%s): ", s.ServiceKey))
	return faultAt(http.StatusUnprocessableEntity, place, s.ServiceKey.String(), what)
}

// faultAt is a refusal of one place.
func faultAt(status int, place, is, what string) *Problem {
	f := Fault{Place: place, Value: is, Detail: what}
	p := problem(status, "%s", f)
	p.Faults = []Fault{f}
	return p
}

// marshal writes a spec, which JSON has words for.
func marshal(spec any) []byte {
	text, err := json.Marshal(spec)
	if err != nil {
		return []byte("{}")
	}
	return text
}

// has reports whether v is a mapping with the key.
func (v value) has(key string) bool {
	return slices.Contains(v.keys(), key)
}

// fillIn gives the mapping v the members of an object that it lacks.
func (v value) fillIn(object []byte) {
	m, ok := v.node.(*ast.MappingNode)
	_, other, err := parseJSON(object, "")
	if !ok || err != nil {
		return
	}
	if v.has("fwmark") || v.has("vip") && !strings.Contains(string(object), `"vip"`) {
		return // a service of its own key, which is not this one's or needs nothing
	}
	for _, pair := range other.node.(*ast.MappingNode).Values {
		if !v.has(pair.Key.GetToken().Value) {
			m.Values = append(m.Values, pair)
		}
	}
}

// patched is v with what patch says (RFC 7396), of doc from then on.
func (v value) patched(patch value, doc *document) value {
	v.doc = doc
	to, ok1 := v.node.(*ast.MappingNode)
	from, ok2 := patch.node.(*ast.MappingNode)
	if !ok1 || !ok2 {
		return patch
	}
	next := ast.Mapping(to.Start, true, to.Values...)
	seen := map[string]bool{}
	for _, pair := range from.Values {
		name := pair.Key.GetToken().Value
		if seen[name] {
			doc.fault(pair.Key.GetToken(), v.child(name), "stands here a second time: write it once")
		}
		seen[name] = true
		i := slices.IndexFunc(next.Values, func(p *ast.MappingValueNode) bool { return p.Key.GetToken().Value == name })
		if i < 0 {
			i = len(next.Values)
			next.Values = append(next.Values, ast.MappingValue(pair.Start, pair.Key, ast.Mapping(to.Start, true)))
		}
		switch old := next.Values[i].Value.(type) {
		case *ast.MappingNode:
			if _, both := pair.Value.(*ast.MappingNode); both {
				merged := value{doc: doc, node: old, path: v.child(name)}.patched(value{doc: doc, node: pair.Value}, doc)
				pair = ast.MappingValue(pair.Start, pair.Key, merged.node)
			}
		}
		if _, null := pair.Value.(*ast.NullNode); null {
			next.Values = slices.Delete(next.Values, i, i+1)
		} else {
			next.Values[i] = pair
		}
	}
	v.node = next
	return v
}
