package dataplane_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pktdirector/conntrack"
	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// mapping sends a first packet from each of 3,000 client ports and tells the
// server of each, 0 for refused. All entries have ended when it returns.
func (w *world) mapping() (servers [3000]int) {
	for i := range servers {
		for _, p := range w.in(clientLink, w.syn(fmt.Sprint(10000+i))) {
			if p.Flow.Proto == packet.TCP {
				servers[i] = serverOf(p)
			}
		}
	}
	w.pass(61 * time.Second)
	return servers
}

// Field case 28: a drained server under mh and sh: its clients are refused, or with fallback
// served by others; nobody else moves, and its clients come back with its weight.
func TestHashingAndADrainedServer(t *testing.T) {
	for _, c := range []struct {
		scheduler string
		flags     lvs.SchedFlags
	}{
		{"mh", lvs.FlagPort},
		{"mh", lvs.FlagPort | lvs.FlagFallback},
		{"sh", lvs.FlagPort},
		{"sh", lvs.FlagPort | lvs.FlagFallback},
	} {
		t.Run(fmt.Sprintf("%s flags %d", c.scheduler, c.flags), func(t *testing.T) {
			s := service(c.scheduler, lvs.Route, 3)
			s.Flags = c.flags
			w := newWorld(t, s)
			before := w.mapping()
			w.weigh(s, 1, 0)
			drained := w.mapping()
			owned, refused := uint64(0), uint64(0)
			for i := range before {
				switch {
				case before[i] == 0:
					t.Fatalf("client port %d was refused with all servers there", 10000+i)
				case before[i] != 1 && drained[i] != before[i]:
					t.Fatalf("client port %d moved from server %d to %d", 10000+i, before[i], drained[i])
				case before[i] == 1 && drained[i] == 1:
					t.Fatalf("client port %d still goes to the drained server", 10000+i)
				}
				if before[i] == 1 {
					owned++
				}
				if drained[i] == 0 {
					refused++
				}
			}
			want := owned
			if c.flags&lvs.FlagFallback != 0 {
				want = 0
			}
			if refused != want || owned < 800 {
				t.Errorf("%d refused, want %d; the drained server had %d of 3000", refused, want, owned)
			}
			w.wantVerdict(dataplane.NoDestination, want)
			w.weigh(s, 1, 1)
			if w.mapping() != before {
				t.Error("with the weight back, the mapping is another")
			}
		})
	}
}

// limited is a service whose server 1 has thresholds and four connections, on
// the client ports returned; server 2 has four too.
func limited(t *testing.T, upper, lower uint32) (w *world, ports []string) {
	t.Helper()
	s := service("rr", lvs.Route, 2)
	s.Servers[0].Upper, s.Servers[0].Lower = upper, lower
	w = newWorld(t, s)
	for i := range 8 {
		port := fmt.Sprint(20000 + i)
		if w.establish(port) == 1 {
			ports = append(ports, port)
		}
	}
	w.wantCounts(1, 4, 0)
	return w, ports
}

// gets tells whether server 1 of two gets one of the next two connections,
// which end again.
func (w *world) gets(base int) bool {
	w.t.Helper()
	got := false
	for i := range 2 {
		port := fmt.Sprint(base + i)
		got = w.establish(port) == 1 || got
		w.in(clientLink, w.segment(port, packet.RST))
	}
	w.pass(11 * time.Second)
	return got
}

// Field case 29: an overloaded server comes back when it falls below the lower threshold, or
// below three quarters of the upper one; what is not over yet counts.
func TestWhenAnOverloadedServerComesBack(t *testing.T) {
	for _, c := range []struct {
		lower uint32
		back  map[int]bool // by connections left
	}{
		{2, map[int]bool{4: false, 3: false, 2: false, 1: true}},
		{0, map[int]bool{4: false, 3: false, 2: true}},
	} {
		t.Run(fmt.Sprintf("-x 4 -y %d", c.lower), func(t *testing.T) {
			w, ports := limited(t, 4, c.lower)
			for left := 4; left > 4-len(c.back); left-- {
				if got := w.gets(30000 + 10*left); got != c.back[left] {
					t.Errorf("with %d connections it gets new ones: %v, want %v", left, got, c.back[left])
				}
				// The next one ends: CLOSE lasts 10 s.
				w.in(clientLink, w.segment(ports[4-left], packet.RST))
				w.pass(11 * time.Second)
			}
		})
	}
	t.Run("FIN_WAIT counts", func(t *testing.T) {
		w, ports := limited(t, 4, 0)
		for _, port := range ports {
			w.in(clientLink, w.segment(port, packet.FIN|packet.ACK))
		}
		w.wantCounts(1, 0, 4)
		w.pass(100 * time.Second)
		if w.gets(30000) {
			t.Error("it gets new connections while four are in FIN_WAIT")
		}
		w.pass(10 * time.Second)
		w.wantCounts(1, 0, 0)
		if !w.gets(30010) {
			t.Error("it gets no new connections with none left")
		}
	})
}

