package dataplane_test

import (
	"fmt"
	"testing"

	"pktdirector/lvs"
	"pktdirector/packet"
)

// Types of SCTP chunks.
const (
	sctpData     = 0
	sctpInit     = 1
	sctpAbort    = 6
	sctpShutdown = 7
)

// An INIT on an association: of one that is closed it is scheduled anew unless
// conn_reuse_mode is 0, or when its server is drained and expire_nodest_conn is 1;
// one that is not closed keeps its server.
func TestReusedClientPortOfSCTP(t *testing.T) {
	for _, c := range []struct {
		mode, nodest string
		closed       bool
		weight, want int // of server 2, which has the association
	}{
		{"0", "0", true, 1, 2},
		{"1", "0", true, 1, 1},
		{"2", "0", true, 1, 1},
		{"3", "0", true, 1, 1},
		{"1", "0", false, 1, 2},
		{"3", "0", false, 1, 2},
		{"0", "0", true, 0, 2},
		{"0", "1", true, 0, 1},
		{"1", "0", false, 0, 2},
		{"1", "1", false, 0, 1},
	} {
		for _, m := range methods() {
			t.Run(fmt.Sprintf("%s conn_reuse_mode %s expire_nodest_conn %s closed %v weight %d", m.Short(), c.mode, c.nodest, c.closed, c.weight), func(t *testing.T) {
				s := service("rr", m, 2)
				s.Proto = packet.SCTP
				w := newWorld(t, s)
				w.set("conn_reuse_mode", c.mode)
				w.set("expire_nodest_conn", c.nodest)
				w.wantServer(2, chunk(48000, sctpInit))
				w.wantServer(2, chunk(48000, sctpInit)) // sent again
				if c.closed {
					w.wantServer(2, chunk(48000, sctpAbort))
				}
				w.weigh(s, 2, c.weight)
				w.wantServer(c.want, chunk(48000, sctpInit))
				if n := len(w.entries(48000)); n != 1 {
					t.Errorf("%d entries, want 1", n)
				}
			})
		}
	}
}

// What may start a connection: a SYN without RST, with sloppy_tcp any segment
// but a reset; an INIT, with sloppy_sctp any packet but ABORT.
func TestWhatMayStartAConnection(t *testing.T) {
	const none = uint8(0)
	for _, c := range []struct {
		what           string
		flags          uint8
		strict, sloppy bool
	}{
		{"SYN", packet.SYN, true, true},
		{"SYN and ACK", packet.SYN | packet.ACK, true, true},
		{"SYN and FIN", packet.SYN | packet.FIN, true, true},
		{"SYN and RST", packet.SYN | packet.RST, false, false},
		{"ACK", packet.ACK, false, true},
		{"FIN and ACK", packet.FIN | packet.ACK, false, true},
		{"no flags", none, false, true},
		{"RST", packet.RST, false, false},
		{"RST and ACK", packet.RST | packet.ACK, false, false},
	} {
		for sloppy, want := range map[string]bool{"0": c.strict, "1": c.sloppy} {
			w := newWorld(t, service("rr", lvs.Route, 1))
			w.set("sloppy_tcp", sloppy)
			w.in(clientLink, w.segment("40000", c.flags))
			if got := len(w.entries(40000)) == 1; got != want {
				t.Errorf("sloppy_tcp %s, %s: started %v, want %v", sloppy, c.what, got, want)
			}
		}
	}
	for kind, strict := range map[byte]bool{sctpInit: true, sctpData: false, sctpShutdown: false, sctpAbort: false} {
		for sloppy, want := range map[string]bool{"0": strict, "1": kind != sctpAbort} {
			s := service("rr", lvs.Route, 1)
			s.Proto = packet.SCTP
			w := newWorld(t, s)
			w.set("sloppy_sctp", sloppy)
			w.in(clientLink, chunk(40000, kind))
			if got := len(w.entries(40000)) == 1; got != want {
				t.Errorf("sloppy_sctp %s, chunk %d: started %v, want %v", sloppy, kind, got, want)
			}
		}
	}
}
