package control_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"pktdirector/conntrack"
	"pktdirector/control"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// about are subjects of one kind each, and one of each kind of another service.
func subjects() map[string]*control.Subject {
	a := packet.MustParseAddr
	web := lvs.ServiceKey{Proto: packet.TCP, VIP: a("192.0.2.10"), Port: 80}
	dns := lvs.ServiceKey{Proto: packet.UDP, VIP: a("2001:db8::10"), Port: 53}
	flow := packet.Flow{Proto: packet.TCP, Src: a("198.51.100.7"), SrcPort: 40000, Dst: a("192.0.2.10"), DstPort: 80}
	flow6 := packet.Flow{Proto: packet.UDP, Src: a("2001:db8:1::7"), SrcPort: 4000, Dst: a("2001:db8::10"), DstPort: 53}
	server := lvs.ServerKey{RIP: a("10.2.0.1"), Port: 8080}
	return map[string]*control.Subject{
		"decision":   {Service: web, Flow: flow, Server: server, Flags: packet.SYN},
		"decision 6": {Service: dns, Flow: flow6, Server: lvs.ServerKey{RIP: a("2001:db8:2::1"), Port: 53}},
		"state":      {Service: web, Flow: flow, Server: server, State: conntrack.Established},
		"state 2":    {Service: web, Flow: flow, Server: server, State: conntrack.TimeWait},
		"drop":       {Service: web, Flow: flow, Verdict: "no_connection", Flags: packet.ACK, Bytes: 60},
		"drop reply": {Service: web, Server: server, Flow: packet.Flow{Proto: packet.TCP, Src: server.RIP, SrcPort: 8080, Dst: flow.Src, DstPort: 40000}, Verdict: "no_route", Bytes: 1000},
		"drop arp":   {Verdict: "malformed", Bytes: 28},
		"admin":      {},
	}
}

func kindOf(name string) control.EventKind {
	return map[string]control.EventKind{"decision": control.DecisionEvents, "state": control.StateEvents, "drop": control.DropEvents, "admin": control.AdminEvents}[strings.Fields(name)[0]]
}

// TestFiltersChooseAtTheDirector: a listener's queue holds only what was asked for.
func TestFiltersChooseAtTheDirector(t *testing.T) {
	for query, want := range map[string]string{
		"":                                      "decision, decision 6, state, state 2, drop, drop reply, drop arp, admin",
		"kind=drop":                             "drop, drop reply, drop arp",
		"kind=drop&kind=admin":                  "drop, drop reply, drop arp, admin",
		"service=tcp-192.0.2.10-80":             "decision, state, state 2, drop, drop reply",
		"service=udp-2001:db8::10-53":           "decision 6",
		"client=198.51.100.0/24":                "decision, state, state 2, drop, drop reply",
		"client=198.51.100.7:40000":             "decision, state, state 2, drop, drop reply",
		"client=198.51.100.7:1":                 "",
		"client=2001:db8:1::/48":                "decision 6",
		"vip=192.0.2.10":                        "decision, state, state 2, drop",
		"vip=:53":                               "decision 6",
		"server=10.2.0.1":                       "decision, state, state 2, drop reply",
		"verdict=no_route,malformed":            "drop reply, drop arp",
		"state=ESTABLISHED":                     "state",
		"state=TIME_WAIT&verdict=no_connection": "state 2, drop",
		"state=TIME_WAIT&kind=decision,state":   "decision, decision 6, state 2",
		"filter=tcp port 80":                    "decision, state, state 2, drop",
		"filter=dst host 10.2.0.1":              "decision, state, state 2",
		"filter=src port 8080":                  "drop reply",
		"filter=ip6":                            "decision 6",
		"filter=greater 1000":                   "drop reply",
		"filter=tcp[tcpflags] %26 tcp-syn != 0": "decision",
		"filter=udp&client=198.51.100.7":        "",
	} {
		v, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		f, err := control.ParseEventFilter(v)
		if err != nil {
			t.Errorf("%q: %v", query, err)
			continue
		}
		again, err := control.ParseEventFilter(f.Values())
		if err != nil || again.Values().Encode() != f.Values().Encode() {
			t.Errorf("%q is written as %q: %v", query, f.Values().Encode(), err)
		}
		wanted := map[string]bool{}
		for name := range strings.SplitSeq(want, ", ") {
			wanted[name] = true
		}
		for name, s := range subjects() {
			if got := control.Chooses(&again, kindOf(name), s); got != wanted[name] {
				t.Errorf("%q: %s chosen: %v", query, name, got)
			}
		}
	}
}

func TestFiltersThatCannotBe(t *testing.T) {
	for query, want := range map[string]string{
		"kind=weather":        `kind: "weather": "weather" is no kind of event: one of decision, state, drop, admin`,
		"service=web":         "names no service",
		"client=www":          "write an address",
		"state=HAPPY":         `"HAPPY" is no state`,
		"filter=port http":    `filter: "port http": filter: at byte 6, "http"`,
		"color=red":           "no such parameter",
		"verdict":             `verdict: "": a name is missing`,
		"verdict=no_route,":   "a name is missing",
		"client=:1&client=:2": "given more than once",
	} {
		v, _ := url.ParseQuery(query)
		_, err := control.ParseEventFilter(v)
		if p := (*control.ParameterError)(nil); !errors.As(err, &p) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", query, err, want)
		}
	}
	f, _ := control.ParseEventFilter(url.Values{"verdict": {"no_route,no_weather"}})
	if err := f.CheckVerdicts([]string{"no_route"}); err == nil || !strings.Contains(err.Error(), `"no_weather" is no verdict: one of no_route`) {
		t.Errorf("a verdict that there is not: %v", err)
	}
}

