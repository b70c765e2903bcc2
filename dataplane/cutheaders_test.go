package dataplane_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"pktdirector/conntrack"
	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// ends are the addresses of a world's client and of its server 1 in one IP version.
type ends struct{ client, vip, server string }

func endsOf(v6 bool) ends {
	if v6 {
		return ends{client6, vip6, rip6(1)}
	}
	return ends{client, vip, rip(1)}
}

func version(v6 bool) string { return map[bool]string{false: "IPv4", true: "IPv6"}[v6] }

// carrying builds an IP packet with TTL 64 around the bytes of a transport
// protocol, whatever they are.
func carrying(proto packet.Proto, src, dst string, body []byte) *packet.Packet {
	if from, to := addr(src), addr(dst); from.Is4() {
		b := append(make([]byte, 20), body...)
		b[0], b[6], b[8], b[9] = 0x45, 0x40, 64, byte(proto)
		binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
		from.Put4(b[12:])
		to.Put4(b[16:])
		packet.PutIPv4Checksum(b[:20])
		return packettest.Packet(b, packet.EtherIPv4)
	} else {
		b := append(make([]byte, 40), body...)
		b[0], b[6], b[7] = 0x60, byte(proto), 64
		binary.BigEndian.PutUint16(b[4:], uint16(len(body)))
		from.Put16(b[8:])
		to.Put16(b[24:])
		return packettest.Packet(b, packet.EtherIPv6)
	}
}

// transport is the shortest whole header of a first packet, or of an answer. Its
// checksum is of no interest.
func transport(proto packet.Proto, from, to uint16, first bool) []byte {
	b := make([]byte, map[packet.Proto]int{packet.TCP: 20, packet.UDP: 8, packet.SCTP: 12}[proto])
	binary.BigEndian.PutUint16(b, from)
	binary.BigEndian.PutUint16(b[2:], to)
	switch proto {
	case packet.TCP:
		b[12], b[13] = 5<<4, packet.ACK
		if first {
			b[13] = packet.SYN
		}
	case packet.UDP:
		b[5] = 8
	case packet.SCTP:
		if first {
			b = append(b, sctpInit, 0, 0, 4)
		}
	}
	return b
}

// everyTransport runs f for each protocol, IP version and method.
func everyTransport(t *testing.T, methods []lvs.Method, f func(t *testing.T, w *world, proto packet.Proto, m lvs.Method, e ends)) {
	for _, proto := range []packet.Proto{packet.TCP, packet.UDP, packet.SCTP} {
		for _, v6 := range []bool{false, true} {
			for _, m := range methods {
				t.Run(fmt.Sprintf("%v over %s, %s", proto, version(v6), m.Short()), func(t *testing.T) {
					s := service("rr", m, 1)
					if v6 {
						s = service6("rr", m, 1)
					}
					s.Proto = proto
					f(t, newWorld(t, s), proto, m, endsOf(v6))
				})
			}
		}
	}
}

// A transport header cut short anywhere, on a connection: masquerading cannot
// rewrite it and drops it, by name; direct routing and tunnels pass it on unchanged
// once its ports are there. It moves no state.
func TestTransportHeadersCutShortOnAConnection(t *testing.T) {
	everyTransport(t, methods(), func(t *testing.T, w *world, proto packet.Proto, m lvs.Method, e ends) {
		if out := w.in(clientLink, carrying(proto, e.client, e.vip, transport(proto, 40000, 80, true))); len(out) != 1 {
			t.Fatalf("%d packets left for the first one", len(out))
		}
		before := w.entries(40000)
		body := transport(proto, 40000, 80, false)
		for n := range len(body) {
			short := w.d.Count(dataplane.ShortHeader)
			p := carrying(proto, e.client, e.vip, body[:n])
			want := slices.Clone(p.Bytes())
			out := w.in(clientLink, p)
			if m == lvs.Masq || n < 4 {
				if len(out) != 0 || w.d.Count(dataplane.ShortHeader) != short+1 {
					t.Errorf("%d of %d bytes: %v left, want none and the verdict short_header", n, len(body), summaries(out))
				}
				continue
			}
			if len(out) != 1 {
				t.Fatalf("%d of %d bytes: %d packets left, want 1", n, len(body), len(out))
			}
			got := out[0].Bytes()
			got = got[len(got)-len(want):] // a tunnel's header comes first
			if ttl := ttlAt(want); got[ttl] != 63 {
				t.Errorf("%d of %d bytes: TTL %d, want 63", n, len(body), got[ttl])
			}
			if !bytes.Equal(got[12:], want[12:]) {
				t.Errorf("%d of %d bytes: left as\n%x\nwant\n%x", n, len(body), got, want)
			}
		}
		if after := w.entries(40000); len(after) != 1 || after[0].State != before[0].State {
			t.Errorf("the connection is %v, was %v", after, before)
		}
		if out := w.in(clientLink, carrying(proto, e.client, e.vip, body)); len(out) != 1 {
			t.Errorf("the whole header: %d packets left, want 1", len(out))
		}
	})
}

