package dataplane_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// checksumOf returns the field of a TCP or UDP packet in an IP header without
// options and extensions.
func checksumOf(b []byte) []byte {
	at, proto := 20, b[9]
	if b[0]>>4 == 6 {
		at, proto = 40, b[6]
	}
	if proto == byte(packet.TCP) {
		return b[at+16 : at+18]
	}
	return b[at+6 : at+8]
}

// wrongBy is how far a packet's checksum is from the right one.
func wrongBy(b []byte) uint16 {
	d := uint32(binary.BigEndian.Uint16(checksumOf(b))) + uint32(^packettest.TransportChecksum(b))
	if d = d&0xffff + d>>16; d == 0xffff {
		return 0
	}
	return uint16(d)
}

// innermost takes the header of IP in IP off, if there is one.
func innermost(b []byte) []byte {
	switch {
	case b[0]>>4 == 4 && (b[9] == 4 || b[9] == 41):
		return b[20:]
	case b[0]>>4 == 6 && (b[6] == 4 || b[6] == 41):
		return b[40:]
	}
	return b
}

// way is a packet's way through the director.
type way struct {
	method lvs.Method
	v6     bool
	udp    bool
	reply  bool // masquerading only
	pieces bool // comes in fragments
}

func (x way) String() string {
	proto, dir, how := "TCP", "request", "whole"
	if x.udp {
		proto = "UDP"
	}
	if x.reply {
		dir = "reply"
	}
	if x.pieces {
		how = "in fragments"
	}
	return fmt.Sprintf("%s, %s over %s, %s, %s", x.method.Short(), proto, version(x.v6), dir, how)
}

// ways are all of them for a protocol.
func ways(udp bool) (list []way) {
	for _, m := range methods() {
		for i := range 8 {
			x := way{m, i&1 != 0, udp, i&2 != 0, i&4 != 0}
			if m == lvs.Masq || !x.reply {
				list = append(list, x)
			}
		}
	}
	return list
}

// through opens a connection, sends what change makes of a packet with the
// payload, and returns the packet that the receiver has.
func (x way) through(t *testing.T, payload []byte, change func(b []byte)) (sent, got []byte) {
	t.Helper()
	s, e := service("rr", x.method, 1), endsOf(x.v6)
	if x.v6 {
		s = service6("rr", x.method, 1)
	}
	join := func(a string, port uint16) string {
		if x.v6 {
			a = "[" + a + "]"
		}
		return fmt.Sprintf("%s:%d", a, port)
	}
	if x.udp {
		s = udp(s)
	}
	w := newWorld(t, s)
	spec := packettest.Spec{Src: join(e.client, 40000), Dst: join(e.vip, 80), UDP: x.udp, Flags: packet.SYN, NoDF: true}
	one(t, w.in(clientLink, packettest.Build(t, spec)))
	spec.Flags, spec.Payload = packet.ACK, payload
	link := clientLink
	if x.reply {
		spec.Src, spec.Dst, link = join(e.server, 8080), join(e.client, 40000), serverLink
	}
	p := packettest.Build(t, spec)
	change(p.Bytes())
	sent = bytes.Clone(p.Bytes())
	packets := []*packet.Packet{p}
	if x.pieces {
		packets = packettest.Fragments(t, p, 9, 64)
	}
	whole, err := packettest.Join(w.in(link, packets...))
	if err != nil {
		t.Fatal(err)
	}
	return sent, innermost(whole.Bytes())
}

// long fills several fragments.
func long() []byte { return bytes.Repeat([]byte("abcdefg"), 40) }

// A checksum that is wrong stays wrong, by as much; nobody repairs it and nobody
// looks at it.
func TestWrongChecksumsStayWrong(t *testing.T) {
	for _, udp := range []bool{false, true} {
		for _, x := range ways(udp) {
			t.Run(x.String(), func(t *testing.T) {
				sent, got := x.through(t, long(), func(b []byte) { checksumOf(b)[1] += 0x11 })
				if a, b := wrongBy(sent), wrongBy(got); a != b || a == 0 {
					t.Errorf("wrong by %#x, was wrong by %#x", b, a)
				}
			})
		}
	}
}

