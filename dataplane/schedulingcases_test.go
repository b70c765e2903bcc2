package dataplane_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"pktdirector/conntrack"
	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// The tests of this file and the next come from problem reports about
// scheduling, persistence and what becomes of connections whose server is
// drained, removed or overloaded. Servers are listed newest first, so of two the
// second gets the first connection.

// pass lets time pass while every neighbour stays known.
func (w *world) pass(d time.Duration) {
	w.after(d)
	w.d.Learn(dataplane.Neighbour{Link: clientLink, Addr: addr(client), MAC: clientMAC})
	for i := 1; i <= 4; i++ {
		w.d.Learn(dataplane.Neighbour{Link: serverLink, Addr: addr(rip(i)), MAC: serverMAC(i)})
	}
}

func (w *world) set(name, value string) {
	w.t.Helper()
	w.must(w.d.SetTunable(name, value))
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// weigh gives real server i another weight, as ipvsadm -e does.
func (w *world) weigh(s lvs.VirtualService, i, weight int) {
	w.t.Helper()
	rs := s.Servers[i-1]
	rs.Weight = weight
	w.must(w.d.EditServer(s.ServiceKey, rs))
}

func (w *world) remove(s lvs.VirtualService, i int) {
	w.t.Helper()
	w.must(w.d.DeleteServer(s.ServiceKey, s.Servers[i-1].ServerKey))
}

func (w *world) add(s lvs.VirtualService, i int) {
	w.t.Helper()
	w.must(w.d.AddServer(s.ServiceKey, s.Servers[i-1]))
}

// entries lists the connections of a client port; templates have port 0.
func (w *world) entries(clientPort uint16) []dataplane.ConnStatus {
	return slices.DeleteFunc(slices.Collect(w.d.Conns), func(c dataplane.ConnStatus) bool { return c.ClientPort != clientPort })
}

// wantEntry expects one connection of a client port: on that server, in that
// state, ending so long after now.
func (w *world) wantEntry(clientPort uint16, server int, state conntrack.State, left time.Duration) {
	w.t.Helper()
	list := w.entries(clientPort)
	if len(list) != 1 {
		w.t.Errorf("client port %d has %d entries, want 1", clientPort, len(list))
		return
	}
	if c := list[0]; c.Dest != addr(rip(server)) || c.State != state || c.Expires-w.now != left {
		w.t.Errorf("client port %d: on %v, %v, ends in %v; want %s, %v, %v", clientPort, c.Dest, c.State, c.Expires-w.now, rip(server), state, left)
	}
}

// wantCounts expects ActiveConn and InActConn of a configured server.
func (w *world) wantCounts(server int, active, inactive int64) {
	w.t.Helper()
	for _, d := range w.d.Status()[0].Destinations {
		if d.Server.RIP == addr(rip(server)) {
			if d.Active != active || d.InAct != inactive {
				w.t.Errorf("%v has ActiveConn %d, InActConn %d, want %d and %d", d.Server, d.Active, d.InAct, active, inactive)
			}
			return
		}
	}
	w.t.Errorf("%s is not listed", rip(server))
}

// wantServer expects a client's packet to go to that server.
func (w *world) wantServer(want int, p *packet.Packet) {
	w.t.Helper()
	if got := serverOf(one(w.t, w.in(clientLink, p))); got != want {
		w.t.Errorf("went to server %d, want %d", got, want)
	}
}

// answer is a segment of the server of a masqueraded service.
func answer(t testing.TB, server int, clientPort string, flags uint8) *packet.Packet {
	return packettest.Build(t, packettest.Spec{Src: rip(server) + ":8080", Dst: client + ":" + clientPort, Flags: flags, Seq: 6, Ack: 1001})
}

// owned opens client port 48000's connection on server 1 of two.
func owned(t *testing.T, m lvs.Method) (*world, lvs.VirtualService) {
	t.Helper()
	s := service("rr", m, 2)
	w := newWorld(t, s)
	w.establish("47999")
	if server := w.establish("48000"); server != 1 {
		t.Fatalf("the second connection went to server %d, want 1", server)
	}
	return w, s
}

// Field case 7: a client port that comes back while its old connection still lingers: the
// SYN is never lost, and goes where conn_reuse_mode says.
func TestReusedClientPort(t *testing.T) {
	for _, c := range []struct {
		method       lvs.Method
		mode, nodest string
		server       int
	}{
		{lvs.Masq, "0", "0", 1},
		{lvs.Masq, "1", "0", 2},
		{lvs.Masq, "2", "0", 2},
		{lvs.Masq, "3", "0", 2},
		{lvs.Route, "0", "0", 1},
		{lvs.Route, "1", "0", 1},
		{lvs.Route, "1", "1", 2},
		{lvs.Route, "2", "0", 2},
		{lvs.Route, "3", "0", 2},
	} {
		t.Run(fmt.Sprintf("%s conn_reuse_mode %s expire_nodest_conn %s", c.method.Short(), c.mode, c.nodest), func(t *testing.T) {
			w, s := owned(t, c.method)
			w.in(clientLink, w.segment("48000", packet.FIN|packet.ACK))
			over := conntrack.FinWait
			if c.method == lvs.Masq {
				w.in(serverLink, answer(t, 1, "48000", packet.FIN|packet.ACK))
				over = conntrack.TimeWait
			}
			w.wantEntry(48000, 1, over, 120*time.Second)
			w.weigh(s, 1, 0)
			w.set("conn_reuse_mode", c.mode)
			w.set("expire_nodest_conn", c.nodest)
			w.pass(5 * time.Second)
			w.wantServer(c.server, w.syn("48000"))
			w.wantEntry(48000, c.server, conntrack.SynRecv, 60*time.Second)
			w.wantVerdict(dataplane.DestinationGone, 0)
			w.wantVerdict(dataplane.NoDestination, 0)
		})
	}
}

// Field case 7: a SYN on an established connection is of that connection.
func TestSYNOnALiveConnectionChangesNothing(t *testing.T) {
	for _, m := range methods() {
		for _, mode := range []string{"0", "1", "2", "3"} {
			w, s := owned(t, m)
			w.weigh(s, 1, 0)
			w.set("conn_reuse_mode", mode)
			w.pass(5 * time.Second)
			w.wantServer(1, w.syn("48000"))
			w.wantEntry(48000, 1, conntrack.Established, 900*time.Second)
			w.wantCounts(1, 1, 0)
		}
	}
}

// chunk is a client's SCTP packet with one chunk and nothing in it.
func chunk(clientPort uint16, kind byte) *packet.Packet {
	b := make([]byte, 20+12+4)
	b[0], b[3], b[8], b[9] = 0x45, byte(len(b)), 64, byte(packet.SCTP)
	addr(client).Put4(b[12:])
	addr(vip).Put4(b[16:])
	packet.PutIPv4Checksum(b[:20])
	binary.BigEndian.PutUint16(b[20:], clientPort)
	b[23] = 80
	b[32], b[35] = kind, 4
	return packettest.Packet(b, packet.EtherIPv4)
}

// syslog is a UDP service on port 514 with two real servers.
func syslog(m lvs.Method) lvs.VirtualService {
	s := udp(service("rr", m, 2))
	s.Port = 514
	for i := range s.Servers {
		s.Servers[i].Port = 514
	}
	return s
}

func datagram(t testing.TB, clientPort string) *packet.Packet {
	return packettest.Build(t, packettest.Spec{Src: client + ":" + clientPort, Dst: vip + ":514", UDP: true, Payload: []byte("log")})
}

// sender makes client port 40000 a sender on server 1.
func sender(t *testing.T, s lvs.VirtualService) *world {
	t.Helper()
	w := newWorld(t, s)
	w.wantServer(2, datagram(t, "39999"))
	w.wantServer(1, datagram(t, "40000"))
	w.wantEntry(40000, 1, conntrack.UDP, 300*time.Second)
	w.wantCounts(1, 0, 1)
	return w
}

// Field case 8: a sender that never pauses, and its server goes.
func TestUDPFlowLeavesARemovedServer(t *testing.T) {
	const step = 500 * time.Millisecond
	t.Run("expire_nodest_conn 1: no datagram is lost", func(t *testing.T) {
		s := syslog(lvs.Masq)
		w := sender(t, s)
		w.set("expire_nodest_conn", "1")
		w.remove(s, 1)
		for range 20 {
			w.pass(step)
			w.wantServer(2, datagram(t, "40000"))
		}
		w.wantVerdict(dataplane.DestinationGone, 0)
	})
	t.Run("expire_nodest_conn set to 1 when it is gone already", func(t *testing.T) {
		s := syslog(lvs.Masq)
		w := sender(t, s)
		w.remove(s, 1)
		if out := w.in(clientLink, datagram(t, "40000")); len(out) != 0 {
			t.Errorf("left: %v", summaries(out))
		}
		w.set("expire_nodest_conn", "1")
		w.wantServer(2, datagram(t, "40000"))
		w.wantEntry(40000, 2, conntrack.UDP, 300*time.Second)
		w.wantVerdict(dataplane.DestinationGone, 1)
	})
	t.Run("expire_nodest_conn 0: lost for 300 s after the last good one", func(t *testing.T) {
		s := syslog(lvs.Masq)
		w := sender(t, s)
		w.remove(s, 1)
		lost := uint64(0)
		for w.pass(step); w.now < 300*time.Second; w.pass(step) {
			if out := w.in(clientLink, datagram(t, "40000")); len(out) != 0 {
				t.Fatalf("at %v a datagram left: %v", w.now, summaries(out))
			}
			lost++
			w.wantEntry(40000, 1, conntrack.UDP, 300*time.Second-w.now)
		}
		w.wantVerdict(dataplane.DestinationGone, lost)
		w.wantServer(2, datagram(t, "40000"))
		w.wantEntry(40000, 2, conntrack.UDP, 300*time.Second)
	})
	t.Run("weight 0 is not removed: the flow stays", func(t *testing.T) {
		for _, nodest := range []string{"0", "1"} {
			s := syslog(lvs.Masq)
			w := sender(t, s)
			w.set("expire_nodest_conn", nodest)
			w.weigh(s, 1, 0)
			for range 20 {
				w.pass(step)
				w.wantServer(1, datagram(t, "40000"))
			}
		}
	})
}

// Field case 17: a client bound to a drained server by persistence.
func TestPersistenceAndWeightZero(t *testing.T) {
	for _, expire := range []string{"0", "1"} {
		t.Run("expire_quiescent_template "+expire, func(t *testing.T) {
			s := service("wlc", lvs.Route, 2)
			s.Persist = 300 * time.Second
			w := newWorld(t, s)
			other := packettest.Build(t, packettest.Spec{Src: "198.51.100.11:40000", Dst: vip + ":80", Flags: packet.SYN})
			w.wantServer(2, other)
			if server := w.establish("40000"); server != 1 {
				t.Fatalf("the client is on server %d, want 1", server)
			}
			templates := func() (list []string) {
				for _, c := range w.entries(0) {
					if c.Client == addr(client) {
						list = append(list, fmt.Sprintf("%s port %d to %v", c.State, c.VirtualPort, c.Dest))
					}
				}
				slices.Sort(list)
				return list
			}
			if got, want := templates(), []string{"ASSURED port 80 to " + rip(1)}; !slices.Equal(got, want) {
				t.Errorf("templates listed: %v, want %v", got, want)
			}
			w.set("expire_quiescent_template", expire)
			w.weigh(s, 1, 0)
			want, left := 1, []string{"ASSURED port 80 to " + rip(1)}
			if expire == "1" {
				// The old one is out of use, but kept until its connection ends.
				want, left = 2, []string{"ASSURED port 65535 to " + rip(1), "NONE port 80 to " + rip(2)}
			}
			w.wantServer(want, w.syn("40001"))
			if got := templates(); !slices.Equal(got, left) {
				t.Errorf("templates listed: %v, want %v", got, left)
			}
			w.wantServer(1, w.segment("40000", packet.ACK))
			w.wantServer(want, w.syn("40002"))
		})
	}
}

// pool is two servers with 1,000 active connections each, and a third that
// comes.
func pool(t *testing.T) *world {
	t.Helper()
	s := service("wlc", lvs.Route, 3)
	two := s
	two.Servers = s.Servers[:2]
	w := newWorld(t, two)
	for i := range 2000 {
		w.establish(fmt.Sprint(10000 + i))
	}
	w.wantCounts(1, 1000, 0)
	w.wantCounts(2, 1000, 0)
	w.add(s, 3)
	return w
}

// Field case 26: a new server under wlc takes everything until it has as much as the others;
// the explanation says why.
func TestANewServerTakesEverything(t *testing.T) {
	t.Run("connections that stay", func(t *testing.T) {
		w := pool(t)
		for i := range 1000 {
			if server := w.establish(fmt.Sprint(20000 + i)); server != 3 {
				t.Fatalf("connection %d went to server %d, want 3", i+1, server)
			}
		}
		// Now all are equal, and the first in the list wins.
		for i, want := range []int{3, 2, 1, 3} {
			w.wantServer(want, w.syn(fmt.Sprint(30000+i)))
		}
	})
	t.Run("half-open connections, which are active", func(t *testing.T) {
		w := pool(t)
		got := map[int]int{}
		for i := range 5000 {
			server := serverOf(one(t, w.in(clientLink, w.syn(fmt.Sprint(20000+i)))))
			if got[server]++; i <= 1000 && server != 3 {
				t.Fatalf("SYN %d went to server %d, want 3", i+1, server)
			}
		}
		if got[3] != 2334 || got[2] != 1333 || got[1] != 1333 {
			t.Errorf("SYNs by server: %v, want 1333, 1333 and 2334", got)
		}
	})
	t.Run("connections that are over weigh a 256th", func(t *testing.T) {
		w := pool(t)
		for i := range 5000 {
			port := fmt.Sprint(20000 + i)
			if server := w.establish(port); server != 3 {
				t.Fatalf("connection %d went to server %d, want 3", i+1, server)
			}
			w.in(clientLink, w.segment(port, packet.FIN|packet.ACK))
		}
		w.wantCounts(3, 0, 5000)
	})
	t.Run("and the explanation says so", func(t *testing.T) {
		w := pool(t)
		w.wantServer(3, w.syn("20000"))
		costs, why := []int64{}, []string{}
		for _, c := range w.w.Decisions[0].Explanation.Candidates {
			costs, why = append(costs, c.Score.Num/c.Score.Den), append(why, c.Why)
		}
		if want := []int64{0, 256000, 256000}; !slices.Equal(costs, want) || slices.Contains(why, "") {
			t.Errorf("costs %v because of %q, want %v", costs, why, want)
		}
	})
}
