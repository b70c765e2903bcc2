package dataplane_test

import (
	"strings"
	"testing"
	"time"

	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// A decision says how its service was found.
func TestADecisionTellsHowTheServiceWasFound(t *testing.T) {
	all := service("rr", lvs.Route, 1)
	all.Port, all.Persist, all.VIP = 0, time.Minute, addr("203.0.113.81")
	all.Servers[0].Port = 0
	data := service("rr", lvs.Masq, 1)
	data.Port, data.Persist, data.VIP = 21, time.Minute, addr("203.0.113.82")
	data.Servers[0].Port = 21
	marked := service("rr", lvs.Route, 1)
	marked.ServiceKey, marked.Servers[0].Port = lvs.ServiceKey{Mark: 7}, 0
	w := newWorld(t)
	rules := lvs.Ruleset{
		Marks:    []lvs.MarkRule{{Link: -1, Mark: 7, Proto: packet.TCP, Ports: []lvs.PortRange{{From: 443, To: 443}}}},
		Services: []lvs.VirtualService{service("rr", lvs.Route, 1), all, data, marked},
	}
	w.must(w.d.Apply(rules))
	for to, want := range map[string]dataplane.Found{
		vip + ":80": dataplane.ByPort, vip + ":443": dataplane.ByMark, "203.0.113.81:8080": dataplane.ByAddress,
		"203.0.113.82:21": dataplane.ByPort, "203.0.113.82:50000": dataplane.ByFTP,
	} {
		w.in(clientLink, packettest.Build(t, packettest.Spec{Src: client + ":40000", Dst: to, Flags: packet.SYN}))
		if len(w.w.Decisions) != 1 || w.w.Decisions[0].Found != want || want.String() == "" {
			t.Errorf("%s: decisions %+v, want one, found by %v", to, w.w.Decisions, want)
		}
	}
}

// With a template, too, every candidate is listed, and the winner is the pick.
func TestATemplatesDecisionListsEveryCandidate(t *testing.T) {
	s := service("wlc", lvs.Route, 3)
	s.Persist = time.Minute
	w := newWorld(t, s)
	first := serverOf(one(t, w.in(clientLink, w.syn("40000"))))
	if w.w.Decisions[0].Template {
		t.Error("the first connection has no template")
	}
	w.weigh(s, first, 0)
	w.wantServer(first, w.syn("40001"))
	d := w.w.Decisions[0]
	if !d.Template || len(d.Explanation.Candidates) != 3 || d.Explanation.Picked() != d.Pick || d.Pick.Server.RIP != addr(rip(first)) {
		t.Errorf("decided as %+v", d)
	}
	for _, c := range d.Explanation.Candidates {
		if c.Picked != (c.Dest == d.Pick) || !strings.Contains(c.Why, "bound") {
			t.Errorf("%v: picked %v because %q", c.Dest.Server, c.Picked, c.Why)
		}
	}
}
