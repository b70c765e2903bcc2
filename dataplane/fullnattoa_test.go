package dataplane_test

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"testing"

	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// toaWorld is a world with a FullNAT service that tells servers the client's
// address.
func toaWorld(t testing.TB) *world {
	src := fromPool()
	src.TOA = true
	return newWorld(t, fullNAT(service("rr", lvs.Masq, 1), src))
}

// fromClient sends a segment of the client's connection and returns what left.
func (w *world) fromClient(s packettest.Spec) *packet.Packet {
	w.t.Helper()
	s.Src, s.Dst = client+":40000", vip+":80"
	out := w.in(clientLink, packettest.Build(w.t, s))
	if len(out) == 1 && out[0].GSO != packet.GSONone {
		return out[0] // its checksum is for the device to finish
	}
	return one(w.t, out)
}

// TestTheServerIsToldTheClientUntilItsFirstDataAreAcknowledged: in the segment
// that ends the handshake and all that may be lost before the server has spoken; in
// no other.
func TestTheServerIsToldTheClientUntilItsFirstDataAreAcknowledged(t *testing.T) {
	w := toaWorld(t)
	syn := w.fromClient(packettest.Spec{Flags: packet.SYN, Seq: 1000})
	w.in(serverLink, packettest.Build(t, packettest.Spec{Src: rip(1) + ":8080", Dst: source4 + ":" + port(syn.Flow.SrcPort), Flags: packet.SYN | packet.ACK, Seq: 5000, Ack: 1001}))
	for _, c := range []struct {
		name string
		spec packettest.Spec
		told bool
	}{
		{"the end of the handshake", packettest.Spec{Flags: packet.ACK, Seq: 1001, Ack: 5001}, true},
		{"the first data", packettest.Spec{Flags: packet.ACK | packet.PSH, Seq: 1001, Ack: 5001, Payload: []byte("GET")}, true},
		{"a super-frame of first data", packettest.Spec{Flags: packet.ACK, Seq: 1004, Ack: 5001, Payload: make([]byte, 3000), GSOSize: 1400}, true},
		{"first data that fill the MTU", packettest.Spec{Flags: packet.ACK, Seq: 1004, Ack: 5001, Payload: make([]byte, 1460)}, false},
		{"first data that leave 8 bytes of the MTU", packettest.Spec{Flags: packet.ACK, Seq: 1004, Ack: 5001, Payload: make([]byte, 1452)}, true},
		{"when the server has spoken", packettest.Spec{Flags: packet.ACK, Seq: 4004, Ack: 5002}, false},
		{"the SYN again", packettest.Spec{Flags: packet.SYN, Seq: 1000}, false},
		{"a reset", packettest.Spec{Flags: packet.RST | packet.ACK, Seq: 1004, Ack: 5001}, false},
	} {
		p := w.fromClient(c.spec)
		if e := packet.Parse(p); e != packet.ParseOK {
			t.Fatal(e)
		}
		a, from, told := p.TOA()
		if told != c.told || told && (a != addr(client) || from != 40000) {
			t.Errorf("%s: told %v port %d, %v; want %v", c.name, a, from, told, c.told)
		}
		if !bytes.HasSuffix(p.Bytes(), c.spec.Payload) {
			t.Errorf("%s: the payload changed", c.name)
		}
	}
}

func port(n uint16) string { return strconv.Itoa(int(n)) }

// TestClientsLeaveRoomForTheOption: the server's SYN+ACK announces 8 bytes less,
// as far as it announced more than fits.
func TestClientsLeaveRoomForTheOption(t *testing.T) {
	for mss, want := range map[uint16]uint16{1460: 1452, 1000: 1000, 9000: 1452} {
		w := toaWorld(t)
		syn := w.fromClient(packettest.Spec{Flags: packet.SYN, Seq: 1000})
		option := binary.BigEndian.AppendUint16([]byte{2, 4}, mss)
		p := packettest.Build(t, packettest.Spec{Src: rip(1) + ":8080", Dst: source4 + ":" + port(syn.Flow.SrcPort), Flags: packet.SYN | packet.ACK, Seq: 5000, Ack: 1001, Payload: option})
		b := p.Bytes()
		b[20+12] += 1 << 4
		binary.BigEndian.PutUint16(b[20+16:], packettest.TransportChecksum(b))
		back := one(t, w.in(serverLink, p))
		if got := binary.BigEndian.Uint16(back.Buf[back.L4+22:]); got != want {
			t.Errorf("of %d the client sees %d, want %d", mss, got, want)
		}
	}
}

