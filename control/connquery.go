package control

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"pktdirector/conntrack"
)

// ConnQuery asks for connections: which, in what order, and how many.
type ConnQuery struct {
	conntrack.Filter
	// Sort is one of SortKeys, with "-" in front the other way round; "": in no
	// order.
	Sort  string
	Limit int // the first so many; 0: all
}

// MaxSorted is the most connections that the director itself sorts.
const MaxSorted = 100_000

// FilterParameters are the parameters of a conntrack.Filter, as the API's queries
// and the command line name them.
func FilterParameters() []Parameter {
	return []Parameter{
		{"kind", "connections, templates (of persistent services), or all"},
		{"protocol", "tcp, udp or sctp"},
		{"client", "the client's address, net, or address:port"},
		{"vip", "the VIP, a net, or address:port"},
		{"server", "the real server's address, a net, or address:port"},
		{"service", "the service that chose the server: tcp-192.0.2.10-80, fwm-1"},
		{"state", "one or more states, joined by commas: ESTABLISHED,FIN_WAIT"},
		{"older", "age at least: seconds, or 10m, 2h"},
		{"younger", "age less than: seconds, or 10m, 2h"},
		{"idle", "time without a packet at least: seconds, or 10m, 2h"},
	}
}

// OrderParameters are the further parameters of a ConnQuery.
func OrderParameters() []Parameter {
	return []Parameter{
		{"sort", "largest or first first: " + strings.Join(SortKeys(), ", ") + "; with - in front the other way round"},
		{"limit", "at most so many"},
	}
}

// ParseConnQuery reads what Values writes. Errors are *ParameterErrors.
func ParseConnQuery(v url.Values) (ConnQuery, error) {
	var q ConnQuery
	known := append(FilterParameters(), OrderParameters()...)
	for _, name := range sortedKeys(v) {
		text := v.Get(name)
		if !slices.ContainsFunc(known, func(p Parameter) bool { return p.Name == name }) {
			return q, &ParameterError{name, text, "no such parameter"}
		}
		err := q.set(name, text)
		if err == nil && len(v[name]) > 1 {
			err = errors.New("given more than once")
		}
		if err != nil {
			return q, &ParameterError{name, text, err.Error()}
		}
	}
	if q.Older != 0 && q.Younger != 0 && q.Older >= q.Younger {
		return q, &ParameterError{"older", v.Get("older"), fmt.Sprintf("nothing is at least %v old and younger than %v: older must be less than younger", q.Older, q.Younger)}
	}
	return q, nil
}

// ParameterError says which parameter is wrong, and what would be right.
type ParameterError struct{ Name, Value, Detail string }

// Error implements error.
func (e *ParameterError) Error() string { return fmt.Sprintf("%s: %q: %s", e.Name, e.Value, e.Detail) }

