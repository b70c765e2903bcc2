package dataplane_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// recorded adds what the decisions of the last call say to c.
func recorded(c *dataplane.Choices, decisions []dataplane.Decision) {
	for _, d := range decisions {
		e := d.Explanation
		switch {
		case d.Template:
			c.Template++
			continue
		case d.Pick == nil:
			c.None++
		case e.Buckets > 0 && e.Fallback != e.Bucket:
			c.Fallback++
		default:
			c.Scheduled++
		}
		for _, one := range e.Candidates {
			if strings.Contains(one.Why, "overloaded") {
				c.Overloaded++
				break
			}
		}
	}
}

// The counters say of any sequence of connections and edits what its decisions
// say one by one.
func TestChoicesAreWhatTheDecisionsSay(t *testing.T) {
	cases := map[string]func(*lvs.VirtualService){
		"rr":               func(s *lvs.VirtualService) { s.Scheduler = "rr" },
		"wlc with limits":  func(s *lvs.VirtualService) { s.Scheduler = "wlc"; s.Servers[0].Upper, s.Servers[1].Upper = 3, 5 },
		"sh":               func(s *lvs.VirtualService) { s.Scheduler, s.Flags = "sh", lvs.FlagPort },
		"sh with fallback": func(s *lvs.VirtualService) { s.Scheduler, s.Flags = "sh", lvs.FlagPort|lvs.FlagFallback },
		"mh with fallback": func(s *lvs.VirtualService) { s.Scheduler, s.Flags = "mh", lvs.FlagPort|lvs.FlagFallback },
		"sh at its limit": func(s *lvs.VirtualService) {
			s.Scheduler, s.Flags, s.Servers[0].Upper = "sh", lvs.FlagPort|lvs.FlagFallback, 2
		},
		"persistent":        func(s *lvs.VirtualService) { s.Scheduler, s.Persist = "rr", time.Minute },
		"persistent mh":     func(s *lvs.VirtualService) { s.Scheduler, s.Flags, s.Persist = "mh", lvs.FlagFallback, time.Minute },
		"one packet":        func(s *lvs.VirtualService) { *s = udp(*s); s.OnePacket = true },
		"nobody available":  func(s *lvs.VirtualService) { s.Scheduler = "none" },
		"everybody limited": func(s *lvs.VirtualService) { s.Servers[0].Upper, s.Servers[1].Upper, s.Servers[2].Upper = 1, 1, 1 },
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			s := service("rr", lvs.Route, 3)
			change(&s)
			w := newWorld(t, s)
			r := rand.New(rand.NewPCG(7, 7))
			var want dataplane.Choices
			for i := range 400 {
				switch r.IntN(8) {
				case 0:
					rs := s.Servers[r.IntN(len(s.Servers))]
					rs.Weight = r.IntN(3)
					w.must(w.d.EditServer(s.ServiceKey, rs))
				case 1:
					w.pass(time.Duration(r.IntN(20)) * time.Second)
				default:
					p := packettest.Build(t, packettest.Spec{UDP: s.Proto == packet.UDP, Src: fmt.Sprintf("198.51.100.%d:%d", 10+r.IntN(4), 2000+i), Dst: vip + ":80", Flags: packet.SYN})
					w.in(clientLink, p)
					recorded(&want, w.w.Decisions)
				}
			}
			if got := w.d.Choices(); got != want {
				t.Errorf("counted %+v\ndecided %+v", got, want)
			}
			if sum := want.Scheduled + want.Fallback + want.Template + want.None; sum < 200 {
				t.Errorf("%d decisions: the test shows little", sum)
			}
			switch {
			case strings.Contains(name, "fallback") && want.Fallback == 0, strings.Contains(name, "persistent") && want.Template == 0,
				strings.Contains(name, "limit") && want.Overloaded == 0, s.Scheduler == "none" && want.None == 0:
				t.Errorf("what the case is about did not happen: %+v", want)
			}
		})
	}
}

func TestChoicesTellOfConnectionsThatBeganAnew(t *testing.T) {
	s := service("rr", lvs.Route, 2)
	w := newWorld(t, s)
	w.establish("40000")
	w.in(clientLink, w.segment("40000", packet.RST))
	w.establish("40000") // conn_reuse_mode 1: CLOSE, so scheduled anew
	want := dataplane.Choices{Scheduled: 2, Reused: 1}
	if got := w.d.Choices(); got != want {
		t.Errorf("after a SYN on a closed connection %+v, want %+v", got, want)
	}
	w.set("conn_reuse_mode", "0")
	w.in(clientLink, w.segment("40000", packet.RST))
	w.in(clientLink, w.syn("40000"))
	if got := w.d.Choices(); got != want {
		t.Errorf("with conn_reuse_mode 0 %+v, want %+v", got, want)
	}
}

func TestChoicesTellOfConnectionsWithoutServer(t *testing.T) {
	s := service("rr", lvs.Route, 2)
	w := newWorld(t, s)
	first := w.establish("40000")
	w.set("expire_nodest_conn", "1")
	w.weigh(s, first, 0)
	w.in(clientLink, w.syn("40000"))
	if got, want := w.d.Choices(), (dataplane.Choices{Scheduled: 2, Expired: 1}); got != want {
		t.Errorf("a SYN to a drained server: %+v, want %+v", got, want)
	}
}

func TestChoicesTellOfAbandonedTemplates(t *testing.T) {
	s := service("rr", lvs.Route, 2)
	s.Persist = time.Minute
	w := newWorld(t, s)
	first := w.establish("40000")
	w.weigh(s, first, 0)
	w.in(clientLink, w.syn("40001"))
	want := dataplane.Choices{Scheduled: 1, Template: 1}
	if got := w.d.Choices(); got != want {
		t.Errorf("a quiesced server keeps its clients: %+v, want %+v", got, want)
	}
	w.set("expire_quiescent_template", "1")
	w.in(clientLink, w.syn("40002"))
	want.Scheduled, want.Abandoned = 2, 1
	if got := w.d.Choices(); got != want {
		t.Errorf("with expire_quiescent_template %+v, want %+v", got, want)
	}
	w.must(w.d.DeleteServer(s.ServiceKey, s.Servers[2-first].ServerKey))
	w.in(clientLink, w.syn("40003"))
	want.None, want.Abandoned = 1, 2
	if got := w.d.Choices(); got != want {
		t.Errorf("without the server %+v, want %+v", got, want)
	}
}
