package dataplane_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"pktdirector/conntrack"
	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// peer is an end of connections.
func peer(a string, port uint16) conntrack.Peer {
	ip := netip.MustParseAddr(a)
	return conntrack.Peer{Net: netip.PrefixFrom(ip, ip.BitLen()), Port: port}
}

// end ends what a filter chooses and checks how many those were.
func (w *world) end(f conntrack.Filter, connections, templates int) {
	w.t.Helper()
	if c, t := w.d.EndConns(f, true); c != connections || t != templates {
		w.t.Errorf("%d connections and %d templates would end, want %d and %d", c, t, connections, templates)
	}
	if c, t := w.d.EndConns(f, false); c != connections || t != templates {
		w.t.Errorf("%d connections and %d templates ended, want %d and %d", c, t, connections, templates)
	}
	if c, t := w.d.EndConns(f, false); c != 0 || t != 0 {
		w.t.Errorf("%d connections and %d templates ended a second time", c, t)
	}
	if err := w.d.CheckCounts(); err != nil {
		w.t.Error(err)
	}
}

// A packet of a connection that was ended is one without an entry, whatever the
// method: a segment to the VIP is reset, what the server sends is nobody's, and a
// SYN begins anew.
func TestPacketsOfAnEndedConnection(t *testing.T) {
	for _, m := range []lvs.Method{lvs.Masq, lvs.Route, lvs.Tunnel, lvs.FullNAT} {
		t.Run(m.Short(), func(t *testing.T) {
			w := newWorld(t, service("rr", m, 2))
			sent := one(t, w.in(clientLink, w.syn("40000")))
			w.in(clientLink, w.segment("40000", packet.ACK))
			w.in(clientLink, w.syn("40001"))
			w.end(conntrack.Filter{Kinds: conntrack.Connections, Proto: packet.TCP, Client: peer(client, 40000), VIP: peer(vip, 80)}, 1, 0)

			reset := one(t, w.in(clientLink, w.segment("40000", packet.ACK)))
			if flags := reset.Bytes()[packet.IPv4HeaderLen+13]; flags&packet.RST == 0 || reset.Flow.Dst != addr(client) || reset.Flow.Src != addr(vip) {
				t.Errorf("the client was answered %v with flags %#x, want a reset of the VIP's", reset.Flow, flags)
			}
			w.wantVerdict(dataplane.NoConnection, 1)
			if m.RewritesPorts() {
				late := packettest.Build(t, packettest.Spec{Src: packet.Endpoint(sent.Flow.Dst, sent.Flow.DstPort), Dst: packet.Endpoint(sent.Flow.Src, sent.Flow.SrcPort), Flags: packet.ACK})
				replied := w.d.Count(dataplane.Replied)
				w.in(serverLink, late)
				w.wantVerdict(dataplane.Replied, replied)
			}
			if again := one(t, w.in(clientLink, w.syn("40000"))); again.TCPFlags != packet.SYN {
				t.Errorf("a SYN after it: %v", again.Flow)
			}
			if n := w.d.Table().Connections; n != 2 {
				t.Errorf("%d connections, want 2", n)
			}
			for _, s := range w.d.Status()[0].Destinations {
				if s.Active+s.InAct != 1 {
					t.Errorf("%v has %d connections, want 1", s.Server, s.Active+s.InAct)
				}
			}
		})
	}
}

// A datagram of a flow that was ended begins a new one, and so does one that comes
// in fragments.
func TestDatagramsOfAnEndedFlow(t *testing.T) {
	for _, m := range []lvs.Method{lvs.Masq, lvs.Route, lvs.Tunnel, lvs.FullNAT} {
		t.Run(m.Short(), func(t *testing.T) {
			w := newWorld(t, udp(service("rr", m, 2)))
			datagram := func(size int) *packet.Packet {
				return packettest.Build(t, packettest.Spec{Src: client + ":40000", Dst: vip + ":80", UDP: true, NoDF: true, Payload: make([]byte, size)})
			}
			all := conntrack.Filter{Kinds: conntrack.Connections, Client: peer(client, 0)}
			first := serverOf(one(t, w.in(clientLink, datagram(10))))
			w.end(all, 1, 0)
			second := serverOf(one(t, w.in(clientLink, datagram(10))))
			if first == second {
				t.Error("rr gave the new flow to the same server")
			}
			w.end(all, 1, 0)
			var out []*packet.Packet
			for _, piece := range []packettest.Piece{{Offset: 0, Len: 1000}, {Offset: 1000, Len: 1008, Last: true}} {
				out = append(out, w.in(clientLink, packettest.Fragment(t, datagram(2000), 9, piece))...)
			}
			if len(out) < 2 || serverOf(out[0]) != first {
				t.Errorf("%d fragments left, want 2 or more to server %d: %v", len(out), first, summaries(out))
			}
			if c := w.only(); c.Requests.Packets == 0 || c.Requests.Bytes < 2000 {
				t.Errorf("the new flow counted %+v", c.Requests)
			}
		})
	}
}