// TestEventsAsLines: one line each, whatever is in it.
func TestEventsAsLines(t *testing.T) {
	at := time.Date(2026, 1, 2, 15, 4, 5, 6000, time.Local)
	flow := control.Flow{Protocol: "TCP", Source: "2001:db8::7", SourcePort: 40000, Destination: "2001:db8::10", DestinationPort: 80}
	many := &control.Decision{ID: 3, Service: "tcp-192.0.2.10-80", Flow: control.Flow{Protocol: "TCP", Source: "198.51.100.7", SourcePort: 1, Destination: "192.0.2.10", DestinationPort: 80}, Found: "address and port"}
	for range 20 {
		many.Candidates = append(many.Candidates, control.Candidate{Server: "10.2.0.1-80", Why: "quiesced: weight 0"})
	}
	for _, c := range []struct {
		event control.Event
		want  string
	}{
		{control.Event{Kind: "decision", Decision: &control.Decision{ID: 17, Service: "tcp-2001:db8::10-80", Flow: flow, Found: "address and port", Picked: "2001:db8:2::1-8080", Candidates: []control.Candidate{
			{Server: "2001:db8:2::1-8080", Weight: 2, Active: 1, Inactive: 3, Score: &control.Score{Num: 259, Den: 2}, Picked: true, Why: "smallest cost, first in the list"},
			{Server: "2001:db8:2::2-8080", Weight: 1, Active: 1, Score: &control.Score{Num: 256, Den: 1}, Why: "costs more"},
		}}}, "15:04:05.000006 decision 17 TCP [2001:db8::7]:40000 -> [2001:db8::10]:80: tcp-2001:db8::10-80, found by address and port, gives it to [2001:db8:2::1]:8080 (weight 2, ActiveConn 1, InActConn 3, score 259/2): smallest cost, first in the list; not to [2001:db8:2::2]:8080 (weight 1, ActiveConn 1, InActConn 0, score 256): costs more\n"},
		{control.Event{Kind: "decision", Decision: many}, ", and 4 more, which --json shows\n"},
		{control.Event{Kind: "state", State: &control.StateChange{Flow: flow, Server: "10.2.0.1-80", Before: "NONE", After: "SYN_RECV", Direction: "request", Began: true}}, "15:04:05.000006 state    TCP [2001:db8::7]:40000 -> [2001:db8::10]:80, server 10.2.0.1:80: began: SYN_RECV, by a request\n"},
		{control.Event{Kind: "state", State: &control.StateChange{Flow: flow, Server: "10.2.0.1-80", Before: "SYN_RECV", After: "ESTABLISHED", Direction: "reply"}}, ": SYN_RECV -> ESTABLISHED, by a reply\n"},
		{control.Event{Kind: "state", State: &control.StateChange{Flow: flow, Server: "10.2.0.1-80", Before: "TIME_WAIT", Ended: true}}, ": ended in TIME_WAIT\n"},
		{control.Event{Kind: "drop", Drop: &control.Drop{Verdict: "no_route", Means: "no route", Advice: "look.", Flow: &flow, Flags: "S", Bytes: 60, Server: "10.2.0.1-80", Decision: 17}}, "TCP [2001:db8::7]:40000 -> [2001:db8::10]:80 [S] 60 bytes, server 10.2.0.1:80, decision 17: no_route: no route. What to do: look.\n"},
		{control.Event{Kind: "drop", Drop: &control.Drop{Verdict: "malformed", Means: "bad", Bytes: 3}}, "a packet 3 bytes: malformed: bad\n"},
		{control.Event{Kind: "admin", Admin: &control.AdminChange{By: "uid 0", Changes: []string{"a", "b\nc"}, Refused: "no"}}, "admin    uid 0: a; b; c; refused: no\n"},
		{control.Event{Kind: "lost", Lost: 9}, "lost     9 events are missing here"},
	} {
		var b strings.Builder
		c.event.Time = at
		if err := control.WriteEvent(&b, &c.event); err != nil || !strings.Contains(b.String(), c.want) || strings.Count(b.String(), "\n") != 1 {
			t.Errorf("got  %s\nwant %s", b.String(), c.want)
		}
	}
}

// TestAFilteredListenerLosesNothingOfItsOwn although there is a flood of what it did not
// ask for.
func TestAFilteredListenerLosesNothingOfItsOwn(t *testing.T) {
	l, c, _ := serveLive(t)
	got := make(chan control.Event)
	go c.Events(t.Context(), filterOf(t, "client", "198.51.100.7"), func(e control.Event) bool {
		select {
		case got <- e:
			return true
		case <-t.Context().Done():
			return false
		}
	})
	for l.events.Wanted() == 0 {
		time.Sleep(time.Millisecond)
	}
	all := subjects()
	const wanted = 100
	for range wanted {
		for range 200 {
			l.events.Publish(control.DecisionEvents, 1, all["decision 6"], func() control.Event { t.Error("made for nobody"); return control.Event{} })
		}
		l.events.Publish(control.DecisionEvents, 1, all["decision"], func() control.Event { return control.Event{Kind: "decision"} })
	}
	for range wanted {
		if e := <-got; e.Kind != "decision" {
			t.Fatalf("got %+v", e)
		}
	}
}
