package dataplane_test

import (
	"testing"
	"time"

	"pktdirector/conntrack"
	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// alternates expects a one-packet service's datagrams to take turns and to
// leave no entry.
func (w *world) alternates(clientPort string) {
	w.t.Helper()
	got := map[int]int{}
	last := 0
	for range 10 {
		server := serverOf(one(w.t, w.in(clientLink, datagram(w.t, clientPort))))
		if server == last {
			w.t.Errorf("server %d got two in a row", server)
		}
		got[server]++
		last = server
	}
	if got[1] != 5 || got[2] != 5 {
		w.t.Errorf("10 datagrams by server: %v, want 5 and 5", got)
	}
	for i := range 2 {
		w.wantCounts(i+1, 0, 0)
	}
}

// Field case 53: datagrams take turns and leave no entry.
func TestOnePacketScheduling(t *testing.T) {
	s := syslog(lvs.Masq)
	s.OnePacket = true
	w := newWorld(t, s)
	w.alternates("40000")
	if n := len(w.entries(40000)); n != 0 {
		t.Errorf("%d entries, want none", n)
	}
	if stats := w.d.Status()[0].Stats; stats.InPkts != 10 || stats.Conns != 10 {
		t.Errorf("counted %d packets and %d connections, want 10 and 10", stats.InPkts, stats.Conns)
	}
}

// Field case 53: replies of a one-packet service have no entry to be found by,
// and come from the VIP all the same.
func TestRepliesOfAOnePacketServiceComeFromTheVIP(t *testing.T) {
	s := syslog(lvs.Masq)
	s.OnePacket = true
	from := func(server int, port string) *packet.Packet {
		return packettest.Build(t, packettest.Spec{Src: rip(server) + ":" + port, Dst: client + ":40000", UDP: true, Payload: []byte("ack")})
	}
	w := newWorld(t, s)
	for range 4 {
		server := serverOf(one(t, w.in(clientLink, datagram(t, "40000"))))
		w.pass(time.Hour) // however late
		reply := one(t, w.in(serverLink, from(server, "514")))
		if f := reply.Flow; f.Src != addr(vip) || f.SrcPort != 514 || f.Dst != addr(client) || f.DstPort != 40000 || reply.Link != clientLink {
			t.Errorf("the reply left as %v by link %d, want it from the VIP", f, reply.Link)
		}
	}
	stats := w.d.Status()[0].Stats
	if size := uint64(20 + 8 + 3); stats.OutPkts != 4 || stats.OutBytes != 4*size {
		t.Errorf("counted %d replies, %d bytes, want 4 and %d", stats.OutPkts, stats.OutBytes, 4*size)
	}
	w.wantVerdict(dataplane.Replied, 4)
	stays := func(what string, p *packet.Packet) {
		t.Helper()
		before := w.d.Count(dataplane.NotOurs)
		if out := w.in(serverLink, p); len(out) != 0 || w.d.Count(dataplane.NotOurs) != before+1 {
			t.Errorf("%s: left as %v", what, summaries(out))
		}
	}
	stays("another port of the server", from(1, "515"))
	stays("a machine that is no server", from(3, "514"))
	stays("a datagram for the host itself", packettest.Build(t, packettest.Spec{Src: rip(1) + ":514", Dst: "192.0.2.254:40000", UDP: true}))
	w.weigh(s, 1, 0)
	one(t, w.in(serverLink, from(1, "514"))) // drained servers still answer
	w.remove(s, 1)
	stays("a removed server", from(1, "514"))
	w.add(s, 1)
	one(t, w.in(serverLink, from(1, "514")))
	s.OnePacket = false
	w.must(w.d.EditService(s))
	stays("one-packet scheduling switched off", from(1, "514"))
	w.must(w.d.DeleteService(s.ServiceKey))
	stays("without the service", from(1, "514"))
}

// Of two one-packet services with one and the same server the first, by VIP and
// port, gets the replies: nothing in them tells which they are of.
func TestRepliesOfAServerOfTwoOnePacketServices(t *testing.T) {
	first, second := syslog(lvs.Masq), syslog(lvs.Masq)
	first.OnePacket, second.OnePacket, first.VIP = true, true, addr("203.0.113.79")
	for _, order := range [][]lvs.VirtualService{{first, second}, {second, first}} {
		w := newWorld(t, order...)
		reply := packettest.Build(t, packettest.Spec{Src: rip(1) + ":514", Dst: client + ":40000", UDP: true})
		if f := one(t, w.in(serverLink, reply)).Flow; f.Src != first.VIP {
			t.Errorf("the reply left as %v, want it from %v", f, first.VIP)
		}
	}
}

// As with any reply, what a router would not send on counts for nobody.
func TestRepliesOfAOnePacketServiceThatDoNotPass(t *testing.T) {
	s := syslog(lvs.Masq)
	s.OnePacket = true
	spec := packettest.Spec{Src: rip(1) + ":514", Dst: client + ":40000", UDP: true}
	ended, large := spec, spec
	ended.TTL = 1
	large.Payload = make([]byte, 1500)
	for want, p := range map[dataplane.Verdict]*packet.Packet{
		dataplane.TTLExceeded: packettest.Build(t, ended), dataplane.TooBig: packettest.Build(t, large),
	} {
		w := newWorld(t, s)
		w.in(serverLink, p)
		w.wantVerdict(want, 1)
		if stats := w.d.Status()[0].Stats; stats.OutPkts != 0 {
			t.Errorf("verdict %d: counted %d replies, want none", want, stats.OutPkts)
		}
	}
}

// With DR and TUN the servers answer by themselves.
func TestRepliesOfAOnePacketServiceBesideTheDirector(t *testing.T) {
	s := syslog(lvs.Route)
	s.OnePacket = true
	w := newWorld(t, s)
	w.in(serverLink, packettest.Build(t, packettest.Spec{Src: rip(1) + ":514", Dst: client + ":40000", UDP: true}))
	w.wantVerdict(dataplane.NotOurs, 1)
}

// Field case 53: one-packet scheduling switched on: a flow that has an entry keeps it, and its
// server, until the entry ends.
func TestOnePacketSchedulingSwitchedOn(t *testing.T) {
	edited := func(t *testing.T) (*world, lvs.VirtualService) {
		s := syslog(lvs.Masq)
		w := sender(t, s)
		s.OnePacket = true
		w.must(w.d.EditService(s))
		for range 10 {
			w.pass(time.Second)
			w.wantServer(1, datagram(t, "40000"))
			w.wantEntry(40000, 1, conntrack.UDP, 300*time.Second)
		}
		return w, s
	}
	t.Run("it takes turns once it paused for 300 s", func(t *testing.T) {
		w, _ := edited(t)
		w.pass(300 * time.Second)
		w.alternates("40000")
	})
	t.Run("or when expire_nodest_conn ends its entry", func(t *testing.T) {
		w, s := edited(t)
		w.set("expire_nodest_conn", "1")
		for i := range 2 {
			w.remove(s, i+1)
			w.add(s, i+1)
		}
		w.alternates("40000")
	})
	t.Run("a new flow takes turns at once", func(t *testing.T) {
		w, _ := edited(t)
		w.pass(300 * time.Second)
		w.alternates("40001")
	})
}