// A real server is emptied in one service, and in all.
func TestEndingTheConnectionsOfAServer(t *testing.T) {
	other := service("rr", lvs.Masq, 2)
	other.Port = 81
	w := newWorld(t, service("rr", lvs.Masq, 2), other)
	for i := range 10 {
		for _, to := range []int{80, 81} {
			src := fmt.Sprintf("%s:%d%d", client, to, 10+i) // another port each: replies must differ
			w.in(clientLink, packettest.Build(t, packettest.Spec{Src: src, Dst: fmt.Sprintf("%s:%d", vip, to), Flags: packet.SYN}))
		}
	}
	before := w.d.Table().Connections
	f := conntrack.Filter{Kinds: conntrack.Connections, Server: peer(rip(1), 8080), Service: &other.ServiceKey}
	n, _ := w.d.EndConns(f, true)
	if n == 0 {
		t.Fatal("the server has no connections")
	}
	w.end(f, n, 0)
	if got := w.d.Table().Connections; got != before-n {
		t.Errorf("%d connections are left, want %d", got, before-n)
	}
	for _, s := range w.d.Status() {
		for _, d := range s.Destinations {
			if gone := s.Service.Port == 81 && d.Server.RIP == addr(rip(1)); (d.Active+d.InAct == 0) != gone {
				t.Errorf("%v of %v has %d connections", d.Server, s.Service, d.Active+d.InAct)
			}
		}
	}
	f.Service = nil
	rest, _ := w.d.EndConns(f, true)
	w.end(f, rest, 0)
}

// Ending a client's affinity leaves its connections where they are; the next is
// scheduled anew. A service that counts a net as one client is meant, too. What
// held the template lets it go at its end.
func TestEndingAClientsAffinity(t *testing.T) {
	s := service("rr", lvs.Masq, 2)
	s.Persist, s.MaskBits = 5*time.Minute, 24
	w := newWorld(t, s)
	first := w.establish("40000")
	if again := w.establish("40001"); again != first {
		t.Fatalf("the client went to server %d and %d", first, again)
	}
	w.end(conntrack.Filter{Kinds: conntrack.Templates, Client: peer("203.0.113.9", 0)}, 0, 0)
	w.end(conntrack.Filter{Kinds: conntrack.Templates, Client: peer(client, 0)}, 0, 1)
	if got := serverOf(one(t, w.in(clientLink, w.segment("40000", packet.ACK)))); got != first {
		t.Errorf("the established connection went on to server %d, want %d", got, first)
	}
	if got := w.establish("40002"); got == first {
		t.Error("the new connection went to the server that the client was bound to")
	}
	if n := w.d.Table().Templates; n != 2 {
		t.Errorf("%d templates, want the new one and the one that connections hold", n)
	}
	w.end(conntrack.Filter{Kinds: conntrack.Connections}, 3, 0)
	w.end(conntrack.Filter{Kinds: conntrack.Templates}, 0, 1)
	w.after(6 * time.Minute)
	if s := w.d.Table(); s.Connections != 0 || s.Templates != 0 {
		t.Errorf("%d connections and %d templates are left", s.Connections, s.Templates)
	}
}

// An FTP control connection that is ended leaves the data connection that it
// announced, and nothing when that ends, too.
func TestEndingAnFTPControlConnection(t *testing.T) {
	s := service("rr", lvs.Masq, 1)
	s.Port, s.Servers[0].Port = 21, 21
	w := newWorld(t, s)
	say := func(link int, from, to string, flags uint8, seq uint32, text string) {
		w.in(link, packettest.Build(t, packettest.Spec{Src: from, Dst: to, Flags: flags, Seq: seq, Payload: []byte(text)}))
	}
	say(clientLink, client+":40000", vip+":21", packet.SYN, 1000, "")
	say(serverLink, rip(1)+":21", client+":40000", packet.SYN|packet.ACK, 5000, "")
	say(clientLink, client+":40000", vip+":21", packet.ACK, 1001, "PASV\r\n")
	say(serverLink, rip(1)+":21", client+":40000", packet.ACK, 5001, "227 Entering Passive Mode (192,0,2,11,156,65).\r\n")
	if n := w.d.Table().Connections; n != 2 {
		t.Fatalf("%d connections, want the control connection and the one it announced", n)
	}
	w.end(conntrack.Filter{Kinds: conntrack.Connections, VIP: peer(vip, 21)}, 1, 0)
	w.in(clientLink, packettest.Build(t, packettest.Spec{Src: client + ":40009", Dst: vip + ":40001", Flags: packet.SYN}))
	if c := w.only(); c.ClientPort != 40009 || c.State != conntrack.SynRecv {
		t.Errorf("the data connection: %+v", c)
	}
	w.end(conntrack.Filter{Kinds: conntrack.Connections, Client: peer(client, 0)}, 1, 0)
	if n := w.d.HelperEntries(); n != 0 {
		t.Errorf("the helper keeps %d records", n)
	}
}
