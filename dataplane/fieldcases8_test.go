package dataplane_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pktdirector/conntrack"
	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// The tests of this file come from problem reports about who asks: clients beside
// the servers, servers themselves, the director itself, another director; and
// about FTP.

// Field case 19: a client on the servers' segment gets the masqueraded server's
// answer past the director, and gives up. The director shows it: the connection
// stays half-open, and no packet came back.
func TestAClientBesideItsMasqueradedServer(t *testing.T) {
	const beside = "192.0.2.100"
	w := newWorld(t, service("rr", lvs.Masq, 1))
	w.d.Learn(dataplane.Neighbour{Link: serverLink, Addr: addr(beside), MAC: packet.MAC{2, 0, 0, 0, 1, 100}})
	p := one(t, w.in(serverLink, packettest.Build(t, packettest.Spec{Src: beside + ":40000", Dst: vip + ":80", Flags: packet.SYN})))
	if p.Flow.Dst != addr(rip(1)) || p.Link != serverLink {
		t.Fatalf("%v by link %d", p.Flow, p.Link)
	}
	// The server answers on the segment: nothing comes by here.
	w.wantEntry(40000, 1, conntrack.SynRecv, 60*time.Second)
	w.wantCounts(1, 1, 0)
	w.after(3*time.Second - 50*time.Millisecond)
	if got := w.d.Unanswered(w.now); len(got) != 0 {
		t.Errorf("unanswered before the client has tried again: %+v", got)
	}
	w.after(50 * time.Millisecond)
	want := []dataplane.Unanswered{{
		Service: lvs.ServiceKey{Proto: packet.TCP, VIP: addr(vip), Port: 80}, Server: lvs.ServerKey{RIP: addr(rip(1)), Port: 8080},
		Connections: 1, Beside: 1, Client: addr(beside), ClientPort: 40000,
	}}
	if diff := cmp.Diff(want, w.d.Unanswered(w.now), cmp.Comparer(func(a, b packet.Addr) bool { return a == b })); diff != "" {
		t.Errorf("unanswered (-want +got):\n%s", diff)
	}
	w.after(57 * time.Second)
	if n := len(w.entries(40000)); n != 0 {
		t.Errorf("%d entries after a minute", n)
	}
	if s := w.d.Status()[0].Stats; s.Conns != 1 || s.InPkts != 1 || s.OutPkts != 0 {
		t.Errorf("counted %+v, want one connection, one packet in, none out", s)
	}
	w.wantVerdict(dataplane.Replied, 0)

	// With a route to the client by the director, it works.
	w.d.Learn(dataplane.Neighbour{Link: serverLink, Addr: addr(beside), MAC: packet.MAC{2, 0, 0, 0, 1, 100}})
	w.d.Learn(dataplane.Neighbour{Link: serverLink, Addr: addr(rip(1)), MAC: serverMAC(1)})
	one(t, w.in(serverLink, packettest.Build(t, packettest.Spec{Src: beside + ":40001", Dst: vip + ":80", Flags: packet.SYN})))
	reply := one(t, w.in(serverLink, packettest.Build(t, packettest.Spec{Src: rip(1) + ":8080", Dst: beside + ":40001", Flags: packet.SYN | packet.ACK})))
	if reply.Flow.Src != addr(vip) || reply.Flow.SrcPort != 80 || reply.DstMAC[5] != 100 {
		t.Errorf("the reply left as %v to %v", reply.Flow, reply.DstMAC)
	}
	one(t, w.in(serverLink, packettest.Build(t, packettest.Spec{Src: beside + ":40001", Dst: vip + ":80", Flags: packet.ACK})))
	w.wantEntry(40001, 1, conntrack.Established, 900*time.Second)
	w.after(10 * time.Second)
	if got := w.d.Unanswered(w.now); len(got) != 0 {
		t.Errorf("answered, and named: %+v", got)
	}

	// A client elsewhere waits for a server that answers others.
	w.in(clientLink, w.syn("40002"))
	w.after(5 * time.Second)
	if got := w.d.Unanswered(w.now); len(got) != 1 || got[0].Connections != 1 || got[0].Beside != 0 || got[0].Answered != 1 || got[0].ClientPort != 40002 {
		t.Errorf("a client elsewhere: %+v", got)
	}
}