// Field case 29: new clients are refused, connections that are there go on.
func TestTheOnlyServerOverloaded(t *testing.T) {
	s := service("rr", lvs.Route, 1)
	s.Servers[0].Upper = 4
	w := newWorld(t, s)
	for i := range 4 {
		w.establish(fmt.Sprint(20000 + i))
	}
	e := one(t, w.in(clientLink, w.syn("20004")))
	if icmp := e.Buf[e.L4:]; e.Flow.Proto != packet.ICMP || icmp[0] != 3 || icmp[1] != 3 || e.Flow.Src != addr(vip) || e.Flow.Dst != addr(client) {
		t.Errorf("the fifth SYN got %v, want ICMP 3/3 from the VIP to the client", e.Flow)
	}
	w.wantVerdict(dataplane.NoDestination, 1)
	for i := range 4 {
		w.wantServer(1, w.segment(fmt.Sprint(20000+i), packet.ACK))
	}
	w.wantCounts(1, 4, 0)
}

// request is a client's data segment whose acknowledgement is 777.
func request(t testing.TB, clientPort string) *packet.Packet {
	return packettest.Build(t, packettest.Spec{Src: client + ":" + clientPort, Dst: vip + ":80", Flags: packet.ACK | packet.PSH, Seq: 1001, Ack: 777, Payload: []byte("SELECT 1")})
}

// wantReset expects that a data segment is answered with one reset that the
// client believes.
func (w *world) wantReset(clientPort string) {
	w.t.Helper()
	r := one(w.t, w.in(clientLink, request(w.t, clientPort)))
	tcp := r.Buf[r.L4:r.End]
	if r.Link != clientLink || r.Flow.Dst != addr(client) || r.Flow.Src != addr(vip) || tcp[13] != packet.RST || binary.BigEndian.Uint32(tcp[4:]) != 777 {
		w.t.Errorf("answered with %v by link %d, flags %#x, seq %d; want a reset from the VIP with seq 777", r.Flow, r.Link, tcp[13], binary.BigEndian.Uint32(tcp[4:]))
	}
}

// Field case 36: a connection that was idle for too long is reset, not ignored.
func TestAnIdleConnectionIsReset(t *testing.T) {
	w := newWorld(t, service("rr", lvs.Masq, 1))
	w.establish("40000")
	w.pass(899 * time.Second)
	w.wantServer(1, request(t, "40000"))
	w.wantEntry(40000, 1, conntrack.Established, 900*time.Second)
	w.pass(901 * time.Second)
	if n := len(w.entries(40000)); n != 0 {
		t.Errorf("%d entries after 901 s", n)
	}
	w.wantReset("40000")
	w.wantVerdict(dataplane.NoConnection, 1)
	w.wantCounts(1, 0, 0)
}

// Field case 36: ipvsadm --set reaches three timeouts and no other.
func TestTimeoutsThatCanBeSet(t *testing.T) {
	w := newWorld(t, service("rr", lvs.Route, 1), syslog(lvs.Route))
	w.d.SetTimeouts(7200*time.Second, 0, 0)
	w.establish("40000")
	w.wantEntry(40000, 1, conntrack.Established, 7200*time.Second)
	w.in(clientLink, w.segment("40000", packet.FIN|packet.ACK))
	w.wantEntry(40000, 1, conntrack.FinWait, 120*time.Second)
	w.in(clientLink, w.syn("40001"))
	w.wantEntry(40001, 1, conntrack.SynRecv, 60*time.Second)
	w.in(clientLink, datagram(t, "40002"))
	w.wantEntry(40002, 2, conntrack.UDP, 300*time.Second)
}

