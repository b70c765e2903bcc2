package dataplane_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// A datagram of 4,000 bytes over IPv6 whose fragments do not pass the way to the
// server: its sender is told what passes, and fragments of that size arrive whole,
// translated or tunnelled. The answer comes back in fragments, too.
func TestBigDatagramsOverIPv6(t *testing.T) {
	for _, m := range methods() {
		for _, mtu := range []int{1280, 1400, 1500, 9000} {
			if m == lvs.Tunnel && mtu < 1320 {
				continue // IPv6 in IPv6 needs 1320
			}
			t.Run(fmt.Sprintf("%s, MTU %d", m.Short(), mtu), func(t *testing.T) {
				w := newWorld(t, udp(service6("rr", m, 1)))
				w.d.SetLinks(links(mtu))
				passes := mtu
				if m == lvs.Tunnel {
					passes -= 40
				}
				payload := bytes.Repeat([]byte("datagram"), 500)
				p := packettest.Build(t, packettest.Spec{Src: "[" + client6 + "]:40000", Dst: "[" + vip6 + "]:80", UDP: true, Payload: payload})
				send := func(limit int) []*packet.Packet {
					return w.in(clientLink, packettest.Fragments(t, p, 7, (limit-48)/8*8)...)
				}
				if passes < 1496 {
					if got := toldMTU(t, one(t, send(1500))); got != passes {
						t.Errorf("told %d, want %d", got, passes)
					}
				}
				out := send(min(passes, 1500))
				for _, f := range out {
					if f.Len() > mtu || f.Link != serverLink {
						t.Errorf("a fragment of %d bytes left by link %d", f.Len(), f.Link)
					}
				}
				whole, err := packettest.Join(out)
				if err != nil {
					t.Fatal(err)
				}
				if err := packettest.Verify(whole.Bytes()); err != nil {
					t.Error(err)
				}
				got := innermost(whole.Bytes())
				if !bytes.Equal(got[48:], payload) || got[7] != 63 {
					t.Errorf("%d bytes arrived, hop limit %d", len(got)-48, got[7])
				}
				if m != lvs.Masq {
					return
				}
				answer := packettest.Build(t, packettest.Spec{Src: "[" + rip6(1) + "]:8080", Dst: "[" + client6 + "]:40000", UDP: true, Payload: payload})
				out = w.in(serverLink, packettest.Fragments(t, answer, 8, (min(mtu, 1500)-48)/8*8)...)
				back, err := packettest.Join(out)
				if err != nil {
					t.Fatal(err)
				}
				if err := packettest.Verify(back.Bytes()); err != nil || !bytes.Equal(back.Bytes()[48:], payload) || !bytes.Equal(back.Bytes()[8:24], p.Bytes()[24:40]) {
					t.Errorf("the answer came as %d bytes: %v", back.Len(), err)
				}
			})
		}
	}
}

// An IPv6 packet behind a fragment header that came in one piece (an atomic
// fragment, RFC 6946) is a packet as any other.
func TestAtomicFragments(t *testing.T) {
	for _, m := range methods() {
		w := newWorld(t, service6("rr", m, 1))
		p := segment6(t, packettest.Spec{Flags: packet.SYN, Payload: []byte("early")})
		f := packettest.Fragment(t, p, 9, packettest.Piece{Len: p.Len() - 40, Last: true})
		out := one(t, w.in(clientLink, f))
		if n := len(w.entries(40000)); n != 1 || out.Link != serverLink {
			t.Errorf("%s: %d entries", m.Short(), n)
		}
		w.wantVerdict(dataplane.Forwarded, 1)
	}
}

// A director that had nothing to answer for months answers again.
func TestAnswersAfterALongSilence(t *testing.T) {
	const day = 24 * time.Hour
	for _, silence := range []time.Duration{50 * time.Millisecond, day, 107 * day, 250 * day, 20_000 * day} {
		w := newWorld(t, service("rr", lvs.Masq, 1))
		ask := func() (answers int) {
			for range 60 {
				for _, p := range w.in(clientLink, carrying(packet.UDP, client, vip, transport(packet.UDP, 40000, 81, true))) {
					if p.EtherType == packet.EtherIPv4 { // and no question for the client's MAC
						answers++
					}
				}
			}
			return answers
		}
		if n := ask(); n != 50 {
			t.Fatalf("%d answers at once, want 50", n)
		}
		w.now += silence
		w.d.Learn(dataplane.Neighbour{Link: clientLink, Addr: addr(client), MAC: clientMAC})
		if n := ask(); n != 50 {
			t.Errorf("%d answers after %v of silence, want 50", n, silence)
		}
	}
}

// Of 10,000 packets within a second that all deserve an answer, at most a burst
// and a second's worth get one, and each has its one verdict.
func TestAnswersAreRateLimited(t *testing.T) {
	for name, build := range map[string]func(port uint16) *packet.Packet{
		"datagrams to a closed port": func(port uint16) *packet.Packet {
			return carrying(packet.UDP, client, vip, transport(packet.UDP, port, 81, true))
		},
		"segments to a closed port": func(port uint16) *packet.Packet {
			return carrying(packet.TCP, client, vip, transport(packet.TCP, port, 81, true))
		},
		"segments without a connection": func(port uint16) *packet.Packet {
			return carrying(packet.TCP, client, vip, transport(packet.TCP, port, 80, false))
		},
		"datagrams with TTL 1": func(port uint16) *packet.Packet {
			p := carrying(packet.UDP, client, vip, transport(packet.UDP, port, 80, true))
			p.Bytes()[8] = 1
			packet.PutIPv4Checksum(p.Bytes()[:20])
			return p
		},
		"datagrams that are too big": func(port uint16) *packet.Packet {
			return carrying(packet.UDP, client, vip, append(transport(packet.UDP, port, 80, true), bytes.Repeat([]byte{1}, 1473)...))
		},
		"broken options": func(port uint16) *packet.Packet {
			return withOptions(carrying(packet.TCP, client, vip, transport(packet.TCP, port, 80, true)), 130, 0, 0, 0)
		},
		"a protocol that nobody speaks": func(port uint16) *packet.Packet {
			return carrying(50, client, vip, binary.BigEndian.AppendUint16(nil, port))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, service("rr", lvs.Masq, 1), udp(service("rr", lvs.Masq, 1)))
			w.now = time.Minute
			before, answers := total(w.d), 0
			sent, most := 10_000, 1050
			if strings.HasPrefix(name, "segments") { // resets: as many as a server's clients may need at once
				sent, most = 30_000, 20_000
			}
			for i := range sent {
				if i%(sent/1000) == 0 {
					w.now += time.Millisecond
				}
				answers += len(w.in(clientLink, build(uint16(1000+i))))
			}
			if answers > most || answers < most*6/7 {
				t.Errorf("%d answers, want at most %d and not many less", answers, most)
			}
			if n := total(w.d) - before; n != uint64(sent) {
				t.Errorf("%d verdicts of %d packets", n, sent)
			}
		})
	}
}