// Field case 33: a masqueraded server is a client of its own service. Where the
// scheduler picks the server itself, the packet cannot go: each is counted, and
// none leaves with one address as source and destination.
func TestAServerThatAsksItsOwnService(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		t.Run(version(v6), func(t *testing.T) {
			s, self, virtual := service("rr", lvs.Masq, 2), rip(1), vip
			if v6 {
				s, self, virtual = service6("rr", lvs.Masq, 2), rip6(1), vip6
			}
			w := newWorld(t, s)
			went := map[int]int{}
			for port := range 10 {
				for range 2 { // sent again
					out := w.in(serverLink, carrying(packet.TCP, self, virtual, transport(packet.TCP, uint16(40000+port), 80, true)))
					for _, p := range out {
						went[serverOf(p)]++
						if p.Flow.Src == p.Flow.Dst {
							t.Errorf("%v left", p.Flow)
						}
					}
				}
			}
			if went[1] != 0 || went[2] != 10 {
				t.Errorf("servers got %v packets, want 10 for server 2", went)
			}
			w.wantVerdict(dataplane.Hairpin, 10)
			for _, d := range w.d.Status()[0].Destinations {
				if d.Stats.Conns != 5 {
					t.Errorf("%v was chosen %d times, want 5", d.Server, d.Stats.Conns)
				}
			}
		})
	}
}

// Direct routing and tunnels hand such a packet to the server like any other: its
// source and destination differ.
func TestAServerThatAsksItsOwnServicePastNAT(t *testing.T) {
	for _, m := range []lvs.Method{lvs.Route, lvs.Tunnel} {
		w := newWorld(t, service("rr", m, 1))
		one(t, w.in(serverLink, packettest.Build(t, packettest.Spec{Src: rip(1) + ":40000", Dst: vip + ":80", Flags: packet.SYN})))
		w.wantVerdict(dataplane.Hairpin, 0)
	}
}

// Field case 35: two directors are both real servers, too, of direct routing. The
// standby has no services: what the master hands it is its host's, and nothing
// comes back. When it takes the services over, it schedules. Two masters pass
// packets between them until the TTL ends that, which is counted.
func TestTwoDirectorsThatAreRealServersToo(t *testing.T) {
	const self = "192.0.2.254" // of each director, in its own world; the peer is server 1
	services := service("rr", lvs.Route, 1)
	services.Servers = append(services.Servers, lvs.RealServer{ServerKey: lvs.ServerKey{RIP: addr(self), Port: 80}, Method: lvs.Route, Weight: 1})
	master, standby := newWorld(t, services), newWorld(t)
	for port := range 10 {
		for _, p := range master.in(clientLink, master.syn(fmt.Sprint(40000+port))) {
			p.Class = packet.ToUs
			if out := standby.in(serverLink, p); len(out) != 0 {
				t.Errorf("%v came back from the standby", summaries(out))
			}
		}
	}
	master.wantVerdict(dataplane.LocalNode, 5)
	master.wantVerdict(dataplane.Forwarded, 5)
	standby.wantVerdict(dataplane.NotOurs, 5)

	standby.apply(services) // it is master now; the other one does not know yet
	standby.in(clientLink, standby.syn("41000"))
	standby.in(clientLink, standby.syn("41001"))
	standby.wantVerdict(dataplane.LocalNode, 1)
	standby.wantVerdict(dataplane.Forwarded, 1)
	for port := range 10 {
		at, frames := master, 0
		for out := at.in(clientLink, at.syn(fmt.Sprint(42000+port))); len(out) == 1 && out[0].Flow.Proto == packet.TCP; frames++ {
			if at = map[*world]*world{master: standby, standby: master}[at]; frames > 63 {
				t.Fatal("a packet goes round for ever")
			}
			out[0].Class = packet.ToUs
			out = at.in(serverLink, out[0])
		}
	}
	if n := master.d.Count(dataplane.TTLExceeded) + standby.d.Count(dataplane.TTLExceeded); n == 0 {
		t.Error("no packet went round until its TTL was used up: the test shows nothing")
	}
}

// Field case 48: what the director's own host sends to a VIP is not served. Its
// frames are passed over where they leave, and where they come back; a host's own
// connection changes no count.
func TestTheDirectorsOwnHostIsNoClient(t *testing.T) {
	for _, m := range methods() {
		w := newWorld(t, service("rr", m, 1))
		own := func(class packet.Class) *packet.Packet {
			p := packettest.Build(t, packettest.Spec{Src: "203.0.113.254:40000", Dst: vip + ":80", Flags: packet.SYN})
			p.Class = class
			return p
		}
		for class, v := range map[packet.Class]dataplane.Verdict{packet.Outgoing: dataplane.Outgoing, packet.ToUs: dataplane.ForgedSource} {
			if out := w.in(clientLink, own(class)); len(out) != 0 {
				t.Errorf("%s, %v: %v left", m.Short(), v, summaries(out))
			}
			w.wantVerdict(v, 1)
		}
		if s := w.d.Status()[0].Stats; s.Conns != 0 || s.InPkts != 0 {
			t.Errorf("%s: counted %+v", m.Short(), s)
		}
		w.wantServer(1, w.syn("40000")) // others are served
	}
}