// A datagram without a checksum: masquerading gives it one, as the kernel does, by
// IPv6 too, where it must have one; direct routing and tunnels leave it alone.
func TestDatagramsWithoutChecksum(t *testing.T) {
	for _, x := range ways(true) {
		t.Run(x.String(), func(t *testing.T) {
			_, got := x.through(t, long(), func(b []byte) { copy(checksumOf(b), []byte{0, 0}) })
			field := binary.BigEndian.Uint16(checksumOf(got))
			switch {
			case x.method == lvs.Masq && (field == 0 || wrongBy(got) != 0):
				t.Errorf("masquerading leaves %#04x, right is %#04x", field, packettest.TransportChecksum(got))
			case x.method != lvs.Masq && field != 0:
				t.Errorf("%#04x, want 0 as it was", field)
			}
		})
	}
}

// tuned returns a payload with which the checksum of the packet on one side of
// the director comes out as 0: the last word makes up for the rest.
func (x way) tuned(t *testing.T, after bool, change func(b []byte)) []byte {
	t.Helper()
	payload := append(long(), 0, 0)
	sent, got := x.through(t, payload, change)
	b := sent
	if after {
		b = got
	}
	binary.BigEndian.PutUint16(payload[len(payload)-2:], packettest.TransportChecksum(b))
	return payload
}

// Field case 15: a UDP checksum that comes out as 0 is sent as 0xffff, since 0
// says "none"; in TCP 0 is a value as any other.
func TestChecksumsThatComeOutAsZero(t *testing.T) {
	as := func([]byte) {}
	without := func(b []byte) { copy(checksumOf(b), []byte{0, 0}) }
	for _, udp := range []bool{false, true} {
		for _, x := range ways(udp) {
			if udp && x.method != lvs.Masq {
				continue // nothing changes
			}
			want := uint16(0)
			if udp {
				want = 0xffff
			}
			t.Run(x.String()+", after", func(t *testing.T) {
				_, got := x.through(t, x.tuned(t, true, as), as)
				if field := binary.BigEndian.Uint16(checksumOf(got)); field != want {
					t.Errorf("%#04x, want %#04x", field, want)
				}
			})
			if udp {
				t.Run(x.String()+", after, and it had none", func(t *testing.T) {
					_, got := x.through(t, x.tuned(t, true, without), without)
					if field := binary.BigEndian.Uint16(checksumOf(got)); field != want {
						t.Errorf("%#04x, want %#04x", field, want)
					}
				})
			}
			if !udp {
				t.Run(x.String()+", before", func(t *testing.T) {
					sent, got := x.through(t, x.tuned(t, false, as), as)
					if field := binary.BigEndian.Uint16(checksumOf(sent)); field != 0 || wrongBy(got) != 0 {
						t.Errorf("a segment with checksum %#04x, want 0, left wrong by %#x", field, wrongBy(got))
					}
				})
			}
		}
	}
}

// What an Ethernet frame carries behind the IP packet is padding, and is cut off;
// a frame that ends before its IP packet does goes nowhere.
func TestPaddingIsCutOff(t *testing.T) {
	for _, udp := range []bool{false, true} {
		for _, x := range ways(udp) {
			if x.pieces {
				continue
			}
			t.Run(x.String(), func(t *testing.T) {
				s, e := service("rr", x.method, 1), endsOf(x.v6)
				if x.v6 {
					s = service6("rr", x.method, 1)
				}
				proto := packet.TCP
				if s.Proto = proto; udp {
					proto, s.Proto = packet.UDP, packet.UDP
				}
				w := newWorld(t, s)
				link := clientLink
				build := func(more int) *packet.Packet {
					p := carrying(proto, e.client, e.vip, transport(proto, 40000, 80, true))
					if x.reply && len(w.entries(40000)) > 0 {
						p, link = carrying(proto, e.server, e.client, transport(proto, 8080, 40000, false)), serverLink
					}
					raw := bytes.Clone(p.Bytes())
					if more < 0 {
						return packettest.Packet(raw[:len(raw)+more], p.EtherType)
					}
					return packettest.Packet(append(raw, bytes.Repeat([]byte{0xaa}, more)...), p.EtherType)
				}
				w.in(clientLink, build(0))
				for _, more := range []int{1, 6, 18, 46} {
					out := w.in(link, build(more))
					if len(out) != 1 || len(innermost(out[0].Bytes())) != build(0).Len() {
						t.Errorf("%d bytes of padding: %v left", more, summaries(out))
					} else if bytes.Contains(out[0].Bytes(), []byte{0xaa}) {
						t.Errorf("%d bytes of padding: some left: %x", more, out[0].Bytes())
					}
				}
				if out := w.in(link, build(-1)); len(out) != 0 {
					t.Errorf("a byte is missing: %v left", summaries(out))
				}
				w.wantVerdict(dataplane.Malformed, 1)
			})
		}
	}
}