func sortedKeys(v url.Values) []string {
	var names []string
	for name := range v {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (q *ConnQuery) set(name, text string) (err error) {
	switch name {
	case "kind":
		q.Kinds, err = parseKinds(text)
	case "protocol":
		if q.Proto = protoNumber(strings.ToUpper(text)); q.Proto == 0 {
			err = errors.New("write tcp, udp or sctp")
		}
	case "client":
		q.Client, err = ParsePeer(text)
	case "vip":
		q.VIP, err = ParsePeer(text)
	case "server":
		q.Server, err = ParsePeer(text)
	case "service":
		key, wrong := ParseServiceID(text)
		q.Service, err = &key, wrong
	case "state":
		q.States, err = parseStates(text)
	case "older":
		q.Older, err = parseAge(text)
	case "younger":
		q.Younger, err = parseAge(text)
	case "idle":
		q.Idle, err = parseAge(text)
	case "sort":
		if !slices.Contains(SortKeys(), strings.TrimPrefix(text, "-")) {
			err = fmt.Errorf("write %s, perhaps with - in front", strings.Join(SortKeys(), ", "))
		}
		q.Sort = text
	case "limit":
		n, wrong := strconv.ParseUint(text, 10, 31)
		if wrong != nil || n == 0 {
			err = errors.New("write a number from 1 on")
		}
		q.Limit = int(n)
	}
	return err
}

// Values writes the query as ParseConnQuery reads it.
func (q ConnQuery) Values() url.Values {
	v := url.Values{}
	set := func(name, text string) {
		if text != "" {
			v.Set(name, text)
		}
	}
	set("kind", map[conntrack.Kinds]string{conntrack.Connections: "connections", conntrack.Templates: "templates"}[q.Kinds])
	if q.Proto != 0 {
		set("protocol", strings.ToLower(q.Proto.String()))
	}
	set("client", peerText(q.Client))
	set("vip", peerText(q.VIP))
	set("server", peerText(q.Server))
	if q.Service != nil {
		set("service", ServiceID(*q.Service))
	}
	set("state", statesText(q.States))
	for name, d := range map[string]time.Duration{"older": q.Older, "younger": q.Younger, "idle": q.Idle} {
		if d != 0 {
			set(name, d.String())
		}
	}
	set("sort", q.Sort)
	if q.Limit != 0 {
		set("limit", strconv.Itoa(q.Limit))
	}
	return v
}

func parseKinds(text string) (conntrack.Kinds, error) {
	switch text {
	case "connections":
		return conntrack.Connections, nil
	case "templates":
		return conntrack.Templates, nil
	case "all":
		return 0, nil
	}
	return 0, errors.New("write connections, templates or all")
}

// ParsePeer reads an address, a net, or an address and port; without an address
// (":80") it is any.
func ParsePeer(text string) (p conntrack.Peer, err error) {
	wrong := errors.New("write an address (192.0.2.1, 2001:db8::1), a net (192.0.2.0/24), an address with a port (192.0.2.1:80, [2001:db8::1]:80), or a port (:80)")
	addr := text
	if a, wrongAddr := netip.ParseAddr(text); wrongAddr == nil {
		p.Net, err = wholeNet(a)
		return p, err
	}
	if at := strings.LastIndexByte(text, ':'); at >= 0 && !strings.Contains(text, "/") {
		port, wrongPort := strconv.ParseUint(text[at+1:], 10, 16)
		if wrongPort != nil || port == 0 {
			return p, wrong
		}
		p.Port, addr = uint16(port), text[:at]
		if addr == "" {
			return p, nil
		}
		bare, bracketed := strings.CutPrefix(addr, "[")
		if bracketed {
			bare, bracketed = strings.CutSuffix(bare, "]")
		}
		a, wrongAddr := netip.ParseAddr(bare)
		if wrongAddr != nil || a.Is6() != bracketed {
			return p, wrong
		}
		p.Net, err = wholeNet(a)
		return p, err
	}
	net, wrongNet := netip.ParsePrefix(addr)
	if wrongNet != nil || net.Addr().Is4In6() {
		return p, wrong
	}
	if net != net.Masked() {
		return p, fmt.Errorf("the net has bits behind its length: write %s", net.Masked())
	}
	p.Net = net
	return p, nil
}

func wholeNet(a netip.Addr) (netip.Prefix, error) {
	if a.Zone() != "" {
		return netip.Prefix{}, errors.New("an address with a zone is none that is balanced: leave out the part from % on")
	}
	a = a.Unmap()
	return netip.PrefixFrom(a, a.BitLen()), nil
}

func peerText(p conntrack.Peer) string {
	switch {
	case !p.Net.IsValid() && p.Port == 0:
		return ""
	case !p.Net.IsValid():
		return fmt.Sprintf(":%d", p.Port)
	case p.Port != 0:
		return netip.AddrPortFrom(p.Net.Addr(), p.Port).String()
	case p.Net.IsSingleIP():
		return p.Net.Addr().String()
	}
	return p.Net.String()
}

// parseStates reads names of states joined by commas. TCP and SCTP have states of
// one name, which then means both.
func parseStates(text string) (set conntrack.States, err error) {
	for word := range strings.SplitSeq(text, ",") {
		found := false
		for s := range conntrack.NumStates {
			if strings.EqualFold(s.String(), word) {
				set, found = set.With(s), true
			}
		}
		if !found {
			return 0, fmt.Errorf("%q is no state: write %s", word, strings.Join(stateNames(conntrack.AllStates), ", "))
		}
	}
	return set, nil
}

func statesText(s conntrack.States) string { return strings.Join(stateNames(s), ",") }

func stateNames(set conntrack.States) (names []string) {
	for s := range conntrack.NumStates {
		if name := s.String(); set.Has(s) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// maxAge bounds ages: an engine does not run for longer.
const maxAge = 100 * 365 * 24 * time.Hour

func parseAge(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if seconds, plain := strconv.ParseUint(text, 10, 32); plain == nil {
		d, err = time.Duration(seconds)*time.Second, nil
	}
	if err != nil || d <= 0 || d > maxAge {
		return 0, errors.New("write seconds, or a time like 90s, 10m or 2h, above 0")
	}
	return d, nil
}