// Packets whose source no host sends from start nothing and are answered by
// nobody, whatever they carry: no crowd and no director gets an answer.
func TestForgedSources(t *testing.T) {
	for _, c := range []struct {
		src    string
		forged bool
	}{
		{vip, true}, {"203.0.113.254", true}, {"192.0.2.254", true}, // the director's own
		{"127.0.0.1", true}, {"0.0.0.0", true}, {"0.1.2.3", true},
		{"224.0.0.1", true}, {"239.255.255.255", true}, {"255.255.255.255", true},
		{"198.51.100.255", true}, {"203.0.113.255", true}, // broadcasts of its subnets
		{"198.51.101.255", false}, {"198.51.100.0", false}, {client, false}, {rip(1), false},
		{vip6, true}, {"2001:db8:1::fe", true}, {"::1", true}, {"::", true}, {"ff02::1", true},
		{client6, false},
	} {
		t.Run(c.src, func(t *testing.T) {
			virtual, s, icmp, echo := vip, service("rr", lvs.Masq, 2), packet.ICMP, byte(8)
			if !addr(c.src).Is4() {
				virtual, s, icmp, echo = vip6, service6("rr", lvs.Masq, 2), packet.ICMPv6, 128
			}
			w := newWorld(t, s, udp(s))
			ping := carrying(icmp, c.src, virtual, []byte{echo, 0, 0, 0, 0, 1, 0, 1})
			if packet.Parse(ping) != packet.ParseOK {
				t.Fatal("the ping cannot be parsed")
			}
			ping.PutICMPChecksum()
			list := []*packet.Packet{
				carrying(packet.TCP, c.src, virtual, transport(packet.TCP, 80, 80, true)),
				carrying(packet.TCP, c.src, virtual, transport(packet.TCP, 80, 80, false)),
				carrying(packet.TCP, c.src, virtual, transport(packet.TCP, 80, 81, true)),
				carrying(packet.UDP, c.src, virtual, transport(packet.UDP, 80, 80, true)),
				carrying(packet.UDP, c.src, virtual, transport(packet.UDP, 80, 81, true)),
				carrying(packet.SCTP, c.src, virtual, transport(packet.SCTP, 80, 80, true)),
				carrying(packet.GRE, c.src, virtual, make([]byte, 8)),
				ping,
			}
			n := uint64(len(list))
			if !c.forged {
				n = 0
			}
			for i, p := range list {
				if out := w.in(clientLink, p); c.forged && len(out) != 0 {
					t.Errorf("packet %d: %v left", i, summaries(out))
				}
			}
			w.wantVerdict(dataplane.ForgedSource, n)
			if entries := w.entries(80); c.forged != (len(entries) == 0) {
				t.Errorf("entries: %v", entries)
			}
		})
	}
}

// Field case 71: without persistence nothing but the control port is served, and a
// data connection to another port is refused. Persistence for a range of ports by
// a firewall mark, or for every port, brings both of a client's connections to one
// server.
func TestPersistenceBringsPassiveFTPToOneServer(t *testing.T) {
	from := func(n int, port uint16) *packet.Packet {
		return packettest.Build(t, packettest.Spec{Src: fmt.Sprintf("198.51.100.%d:%d", 20+n, 40000+port), Dst: fmt.Sprintf("%s:%d", vip, port), Flags: packet.SYN})
	}
	ftpService := func(m lvs.Method, port uint16) lvs.VirtualService {
		s := service("rr", m, 2)
		s.Port = port
		for i := range s.Servers {
			s.Servers[i].Port = port
		}
		return s
	}
	for _, m := range methods() {
		t.Run("port 21 alone, "+m.Short(), func(t *testing.T) {
			w := newWorld(t, ftpService(m, 21))
			if out := w.in(clientLink, carrying(packet.TCP, client, vip, transport(packet.TCP, 40000, 50000, true))); len(out) != 1 || out[0].Link != clientLink {
				t.Errorf("%v left, want a reset", summaries(out))
			}
			w.wantVerdict(dataplane.NoService, 1)
			w.wantVerdict(dataplane.Forwarded, 0)
		})
		every := ftpService(m, 0)
		every.Persist = 300 * time.Second
		marked := ftpService(m, 0)
		marked.ServiceKey, marked.Persist = lvs.ServiceKey{Mark: 21}, 300*time.Second
		marks := []lvs.MarkRule{
			{Dst: every4(vip), Ports: []lvs.PortRange{{From: 21, To: 21}, {From: 50000, To: 50100}}, Link: -1, Mark: 21},
		}
		for name, r := range map[string]lvs.Ruleset{
			"every port":     {Services: []lvs.VirtualService{every}},
			"firewall marks": {Services: []lvs.VirtualService{marked}, Marks: marks},
		} {
			t.Run(name+", "+m.Short(), func(t *testing.T) {
				w := newWorld(t)
				w.must(w.d.Apply(r))
				servers := map[int]int{}
				for n := range 10 {
					w.d.Learn(dataplane.Neighbour{Link: clientLink, Addr: addr(fmt.Sprintf("198.51.100.%d", 20+n)), MAC: clientMAC})
					control, data := w.in(clientLink, from(n, 21)), w.in(clientLink, from(n, 50000+uint16(n)))
					if len(control) != 1 || len(data) != 1 || serverOf(control[0]) != serverOf(data[0]) {
						t.Fatalf("client %d: control to %v, data to %v", n, summaries(control), summaries(data))
					}
					servers[serverOf(data[0])]++
				}
				if servers[1] != 5 || servers[2] != 5 {
					t.Errorf("the clients are spread as %v", servers)
				}
			})
		}
	}
}

