package packet_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// errorAbout wraps a quote in the headers of an ICMP error, without checksums.
func errorAbout(v6 bool, kind byte, word uint32, quote []byte) *packet.Packet {
	header := make([]byte, 28)
	ether := packet.EtherIPv4
	if v6 {
		header, ether = make([]byte, 48), packet.EtherIPv6
		header[0], header[6] = 0x60, 58
		binary.BigEndian.PutUint16(header[4:], uint16(8+len(quote)))
		header[8], header[24] = 0x20, 0x20
	} else {
		header[0], header[9] = 0x45, 1
		binary.BigEndian.PutUint16(header[2:], uint16(28+len(quote)))
		packet.PutIPv4Checksum(header[:20])
	}
	icmp := header[len(header)-8:]
	icmp[0] = kind
	binary.BigEndian.PutUint32(icmp[4:], word)
	return packettest.Packet(append(header, quote...), ether)
}

// ipv6With builds an IPv6 header with the extension headers and four bytes of
// ports behind them.
func ipv6With(next byte, rest ...byte) []byte {
	b := make([]byte, 40)
	b[0], b[6], b[8], b[24] = 0x60, next, 0x20, 0x20
	binary.BigEndian.PutUint16(b[4:], 1000)
	return append(append(b, rest...), 0, 80, 0x9c, 0x40)
}

func TestQuote(t *testing.T) {
	udp4 := packettest.Build(t, packettest.Spec{Src: "192.0.2.1:80", Dst: "198.51.100.7:40000", UDP: true, Payload: make([]byte, 172)}).Bytes()
	withOptions := append(append([]byte{0x46}, udp4[1:20]...), append([]byte{1, 1, 1, 0}, udp4[20:]...)...)
	later := append([]byte(nil), udp4...)
	later[7] = 1
	icmpInside := append([]byte(nil), udp4...)
	icmpInside[9] = 1
	ports := []byte{0, 80, 0x9c, 0x40}
	for _, c := range []struct {
		name   string
		in     *packet.Packet
		length int // of the quote; 0: no quote
		ports  bool
	}{
		{"IPv4, whole", errorAbout(false, 3, 0, udp4), 200, true},
		{"IPv4, 8 bytes", errorAbout(false, 3, 0, udp4[:28]), 28, true},
		{"IPv4, ports only", errorAbout(false, 3, 0, udp4[:24]), 24, true},
		{"IPv4, no ports", errorAbout(false, 3, 0, udp4[:23]), 0, false},
		{"IPv4, half a header", errorAbout(false, 3, 0, udp4[:19]), 0, false},
		{"IPv4, nothing", errorAbout(false, 3, 0, nil), 0, false},
		{"IPv4, options", errorAbout(false, 3, 0, withOptions), 200, true},
		{"IPv4, later fragment", errorAbout(false, 3, 0, later), 0, false},
		{"IPv4, another protocol", errorAbout(false, 3, 0, icmpInside[:20]), 20, false},
		{"IPv4, padding behind", errorAbout(false, 3, 0, append(udp4[:200:200], 1, 2, 3)), 200, true},
		{"IPv4, an extension behind 128 bytes", errorAbout(false, 11, 32<<16, udp4), 128, true},
		{"IPv4, a length below what RFC 4884 allows", errorAbout(false, 11, 8<<16, udp4), 200, true},
		{"IPv4, a source quench has no length", errorAbout(false, 4, 32<<16, udp4), 200, true},
		{"IPv6 in an IPv4 error", errorAbout(false, 3, 0, ipv6With(17)), 0, false},
		{"IPv6", errorAbout(true, 1, 0, ipv6With(17)), 44, true},
		{"IPv6, an MTU is no length", errorAbout(true, 2, 0xff000000, ipv6With(17)), 44, true},
		{"IPv6, hop-by-hop and routing", errorAbout(true, 1, 0, ipv6With(0, 43, 0, 0, 0, 0, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0, 0)), 60, true},
		{"IPv6, first fragment", errorAbout(true, 1, 0, ipv6With(44, 17, 0, 0, 1, 0, 0, 0, 9)), 52, true},
		{"IPv6, later fragment", errorAbout(true, 1, 0, ipv6With(44, 17, 0, 0, 8, 0, 0, 0, 9)), 0, false},
		{"IPv6, an extension longer than the quote", errorAbout(true, 1, 0, ipv6With(60, 17, 9, 0, 0, 0, 0, 0, 0)), 0, false},
		{"IPv6, ports cut", errorAbout(true, 1, 0, ipv6With(17)[:43]), 0, false},
		{"IPv4 in an IPv6 error", errorAbout(true, 1, 0, udp4), 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if e := packet.Parse(c.in); e != packet.ParseOK {
				t.Fatal(e)
			}
			q, ok := c.in.Quote()
			if ok != (c.length > 0) {
				t.Fatalf("quoted: %v, want %v", ok, c.length > 0)
			}
			if !ok {
				return
			}
			if q.End-q.L3 != c.length {
				t.Errorf("%d bytes quoted, want %d", q.End-q.L3, c.length)
			}
			if c.ports && (q.Flow.SrcPort != 80 || q.Flow.DstPort != 40000 || !bytes.Equal(c.in.Buf[q.L4:q.L4+4], ports)) {
				t.Errorf("ports %d and %d at %d", q.Flow.SrcPort, q.Flow.DstPort, q.L4-q.L3)
			}
		})
	}
}

// FuzzQuote: whatever the bytes, nothing panics and the offsets lie in the quote.
func FuzzQuote(f *testing.F) {
	udp4 := packettest.Build(f, packettest.Spec{Src: "192.0.2.1:80", Dst: "198.51.100.7:40000", UDP: true}).Bytes()
	f.Add(errorAbout(false, 3, 0, udp4).Bytes())
	f.Add(errorAbout(true, 1, 0, ipv6With(0, 43, 0, 0, 0, 0, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0, 0)).Bytes())
	f.Add(errorAbout(true, 1, 16<<24, ipv6With(44, 51, 0, 0, 0, 0, 0, 0, 9, 17, 4, 0, 0, 0, 0, 0, 0)).Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		kind := packet.EtherIPv4
		if len(b) > 0 && b[0]>>4 == 6 {
			kind = packet.EtherIPv6
		}
		p := packettest.Packet(b, kind)
		if packet.Parse(p) != packet.ParseOK || p.End-p.L4 < packet.ICMPHeaderLen {
			return
		}
		p.ICMPChecksumOK()
		q, ok := p.Quote()
		if !ok {
			return
		}
		ports := 0
		switch q.Flow.Proto {
		case packet.TCP, packet.UDP, packet.SCTP:
			ports = 4
		}
		if q.L3 != p.L4+packet.ICMPHeaderLen || q.L4 < q.L3+packet.IPv4HeaderLen || q.End < q.L4 || q.End > p.End || q.L4+ports > p.End {
			t.Errorf("headers at %d and %d, end at %d, of a packet from %d to %d", q.L3, q.L4, q.End, p.L4, p.End)
		}
	})
}