// TestANarrowPathTakesSegmentsWithoutTheOption: when a router has said what its
// link takes, a segment of that size goes without the option. Else the client, who
// is told the same size again and again, could not make it small enough.
func TestANarrowPathTakesSegmentsWithoutTheOption(t *testing.T) {
	w := toaWorld(t)
	syn := w.fromClient(packettest.Spec{Flags: packet.SYN, Seq: 1000})
	source := source4 + ":" + port(syn.Flow.SrcPort)
	w.in(serverLink, packettest.Build(t, packettest.Spec{Src: rip(1) + ":8080", Dst: source, Flags: packet.SYN | packet.ACK, Seq: 5000, Ack: 1001}))
	first := w.fromClient(packettest.Spec{Flags: packet.ACK, Seq: 1001, Ack: 5001, Payload: make([]byte, 1452)})
	quote := bytes.Clone(first.Bytes()[:28])
	told := one(t, w.in(serverLink, icmpFrom("192.0.2.1", source4, 3, 4, 1400, quote)))
	if got := binary.BigEndian.Uint16(told.Buf[told.L4+6:]); told.Flow.Dst != addr(client) || got != 1400 {
		t.Errorf("the client was told %d, by %v", got, told.Flow)
	}
	second := w.fromClient(packettest.Spec{Flags: packet.ACK, Seq: 1001, Ack: 5001, Payload: make([]byte, 1360)})
	if second.Len() != 1400 {
		t.Errorf("the segment of the path's size left with %d bytes", second.Len())
	}
	third := w.fromClient(packettest.Spec{Flags: packet.ACK, Seq: 1001, Ack: 5001, Payload: make([]byte, 1352)})
	if third.Len() != 1400 {
		t.Errorf("a segment with room for the option left with %d bytes", third.Len())
	}
	w.wantVerdict(dataplane.ErrorForwarded, 1)
}

// TestICMPErrorsAboutFullNATConnections: each side gets an error about what it
// sent itself, 8 quoted bytes of transport header suffice, and no address of the
// other side is in it.
func TestICMPErrorsAboutFullNATConnections(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, isUDP := range []bool{false, true} {
			s := fullNAT(service("rr", lvs.Masq, 1), fromPool())
			c, v, src, real, router := client, vip, source4, rip(1), "198.51.100.1"
			kind, code, header := byte(3), byte(1), 20
			wrap := func(a string) string { return a }
			if v6 {
				s = ipv6(s)
				c, v, src, real, router = "2001:db8:1::10", vip6, source6, rip6(1), "2001:db8:1::1"
				kind, code, header = 1, 3, 40
				wrap = func(a string) string { return "[" + a + "]" }
			}
			if isUDP {
				s = udp(s)
			}
			w := newWorld(t, s)
			request := one(t, w.in(clientLink, packettest.Build(t, packettest.Spec{Src: wrap(c) + ":40000", Dst: wrap(v) + ":80", UDP: isUDP, Flags: packet.SYN})))
			from := port(request.Flow.SrcPort)

			told := one(t, w.in(serverLink, icmpFrom(real, src, kind, code, 0, quoted(t, wrap(src)+":"+from, wrap(real)+":8080", isUDP, 8))))
			checkError(t, told, v, c, wrap(c)+":40000", wrap(v)+":80", header)

			told = one(t, w.in(clientLink, icmpFrom(router, v, kind, code, 0, quoted(t, wrap(v)+":80", wrap(c)+":40000", isUDP, 8))))
			checkError(t, told, src, real, wrap(real)+":8080", wrap(src)+":"+from, header)
			w.wantVerdict(dataplane.ErrorForwarded, 2)
		}
	}
}

// checkError holds an error and what it quotes against addresses.
func checkError(t *testing.T, p *packet.Packet, from, to, quotedFrom, quotedTo string, header int) {
	t.Helper()
	if p.Flow.Src != addr(from) || p.Flow.Dst != addr(to) {
		t.Errorf("the error goes %v, want %s -> %s", p.Flow, from, to)
	}
	q, ok := p.Quote()
	if !ok {
		t.Fatal("nothing is quoted")
	}
	want := quoted(t, quotedFrom, quotedTo, q.Flow.Proto == packet.UDP, 4)
	got := p.Buf[q.L3:p.End]
	if header == 20 {
		copy(want[2:12], got[2:12]) // lengths, id and checksum
	} else {
		copy(want[4:8], got[4:8])
	}
	if !bytes.Equal(got[:header+4], want[:header+4]) {
		t.Errorf("the error quotes %v, want %s -> %s", q.Flow, quotedFrom, quotedTo)
	}
}