// A transport header cut short anywhere starts no connection and is answered by
// nobody.
func TestTransportHeadersCutShortStartNothing(t *testing.T) {
	everyTransport(t, methods(), func(t *testing.T, w *world, proto packet.Proto, _ lvs.Method, e ends) {
		full := len(transport(proto, 40000, 80, false))
		first := transport(proto, 40000, 80, true)
		for _, port := range []byte{80, 81} {
			for n := range full {
				first[3] = port
				if out := w.in(clientLink, carrying(proto, e.client, e.vip, first[:n])); len(out) != 0 {
					t.Errorf("port %d, %d of %d bytes: %v left", port, n, full, summaries(out))
				}
			}
		}
		w.wantVerdict(dataplane.ShortHeader, uint64(2*full))
		if list := w.entries(40000); len(list) != 0 {
			t.Errorf("%v is there", list)
		}
	})
}

// A masqueraded server's reply that is cut short does not leave untranslated: with
// its ports it is dropped by name, without them nobody can tell that it is one.
func TestRepliesCutShort(t *testing.T) {
	masquerading := []lvs.Method{lvs.Masq} // replies of the others do not pass the director
	everyTransport(t, masquerading, func(t *testing.T, w *world, proto packet.Proto, _ lvs.Method, e ends) {
		w.in(clientLink, carrying(proto, e.client, e.vip, transport(proto, 40000, 80, true)))
		body := transport(proto, 8080, 40000, false)
		for n := range len(body) {
			if out := w.in(serverLink, carrying(proto, e.server, e.client, body[:n])); len(out) != 0 {
				t.Errorf("%d of %d bytes: %v left", n, len(body), summaries(out))
			}
		}
		w.wantVerdict(dataplane.ShortHeader, uint64(len(body)-4))
		w.wantVerdict(dataplane.NotOurs, 4)
		if out := w.in(serverLink, carrying(proto, e.server, e.client, body)); len(out) != 1 || out[0].Flow.Src != addr(e.vip) {
			t.Errorf("the whole header: %v left", summaries(out))
		}
	})
}

