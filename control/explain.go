package control

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"pktdirector/packet"
)

// ExplainQuery asks about a connection.
type ExplainQuery struct {
	Flow  packet.Flow // from the client to the VIP
	Would bool        // what would happen to the client's first packet now, instead
}

// ExplainParameters are the parameters of an ExplainQuery.
func ExplainParameters() []Parameter {
	return []Parameter{
		{"client", "the client: 198.51.100.7:40000 or [2001:db8::7]:40000"},
		{"vip", "VIP and port: 192.0.2.10:80 or [2001:db8::10]:80"},
		{"protocol", "tcp (where it is not given), udp or sctp"},
		{"would", "true: what would happen to the client's first packet now"},
	}
}

// ParseExplainQuery reads what Values writes. Errors are *ParameterErrors.
func ParseExplainQuery(v url.Values) (ExplainQuery, error) {
	q := ExplainQuery{Flow: packet.Flow{Proto: packet.TCP}}
	for _, name := range sortedKeys(v) {
		text := v.Get(name)
		var err error
		switch name {
		case "client":
			q.Flow.Src, q.Flow.SrcPort, err = parsePair(text)
		case "vip":
			q.Flow.Dst, q.Flow.DstPort, err = parsePair(text)
		case "protocol":
			if q.Flow.Proto = protoNumber(strings.ToUpper(text)); q.Flow.Proto == 0 {
				err = errors.New("write tcp, udp or sctp")
			}
		case "would":
			if q.Would = text == "true"; !q.Would && text != "false" {
				err = errors.New("neither true nor false")
			}
		default:
			err = errors.New("no such parameter")
		}
		if err == nil && len(v[name]) > 1 {
			err = errors.New("given more than once")
		}
		if err != nil {
			return q, &ParameterError{name, text, err.Error()}
		}
	}
	for name, a := range map[string]packet.Addr{"client": q.Flow.Src, "vip": q.Flow.Dst} {
		if !a.IsValid() {
			return q, &ParameterError{name, "", "must be given: an address with a port"}
		}
	}
	if q.Flow.Src.Is4() != q.Flow.Dst.Is4() {
		return q, &ParameterError{"client", v.Get("client"), "is of another IP version than the VIP"}
	}
	return q, nil
}

// parsePair reads an address with a port, IPv6 in brackets.
func parsePair(text string) (packet.Addr, uint16, error) {
	a, err := netip.ParseAddrPort(text)
	if err != nil || a.Addr().Zone() != "" || a.Port() == 0 || !a.Addr().IsValid() || a.Addr().Is4In6() {
		return packet.Addr{}, 0, errors.New("write an address with a port: 198.51.100.7:40000 or [2001:db8::7]:40000")
	}
	return packet.AddrFrom(a.Addr()), a.Port(), nil
}

// Values writes the query as ParseExplainQuery reads it.
func (q ExplainQuery) Values() url.Values {
	v := url.Values{
		"client":   {packet.Endpoint(q.Flow.Src, q.Flow.SrcPort)},
		"vip":      {packet.Endpoint(q.Flow.Dst, q.Flow.DstPort)},
		"protocol": {strings.ToLower(q.Flow.Proto.String())},
	}
	if q.Would {
		v.Set("would", "true")
	}
	return v
}

// Story is what the director knows of a connection, or what would become of one.
type Story struct {
	Flow  Flow `json:"flow"`
	Would bool `json:"would"`
	// Known: the connection is there, or the history knows of it. What would be is
	// always known.
	Known bool `json:"known"`
	// Steps are what happened, or would, in order, in words.
	Steps []StoryStep `json:"steps"`
	// Events are those that the history keeps of the connection.
	Events     []Event     `json:"events"`
	Connection *Connection `json:"connection,omitempty"` // as it is now
	Outlook    *Outlook    `json:"outlook,omitempty"`    // where it was asked for
	History    HistoryKept `json:"history"`
}

// StoryStep is one step of a story.
type StoryStep struct {
	Time    time.Time `json:"time"` // of what happened; otherwise of the answer
	Text    string    `json:"text"`
	Details []string  `json:"details,omitempty"` // such as every candidate
}

// HistoryKept is how much the director's history holds.
type HistoryKept struct {
	Events int `json:"events"` // decisions and state changes at most
	Drops  int `json:"drops"`  // at most
}

// Outlook is what would become of a client's first packet if it came now.
type Outlook struct {
	Verdict  string    `json:"verdict"`
	Means    string    `json:"means"`
	Advice   string    `json:"advice,omitempty"`
	Service  string    `json:"service,omitempty"`
	Server   string    `json:"server,omitempty"`
	Method   string    `json:"method,omitempty"`
	Decision *Decision `json:"decision,omitempty"` // its id is 0: it was not made
	Link     string    `json:"link,omitempty"`     // by which it would leave
	NextHop  string    `json:"next_hop,omitempty"`
	Resolved bool      `json:"resolved"` // the next hop's MAC address is known, or not needed
}

// explain answers GET /v1/explain.
func (a *api) explain(r *http.Request) (Story, error) {
	q, err := ParseExplainQuery(r.URL.Query())
	if wrong := (*ParameterError)(nil); errors.As(err, &wrong) {
		return Story{}, faultAt(http.StatusBadRequest, "?"+wrong.Name, wrong.Value, wrong.Detail)
	}
	return a.Explain(q), nil
}

// Lines are the decision in words: how the scheduler chose, and every candidate.
func (d *Decision) Lines() []string {
	var all []string
	if d.Rule != "" {
		all = append(all, fmt.Sprintf("rule: %s; ties: %s", d.Rule, d.Tie))
	}
	for i := range d.Candidates {
		c := &d.Candidates[i]
		mark := " "
		if c.Picked {
			mark = "*"
		}
		all = append(all, fmt.Sprintf("%s %s  %s: %s", mark, serverText(c.Server), c.counts(), c.Why))
	}
	return all
}

// Step is the event as a step of a story, in words.
func (e *Event) Step() StoryStep {
	s := StoryStep{Time: e.Time}
	var b strings.Builder
	switch {
	case e.Decision != nil:
		d := e.Decision
		fmt.Fprintf(&b, "decision %d: for the service %s, found by %s, ", d.ID, d.Service, d.Found)
		if d.Picked == "" {
			b.WriteString("no server is available")
		} else {
			fmt.Fprintf(&b, "the server %s was chosen", serverText(d.Picked))
		}
		if d.Template {
			b.WriteString(" by the client's template")
		}
		s.Details = d.Lines()
	case e.State != nil:
		e.State.describe(&b)
	case e.Drop != nil:
		b.WriteString("dropped: ")
		e.Drop.describe(&b)
	}
	s.Text = b.String()
	return s
}