// Field case 38: established connections of a removed server.
func TestConnectionsOfARemovedServer(t *testing.T) {
	t.Run("expire_nodest_conn 0: dropped, and they go on when it is back", func(t *testing.T) {
		w, s := owned(t, lvs.Masq)
		w.remove(s, 1)
		for range 3 {
			if out := w.in(clientLink, request(t, "48000")); len(out) != 0 {
				t.Errorf("left: %v", summaries(out))
			}
		}
		w.wantVerdict(dataplane.DestinationGone, 3)
		w.pass(8 * time.Second)
		w.add(s, 1)
		w.wantCounts(1, 1, 0)
		w.wantEntry(48000, 1, conntrack.Established, 892*time.Second)
		w.wantServer(1, request(t, "48000"))
		w.wantEntry(48000, 1, conntrack.Established, 900*time.Second)
		w.wantCounts(1, 1, 0)
	})
	for _, when := range []string{"before", "after"} {
		t.Run("expire_nodest_conn 1, set "+when+" it goes: reset, then another server", func(t *testing.T) {
			w, s := owned(t, lvs.Masq)
			if when == "before" {
				w.set("expire_nodest_conn", "1")
			}
			w.remove(s, 1)
			w.set("expire_nodest_conn", "1")
			w.wantReset("48000")
			w.wantVerdict(dataplane.NoConnection, 1)
			if n := len(w.entries(48000)); n != 0 {
				t.Errorf("%d entries left", n)
			}
			w.wantServer(2, w.syn("48000"))
			w.wantEntry(48000, 2, conntrack.SynRecv, 60*time.Second)
		})
	}
}

// Field case 67: sh deals its buckets by weight.
func TestSourceHashingAndWeights(t *testing.T) {
	s := service("sh", lvs.Route, 2)
	s.Servers[1].Weight = 3
	w := newWorld(t, s)
	rng := rand.New(rand.NewPCG(67, 67))
	clients := make([]packet.Addr, 20000)
	for i := range clients {
		b := [4]byte{byte(1 + rng.IntN(126)), byte(rng.Uint32()), byte(rng.Uint32()), byte(rng.Uint32())}
		clients[i] = packet.AddrFrom4(b[:])
	}
	from := func(port int) []int {
		servers := make([]int, len(clients))
		for i, c := range clients {
			src := packet.Endpoint(c, uint16(port))
			servers[i] = serverOf(one(t, w.in(clientLink, packettest.Build(t, packettest.Spec{Src: src, Dst: vip + ":80", Flags: packet.SYN}))))
		}
		return servers
	}
	first := from(40000)
	second := 0
	for i, again := range from(40001) {
		if again != first[i] {
			t.Fatalf("client %v went to server %d, then to %d", clients[i], first[i], again)
		}
		if again == 2 {
			second++
		}
	}
	share := func(what string, n, percent int) {
		t.Helper()
		if got := 100 * float64(n) / float64(len(clients)); got < float64(percent)-2 || got > float64(percent)+2 {
			t.Errorf("%s: %.1f %%, want %d ± 2", what, got, percent)
		}
	}
	share("server 2 of weight 3 beside 1", second, 75)
	w.weigh(s, 2, 4)
	kept, second := 0, 0
	for i, server := range from(40002) {
		if server == first[i] {
			kept++
		}
		if server == 2 {
			second++
		}
	}
	share("server 2 of weight 4 beside 1", second, 80)
	share("clients that keep their server", kept, 65)
}

// Field case 67: rr takes no notice of weights.
func TestRoundRobinTakesNoNoticeOfWeights(t *testing.T) {
	s := service("rr", lvs.Route, 2)
	s.Servers[1].Weight = 3
	w := newWorld(t, s)
	got := map[int]int{}
	for i := range 1000 {
		got[serverOf(one(t, w.in(clientLink, w.syn(fmt.Sprint(10000+i)))))]++
	}
	if got[1] != 500 || got[2] != 500 {
		t.Errorf("1000 connections by server: %v, want 500 and 500", got)
	}
}
