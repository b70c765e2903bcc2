package packet_test

import (
	"testing"

	"pgregory.net/rapid"

	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

func TestParseReadsTheFlow(t *testing.T) {
	tests := []struct {
		name string
		spec packettest.Spec
		want packet.Flow
	}{
		{"TCP over IPv4", packettest.Spec{Src: "198.51.100.10:40000", Dst: "203.0.113.80:80", Flags: packet.SYN},
			packet.Flow{Proto: packet.TCP, Src: packet.MustParseAddr("198.51.100.10"), SrcPort: 40000, Dst: packet.MustParseAddr("203.0.113.80"), DstPort: 80}},
		{"UDP over IPv6", packettest.Spec{Src: "[2001:db8::1]:5353", Dst: "[2001:db8::2]:53", UDP: true, Payload: []byte("x")},
			packet.Flow{Proto: packet.UDP, Src: packet.MustParseAddr("2001:db8::1"), SrcPort: 5353, Dst: packet.MustParseAddr("2001:db8::2"), DstPort: 53}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := packettest.Build(t, tt.spec)
			if e := packet.Parse(p); e != packet.ParseOK {
				t.Fatal(e)
			}
			if p.Flow != tt.want {
				t.Errorf("flow %v, want %v", p.Flow, tt.want)
			}
			if p.TCPFlags != tt.spec.Flags {
				t.Errorf("flags %#x, want %#x", p.TCPFlags, tt.spec.Flags)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	good := packettest.Build(t, packettest.Spec{Src: "198.51.100.10:40000", Dst: "203.0.113.80:80", Flags: packet.SYN}).Bytes()
	tests := []struct {
		name   string
		damage func(b []byte) []byte
		want   packet.ParseError
	}{
		{"an empty packet", func(b []byte) []byte { return nil }, packet.ErrShort},
		{"half an IP header", func(b []byte) []byte { return b[:10] }, packet.ErrShort},
		{"another IP version", func(b []byte) []byte { b[0] = 0x55; return b }, packet.ErrVersion},
		{"a header length below 20", func(b []byte) []byte { b[0] = 0x44; return b }, packet.ErrLength},
		{"a total length beyond the bytes", func(b []byte) []byte { b[2] = 9; return b }, packet.ErrLength},
		{"a wrong header checksum", func(b []byte) []byte { b[10] ^= 1; return b }, packet.ErrChecksum},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := packettest.Packet(tt.damage(append([]byte(nil), good...)), packet.EtherIPv4)
			if e := packet.Parse(p); e != tt.want {
				t.Errorf("Parse: %v, want %v", e, tt.want)
			}
		})
	}
}

func TestParseCutsEthernetPadding(t *testing.T) {
	raw := packettest.Build(t, packettest.Spec{Src: "198.51.100.10:40000", Dst: "203.0.113.80:80", Flags: packet.SYN}).Bytes()
	p := packettest.Packet(append(append([]byte(nil), raw...), 0, 0, 0, 0, 0, 0), packet.EtherIPv4)
	if e := packet.Parse(p); e != packet.ParseOK || p.Len() != len(raw) {
		t.Errorf("Parse: %v, length %d, want ok and %d", e, p.Len(), len(raw))
	}
}

// slowSum is RFC 1071 word by word.
func slowSum(b []byte, initial uint16) uint16 {
	s := uint32(initial)
	for i := 0; i < len(b); i += 2 {
		w := uint32(b[i]) << 8
		if i+1 < len(b) {
			w |= uint32(b[i+1])
		}
		s += w
		s = s&0xffff + s>>16
	}
	return uint16(s)
}

// same compares ones'-complement numbers, where 0 and 0xffff are one.
func same(a, b uint16) bool { return a == b || a%0xffff == 0 && b%0xffff == 0 }

func TestSumAgreesWithTheSlowOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "bytes")
		initial := rapid.Uint64().Draw(t, "initial")
		if got, want := packet.Fold(packet.Sum(b, initial)), slowSum(b, packet.Fold(initial)); !same(got, want) {
			t.Fatalf("Sum %#04x, slow %#04x", got, want)
		}
	})
}

func TestDeltaAgreesWithSummingAnew(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 64, 64).Draw(t, "bytes")
		b[0] |= 1 // a sum of nothing but zeros has two forms
		field := []byte{0, 0}
		put := func(s uint16) { field[0], field[1] = byte(s>>8), byte(s) }
		put(^slowSum(b, 0))
		word := rapid.IntRange(1, 31).Draw(t, "word") * 2
		to := rapid.Uint16().Draw(t, "to")
		from := uint16(b[word])<<8 | uint16(b[word+1])
		b[word], b[word+1] = byte(to>>8), byte(to)
		packet.Delta(0).Word(from, to).Apply(field)
		if got, want := uint16(field[0])<<8|uint16(field[1]), ^slowSum(b, 0); !same(got, want) {
			t.Fatalf("updated %#04x, summed anew %#04x", got, want)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, s := range []packettest.Spec{
		{Src: "198.51.100.10:40000", Dst: "203.0.113.80:80", Flags: packet.SYN},
		{Src: "[2001:db8::1]:5353", Dst: "[2001:db8::2]:53", UDP: true, Payload: []byte("x")},
	} {
		f.Add(packettest.Build(f, s).Bytes(), uint8(0), uint16(0), false, uint16(0))
	}
	f.Fuzz(func(t *testing.T, raw []byte, gso uint8, size uint16, partial bool, start uint16) {
		if len(raw) > 1<<16 {
			return
		}
		for _, kind := range []packet.EtherType{packet.EtherIPv4, packet.EtherIPv6} {
			p := packettest.Packet(raw, kind)
			p.GSO, p.GSOSize = packet.GSOType(gso%4), size
			p.CsumPartial, p.CsumStart, p.CsumOffset = partial, p.Start+int(start), 16
			if packet.Parse(p) != packet.ParseOK {
				continue
			}
			if p.Start != packet.Headroom || p.L3 != p.Start || p.L4 < p.L3 || p.L4 > p.End || p.End > len(p.Buf) {
				t.Fatalf("offsets out of range: start %d, L3 %d, L4 %d, end %d of %d", p.Start, p.L3, p.L4, p.End, len(p.Buf))
			}
			if p.GSO != packet.GSONone && (p.WireLen() <= 0 || p.Start+p.HeaderLen() > p.End) {
				t.Fatalf("a super-frame's header ends at %d of %d", p.Start+p.HeaderLen(), p.End)
			}
		}
	})
}

func BenchmarkParse(b *testing.B) {
	p := packettest.Build(b, packettest.Spec{Src: "198.51.100.10:40000", Dst: "203.0.113.80:80", Flags: packet.ACK, Payload: make([]byte, 64)})
	b.ReportAllocs()
	for b.Loop() {
		packet.Parse(p)
	}
}

func BenchmarkSum1460(b *testing.B) {
	data := make([]byte, 1460)
	b.SetBytes(1460)
	for b.Loop() {
		packet.Sum(data, 0)
	}
}
