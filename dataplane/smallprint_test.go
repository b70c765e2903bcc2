package dataplane_test

import (
	"fmt"
	"testing"
	"time"

	"pktdirector/conntrack"
	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// The tests of this file are of IPVS's rules for single packets that no recording has.

// Nothing from port 20 starts a connection, of any protocol: it is answered as what
// belongs to none.
func TestNothingFromPort20StartsAConnection(t *testing.T) {
	everyTransport(t, methods(), func(t *testing.T, w *world, proto packet.Proto, _ lvs.Method, e ends) {
		for _, port := range []uint16{19, 20, 21} {
			out := w.in(clientLink, carrying(proto, e.client, e.vip, transport(proto, port, 80, true)))
			if len(out) != 1 || out[0].Link == clientLink != (port == 20) || len(w.entries(port)) != 0 != (port != 20) {
				t.Errorf("port %d: %v left, %d entries", port, summaries(out), len(w.entries(port)))
			}
		}
		w.wantVerdict(dataplane.NoConnection, 1)
	})
}

// A template is assured once one of its connections is known to be real: TCP and SCTP
// when they are established, UDP when the server has answered.
func TestTemplatesAreAssured(t *testing.T) {
	chunk := func(kind byte, reply bool) []byte {
		from, to := uint16(40000), uint16(80)
		if reply {
			from, to = 8080, 40000
		}
		b := append(transport(packet.SCTP, from, to, false), kind, 0, 0, 4)
		return b
	}
	segment := func(flags byte, reply bool) []byte {
		from, to := uint16(40000), uint16(80)
		if reply {
			from, to = 8080, 40000
		}
		b := transport(packet.TCP, from, to, false)
		b[13] = flags
		return b
	}
	const initChunk, initAck, cookieEcho, cookieAck = 1, 2, 10, 11
	type step struct {
		reply   bool
		bytes   []byte
		assured bool
	}
	for _, c := range []struct {
		name   string
		proto  packet.Proto
		method lvs.Method
		steps  []step
	}{
		{"TCP", packet.TCP, lvs.Masq, []step{{false, segment(packet.SYN, false), false}, {true, segment(packet.SYN|packet.ACK, true), false}, {false, segment(packet.ACK, false), true}}},
		{"TCP by direct routing", packet.TCP, lvs.Route, []step{{false, segment(packet.SYN, false), false}, {false, segment(packet.ACK, false), true}}},
		{"UDP", packet.UDP, lvs.Masq, []step{
			{false, transport(packet.UDP, 40000, 80, true), false}, {false, transport(packet.UDP, 40000, 80, true), false},
			{true, transport(packet.UDP, 8080, 40000, true), true},
		}},
		{"UDP by direct routing", packet.UDP, lvs.Route, []step{{false, transport(packet.UDP, 40000, 80, true), false}, {false, transport(packet.UDP, 40000, 80, true), false}}},
		{"SCTP", packet.SCTP, lvs.Masq, []step{{false, chunk(initChunk, false), false}, {true, chunk(initAck, true), false}, {false, chunk(cookieEcho, false), false}, {true, chunk(cookieAck, true), true}}},
		{"SCTP by direct routing", packet.SCTP, lvs.Route, []step{{false, chunk(initChunk, false), false}, {false, chunk(cookieEcho, false), true}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := service("rr", c.method, 1)
			s.Proto, s.Persist = c.proto, time.Minute
			w := newWorld(t, s)
			for i, step := range c.steps {
				link, src, dst := clientLink, client, vip
				if step.reply {
					link, src, dst = serverLink, rip(1), client
				}
				if out := w.in(link, carrying(c.proto, src, dst, step.bytes)); len(out) != 1 {
					t.Fatalf("step %d: %v left", i+1, summaries(out))
				}
				template := w.entries(0)
				if len(template) != 1 || template[0].State == conntrack.Assured != step.assured {
					t.Errorf("step %d: templates %+v, want one, assured: %v", i+1, template, step.assured)
				}
			}
		})
	}
}

// ICMP errors about a connection count as its server's packets, with the bytes of the
// error; errors about tunnels, which go no further, do not.
func TestErrorsAreCountedForTheServer(t *testing.T) {
	w := newWorld(t, service("rr", lvs.Masq, 1))
	w.establish("40000")
	before := w.d.Status()[0].Stats
	in := icmpFrom("203.0.113.7", vip, 3, 4, 1400, quoted(t, vip+":80", client+":40000", false, 8))
	out := icmpFrom(rip(1), client, 3, 3, 0, quoted(t, client+":40000", rip(1)+":8080", false, 20))
	inBytes, outBytes := uint64(in.Len()), uint64(out.Len())
	one(t, w.in(clientLink, in))
	one(t, w.in(serverLink, out))
	for what, s := range map[string]lvs.Stats{"service": w.d.Status()[0].Stats, "server": w.d.Status()[0].Destinations[0].Stats} {
		if s.Conns != before.Conns || s.InPkts != before.InPkts+1 || s.InBytes != before.InBytes+inBytes || s.OutPkts != before.OutPkts+1 || s.OutBytes != before.OutBytes+outBytes {
			t.Errorf("%s: %+v, was %+v; want a packet of %d bytes in and one of %d out", what, s, before, inBytes, outBytes)
		}
	}

	w = newWorld(t, service("rr", lvs.Masq, 1))
	w.set("schedule_icmp", "1")
	first := icmpFrom("203.0.113.7", vip, 3, 4, 1400, quoted(t, vip+":80", client+":40000", false, 8))
	inBytes = uint64(first.Len())
	one(t, w.in(clientLink, first))
	if s := w.d.Status()[0].Stats; s.Conns != 1 || s.InPkts != 1 || s.InBytes != inBytes {
		t.Errorf("an error that started a connection: %+v, want one packet of %d bytes", s, inBytes)
	}

	w, _, sent := tunnelWorld(t, false, false)
	before = w.d.Status()[0].Stats
	w.in(serverLink, aboutTunnel(3, 4, 1300, sent))
	if s := w.d.Status()[0].Stats; s != before {
		t.Errorf("an error about a tunnel: %+v, was %+v", s, before)
	}
}

// What a removed server still answers reaches the client, and counts nowhere.
func TestRepliesOfARemovedServerAreNotCounted(t *testing.T) {
	s := service("rr", lvs.Masq, 2)
	w := newWorld(t, s)
	server := w.establish("40000")
	w.remove(s, server)
	before := w.d.Status()[0].Stats
	one(t, w.in(serverLink, packettest.Build(t, packettest.Spec{Src: rip(server) + ":8080", Dst: client + ":40000", Flags: packet.ACK})))
	w.w.Tick(w.now)
	if got := w.d.Status()[0].Stats; got != before {
		t.Errorf("the service counts %+v, was %+v", got, before)
	}
	was := before.OutPkts
	w.apply(s)
	for _, d := range w.d.Status()[0].Destinations {
		was -= min(was, d.Stats.OutPkts)
	}
	if was != 0 || w.d.Status()[0].Stats.OutPkts != before.OutPkts {
		t.Errorf("after it came back: %+v", w.d.Status()[0])
	}
}

// A segment of an FTP control connection with a wrong checksum is dropped, and what it
// says is not believed: nobody would take it, and the helper is not to open ports for it.
func TestSpoiltSegmentsOfFTPAreDropped(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		t.Run(fmt.Sprintf("IPv6 %v", v6), func(t *testing.T) {
			f := newFTPTalk(t, v6)
			command := "PORT 198,51,100,10,195,80\r\n"
			if v6 {
				command = "EPRT |2|2001:db8:1::10|50000|\r\n"
			}
			spoilt := func(spec packettest.Spec) *packet.Packet {
				p := packettest.Build(t, spec)
				p.Buf[p.End-1] ^= 1
				return p
			}
			if out := f.in(clientLink, spoilt(packettest.Spec{Src: f.client + ":40000", Dst: f.vip + ":21", Flags: packet.ACK | packet.PSH, Seq: f.seq, Ack: f.ack, Payload: []byte(command)})); len(out) != 0 {
				t.Errorf("a spoilt request left: %v", summaries(out))
			}
			for _, p := range f.calls(serverLink, f.rip+":20", f.client+":50000") {
				if p.Link == clientLink && p.Flow.Src == addr(map[bool]string{false: vip, true: vip6}[v6]) {
					t.Errorf("the server's call left as %v", p.Flow)
				}
			}
			was := f.entries(40000)[0]
			f.after(5 * time.Second)
			if out := f.in(serverLink, spoilt(packettest.Spec{Src: f.rip + ":21", Dst: f.client + ":40000", Flags: packet.ACK | packet.FIN, Seq: f.serverSeq, Ack: f.seq, Payload: []byte("221 bye\r\n")})); len(out) != 0 {
				t.Errorf("a spoilt reply left: %v", summaries(out))
			}
			if is := f.entries(40000)[0]; is.State != was.State || is.Expires != was.Expires {
				t.Errorf("after a spoilt reply: %v until %v, was %v until %v", is.State, is.Expires, was.State, was.Expires)
			}
			f.wantVerdict(dataplane.BadChecksum, 2)
			if got := f.says(command); got != command {
				t.Errorf("the server reads %q", got)
			}
		})
	}
}
