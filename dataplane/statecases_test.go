package dataplane_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pktdirector/conntrack"
	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// state returns the only connection's state and the seconds it has left.
func (w *world) state() (s conntrack.State, left time.Duration) {
	w.t.Helper()
	n := 0
	w.d.Conns(func(c dataplane.ConnStatus) bool {
		s, left = c.State, c.Expires-w.now
		n++
		return true
	})
	if n != 1 {
		w.t.Fatalf("%d connections, want 1", n)
	}
	return s, left
}

// Field case 9: a director of DR and TUN sees half of the conversation, and its
// counts and timers follow from that half alone.
func TestHalfOfAConversation(t *testing.T) {
	const (
		S = packet.SYN
		A = packet.ACK
		F = packet.FIN
		R = packet.RST
	)
	type then struct {
		flags  uint8
		state  conntrack.State
		active int64
		left   time.Duration
	}
	for name, segments := range map[string][]then{
		"opened and closed": {
			{S, conntrack.SynRecv, 1, 60 * time.Second}, {A, conntrack.Established, 1, 900 * time.Second},
			{F | A, conntrack.FinWait, 0, 120 * time.Second}, {A, conntrack.FinWait, 0, 120 * time.Second},
		},
		"reset when established": {
			{S, conntrack.SynRecv, 1, 60 * time.Second}, {A, conntrack.Established, 1, 900 * time.Second}, {R, conntrack.Close, 0, 10 * time.Second},
		},
		"reset while half-open": {{S, conntrack.SynRecv, 1, 60 * time.Second}, {R, conntrack.SynRecv, 1, 60 * time.Second}},
		"ended while half-open": {{S, conntrack.SynRecv, 1, 60 * time.Second}, {F | A, conntrack.TimeWait, 0, 120 * time.Second}},
	} {
		for _, m := range []lvs.Method{lvs.Route, lvs.Tunnel} {
			t.Run(fmt.Sprintf("%s by %s", name, m.Short()), func(t *testing.T) {
				w := newWorld(t, service("rr", m, 1))
				for i, s := range segments {
					w.after(5 * time.Second)
					one(t, w.in(clientLink, w.segment("40000", s.flags)))
					d := w.d.Status()[0].Destinations[0]
					state, left := w.state()
					if state != s.state || left != s.left || d.Active != s.active || d.InAct != 1-s.active {
						t.Errorf("after segment %d: %v, %v left, %d active, %d inactive; want %v, %v, %d, %d",
							i+1, state, left, d.Active, d.InAct, s.state, s.left, s.active, 1-s.active)
					}
				}
			})
		}
	}
	w := newWorld(t, service("rr", lvs.Route, 1))
	w.in(clientLink, w.segment("40000", A))
	if n := w.d.Table().Connections; n != 0 {
		t.Errorf("an ACK without a connection made %d", n)
	}
}

// Field case 40: nothing rewrites ports in DR and TUN, so a server's port that
// differs from the service's is refused, with both in the words.
func TestPortsThatNobodyRewrites(t *testing.T) {
	for _, m := range []lvs.Method{lvs.Route, lvs.Tunnel} {
		w := newWorld(t)
		s := service("rr", m, 1)
		s.Servers[0].Port = 8000
		err := w.d.Apply(lvs.Ruleset{Services: []lvs.VirtualService{s}})
		if err == nil || !strings.Contains(err.Error(), "8000") || !strings.Contains(err.Error(), "80,") {
			t.Errorf("%s: %v", m.Short(), err)
		}
		if n := len(w.d.Status()); n != 0 {
			t.Errorf("%s: %d services", m.Short(), n)
		}
	}
}

// Field case 40, with NAT: one machine with two ports is two servers.
func TestOneAddressWithTwoPorts(t *testing.T) {
	s := service("rr", lvs.Masq, 1)
	second := s.Servers[0]
	s.Servers[0].Port, second.Port = 8000, 80
	s.Servers = append(s.Servers, second)
	w := newWorld(t, s)
	got := map[uint16]int{}
	for i := range 10 {
		got[one(t, w.in(clientLink, w.syn(fmt.Sprint(40000+i)))).Flow.DstPort]++
	}
	if got[8000] != 5 || got[80] != 5 {
		t.Errorf("connections by port: %v, want 5 each", got)
	}
	// Both answer, and the client sees the service's port.
	for i, port := range []string{":80", ":8000"} {
		p := one(t, w.in(serverLink, packettest.Build(t, packettest.Spec{Src: rip(1) + port, Dst: fmt.Sprintf("%s:%d", client, 40000+i), Flags: packet.SYN | packet.ACK})))
		if p.Flow.Src != addr(vip) || p.Flow.SrcPort != 80 {
			t.Errorf("port %s answers as %v:%d", port, p.Flow.Src, p.Flow.SrcPort)
		}
	}
}