// An ICMP message cut short anywhere, its own header or what it quotes before the
// ports, reaches no server, starts nothing and is answered by nobody.
func TestICMPCutShort(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, m := range methods() {
			t.Run(version(v6)+", "+m.Short(), func(t *testing.T) {
				s, e, proto, header := service("rr", m, 1), endsOf(v6), packet.ICMP, 20
				kind, tooBig, echo := packet.EtherIPv4, []byte{3, 4}, []byte{8, 0}
				if v6 {
					s, proto, header, kind, tooBig, echo = service6("rr", m, 1), packet.ICMPv6, 40, packet.EtherIPv6, []byte{2, 0}, []byte{128, 0}
				}
				w := newWorld(t, s)
				w.in(clientLink, carrying(packet.TCP, e.client, e.vip, transport(packet.TCP, 40000, 80, true)))
				quote := carrying(packet.TCP, e.vip, e.client, transport(packet.TCP, 80, 40000, false)).Bytes()
				whole := append(append(tooBig, 0, 0, 0, 0, 0x05, 0x78), quote...)
				summed := func(body []byte) *packet.Packet {
					p := carrying(proto, e.client, e.vip, slices.Clone(body))
					p.EtherType = kind
					if packet.Parse(p) == packet.ParseOK && len(body) >= 4 {
						p.PutICMPChecksum()
					}
					return p
				}
				for n := range 8 + header + 4 {
					if out := w.in(clientLink, summed(whole[:n])); len(out) != 0 {
						t.Errorf("an error of %d bytes: %v left", n, summaries(out))
					}
				}
				for n := range 8 {
					if out := w.in(clientLink, summed(append(echo, make([]byte, 8)...)[:n])); len(out) != 0 {
						t.Errorf("a ping of %d bytes: %v left", n, summaries(out))
					}
				}
				if out := w.in(clientLink, summed(whole[:8+header+8])); len(out) != 1 {
					t.Errorf("an error that quotes 8 bytes: %v left, want one to the server", summaries(out))
				}
				if n := len(w.entries(40000)); n != 1 {
					t.Errorf("%d entries, want 1", n)
				}
			})
		}
	}
}

// An ABORT behind the chunk that completes the handshake ends the association;
// behind any other it does not, nor where the lengths are wrong.
func TestAnABORTBehindACookie(t *testing.T) {
	const cookieEcho, cookieAck = 10, 11
	for _, c := range []struct {
		name   string
		method lvs.Method
		chunks []byte
		want   conntrack.State
	}{
		{"COOKIE ECHO, ABORT", lvs.Route, []byte{cookieEcho, 0, 0, 4, sctpAbort, 0, 0, 4}, conntrack.SCTPClosed},
		{"COOKIE ECHO with a padded cookie, ABORT", lvs.Route, []byte{cookieEcho, 0, 0, 5, 1, 0, 0, 0, sctpAbort, 0, 0, 4}, conntrack.SCTPClosed},
		{"COOKIE ACK, ABORT", lvs.Route, []byte{cookieAck, 0, 0, 4, sctpAbort, 0, 0, 4}, conntrack.SCTPClosed},
		{"COOKIE ECHO, ABORT in NAT", lvs.Masq, []byte{cookieEcho, 0, 0, 4, sctpAbort, 0, 0, 4}, conntrack.SCTPClosed},
		{"COOKIE ECHO alone", lvs.Route, []byte{cookieEcho, 0, 0, 4}, conntrack.SCTPEstablished},
		{"COOKIE ECHO, DATA", lvs.Route, []byte{cookieEcho, 0, 0, 4, sctpData, 0, 0, 4}, conntrack.SCTPEstablished},
		{"COOKIE ECHO of no length, ABORT", lvs.Route, []byte{cookieEcho, 0, 0, 0, sctpAbort, 0, 0, 4}, conntrack.SCTPEstablished},
		{"COOKIE ECHO longer than the packet", lvs.Route, []byte{cookieEcho, 0, 0xff, 0xff, sctpAbort, 0, 0, 4}, conntrack.SCTPEstablished},
		{"COOKIE ECHO, half an ABORT", lvs.Route, []byte{cookieEcho, 0, 0, 4, sctpAbort, 0}, conntrack.SCTPEstablished},
		{"half a COOKIE ECHO", lvs.Route, []byte{cookieEcho, 0}, conntrack.SCTPEstablished},
		{"DATA, ABORT", lvs.Route, []byte{sctpData, 0, 0, 4, sctpAbort, 0, 0, 4}, conntrack.SCTPInit1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := service("rr", c.method, 1)
			s.Proto = packet.SCTP
			w := newWorld(t, s)
			w.in(clientLink, carrying(packet.SCTP, client, vip, transport(packet.SCTP, 40000, 80, true)))
			w.in(clientLink, carrying(packet.SCTP, client, vip, append(transport(packet.SCTP, 40000, 80, false), c.chunks...)))
			if list := w.entries(40000); len(list) != 1 || list[0].State != c.want {
				t.Errorf("%v, want %v", list, c.want)
			}
		})
	}
}