// Field case 71, with the helper: the answer to PASV names the VIP, sequence and
// acknowledgement numbers make up for the other length in both directions, every
// checksum is right, and the data connection reaches the server of the control
// connection.
func TestPassiveFTPOfAMasqueradedServer(t *testing.T) {
	s := service("rr", lvs.Masq, 2)
	s.Port = 21
	for i := range s.Servers {
		s.Servers[i].Port = 21
	}
	w := newWorld(t, s)
	request := func(flags uint8, seq, ack uint32, text string) *packet.Packet {
		return packettest.Build(t, packettest.Spec{Src: client + ":40000", Dst: vip + ":21", Flags: flags, Seq: seq, Ack: ack, Payload: []byte(text)})
	}
	p := one(t, w.in(clientLink, request(packet.SYN, 100, 0, "")))
	server := serverOf(p)
	reply := func(flags uint8, seq, ack uint32, text string) *packet.Packet {
		return one(t, w.in(serverLink, packettest.Build(t, packettest.Spec{Src: rip(server) + ":21", Dst: client + ":40000", Flags: flags, Seq: seq, Ack: ack, Payload: []byte(text)})))
	}
	reply(packet.SYN|packet.ACK, 500, 101, "")
	one(t, w.in(clientLink, request(packet.ACK, 101, 501, "")))
	one(t, w.in(clientLink, request(packet.ACK|packet.PSH, 101, 501, "PASV\r\n")))
	said := fmt.Sprintf("227 Entering Passive Mode (%s,195,80).\r\n", strings.ReplaceAll(rip(server), ".", ","))
	want := fmt.Sprintf("227 Entering Passive Mode (%s,195,80).\r\n", strings.ReplaceAll(vip, ".", ","))
	if got := reply(packet.ACK|packet.PSH, 501, 107, said).Bytes()[40:]; !bytes.Equal(got, []byte(want)) {
		t.Errorf("the client reads %q, want %q", got, want)
	}
	longer := uint32(len(want) - len(said))
	// What the client acknowledges is the longer text; the server wants its own.
	ack := one(t, w.in(clientLink, request(packet.ACK, 107, 501+uint32(len(want)), "")))
	if got := word(ack.Bytes()[28:]); got != 501+uint32(len(said)) {
		t.Errorf("the server sees an acknowledgement of %d, want %d", got, 501+len(said))
	}
	next := reply(packet.ACK, 501+uint32(len(said)), 107, "150 here\r\n")
	if got := word(next.Bytes()[24:]); got != 501+uint32(len(said))+longer {
		t.Errorf("the client sees sequence number %d, want %d", got, 501+len(want))
	}
	data := one(t, w.in(clientLink, packettest.Build(t, packettest.Spec{Src: client + ":40001", Dst: vip + ":50000", Flags: packet.SYN})))
	if serverOf(data) != server || data.Flow.Dst != addr(rip(server)) || data.Flow.DstPort != 50000 {
		t.Errorf("the data connection went to %v as %v", data.DstMAC, data.Flow)
	}
}

func word(b []byte) uint32 {
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}

// every4 is the prefixes of one IPv4 address.
func every4(a string) []netip.Prefix { return []netip.Prefix{mustPrefix(a + "/32")} }
