package dataplane_test

import (
	"testing"
	"time"

	"pktdirector/conntrack"
	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// Where a link leads to the host's own sockets, a real server that is the director's
// host gets requests as they came, whatever the method; the director sees no answers.
func TestTheHostIsHandedItsShare(t *testing.T) {
	const self, hostLink = "192.0.2.254", 2
	for _, c := range []struct {
		name      string
		method    lvs.Method
		port      uint16
		delivered bool
	}{
		{"direct routing", lvs.Route, 80, true},
		{"tunnelling", lvs.Tunnel, 80, true},
		{"masquerading to the same port", lvs.Masq, 80, true},
		{"masquerading to another port, which nobody would translate back", lvs.Masq, 8080, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := service("rr", c.method, 0)
			s.Servers = []lvs.RealServer{{ServerKey: lvs.ServerKey{RIP: addr(self), Port: c.port}, Method: c.method, Weight: 1}}
			w := newWorld(t, s)
			w.d.SetLinks(append(links(1500), dataplane.LinkInfo{Name: "self0", MTU: 65535, Layer3: true, Host: true}))
			out := w.in(clientLink, w.syn("40000"))
			if !c.delivered {
				if len(out) != 0 {
					t.Errorf("%v left", summaries(out))
				}
				w.wantVerdict(dataplane.LocalNode, 1)
				return
			}
			p := one(t, out)
			if p.Link != hostLink || p.Flow.Dst != addr(vip) || p.Flow.DstPort != 80 || p.TTL != 64 {
				t.Errorf("%v left by link %d with TTL %d", p.Flow, p.Link, p.TTL)
			}
			w.wantVerdict(dataplane.Delivered, 1)
			// No answer passes, and the client's ACK establishes, as with direct routing.
			one(t, w.in(clientLink, w.segment("40000", packet.ACK)))
			list := w.entries(40000)
			if len(list) != 1 || list[0].State != conntrack.Established || list[0].Expires-w.now != 900*time.Second {
				t.Errorf("entries: %+v", list)
			}
			// What the host sends by that link is its own.
			from := w.segment("40000", packet.ACK)
			from.Class = packet.Outgoing
			if out := w.in(hostLink, from); len(out) != 0 {
				t.Errorf("%v left", summaries(out))
			}
			w.wantVerdict(dataplane.Outgoing, 1)
		})
	}
}
