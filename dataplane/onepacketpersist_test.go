package dataplane_test

import (
	"testing"
	"time"

	"pktdirector/lvs"
)

// With persistence a one-packet service's datagrams go where the client's template
// says, and the template is all that stays.
func TestOnePacketSchedulingWithPersistence(t *testing.T) {
	s := syslog(lvs.Masq)
	s.OnePacket, s.Persist = true, 300*time.Second
	w := newWorld(t, s)
	first := 0
	for range 10 {
		server := serverOf(one(t, w.in(clientLink, datagram(t, "40000"))))
		if first == 0 {
			first = server
		}
		if server != first {
			t.Errorf("the client was bound to server %d, server %d got a datagram", first, server)
		}
	}
	if size := w.d.Table(); size.Connections != 0 || size.Templates != 1 {
		t.Errorf("%d connections and %d templates, want 0 and 1", size.Connections, size.Templates)
	}
	w.wantCounts(1, 0, 0)
	w.wantCounts(2, 0, 0)
	w.pass(301 * time.Second) // nothing holds the template
	if size := w.d.Table(); size.Templates != 0 {
		t.Errorf("%d templates, want none", size.Templates)
	}
}

// Flags that a scheduler does not read leave it where it is.
func TestFlagsLeaveARoundWhereItIs(t *testing.T) {
	s := syslog(lvs.Masq)
	s.OnePacket = true
	w := newWorld(t, s)
	last := 0
	for i := range 6 {
		server := serverOf(one(t, w.in(clientLink, datagram(t, "40000"))))
		if server == last {
			t.Errorf("server %d got two in a row", server)
		}
		last = server
		s.Flags ^= lvs.Flag3
		if i%2 == 0 {
			w.must(w.d.EditService(s))
		}
	}
}
