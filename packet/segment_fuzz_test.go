package packet_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"pktdirector/packet"
)

// FuzzSegment: whatever the bytes and metadata, nothing panics, the payload is
// kept, and no segment is longer than the headers and the segment size.
func FuzzSegment(f *testing.F) {
	for _, s := range []stack{
		{payload: 200, size: 64, flags: packet.ACK}, {v6: true, payload: 200, size: 64}, {udp: true, payload: 200, size: 64},
		{outer: "v4", payload: 200, size: 64}, {outer: "v6", v6: true, udp: true, payload: 200, size: 64},
	} {
		p := s.superFrame(f, randomBytes(2, s.payload), true)
		f.Add(p.Bytes(), uint8(p.GSO), p.GSOSize, uint16(p.L3-p.Start), uint16(p.L4-p.Start), true, uint16(p.CsumStart-p.Start), p.CsumOffset)
	}
	f.Fuzz(func(t *testing.T, b []byte, gso uint8, size, l3, l4 uint16, partial bool, csumStart, csumOffset uint16) {
		var p packet.Packet
		p.Reset(append(make([]byte, packet.Headroom), b...), packet.Headroom, len(b))
		p.GSO, p.GSOSize = packet.GSOType(gso%4), size
		p.L3, p.L4 = p.Start+int(l3), p.Start+int(l4)
		p.CsumPartial, p.CsumStart, p.CsumOffset = partial, p.Start+int(csumStart), csumOffset
		var s packet.Segmenter
		if s.Reset(&p) == nil {
			var buf [packet.MaxSegmentHeader]byte
			var payload []byte
			for h, pl := s.Next(buf[:]); h != nil; h, pl = s.Next(buf[:]) {
				if len(pl) > int(size) {
					t.Fatalf("payload of %d bytes in a segment, at most %d", len(pl), size)
				}
				payload = append(payload, pl...)
			}
			if !bytes.HasSuffix(b, payload) || len(payload)+packet.MaxSegmentHeader < len(b) {
				t.Fatal("the segments' payloads are not the super-frame's")
			}
		}
		packet.FinishChecksum(&p)
	})
}

// FuzzFinishChecksum compares with a bytewise sum.
func FuzzFinishChecksum(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9}, uint16(0), uint16(6))
	f.Add(make([]byte, 40), uint16(20), uint16(16))
	f.Fuzz(func(t *testing.T, b []byte, start, offset uint16) {
		var sum uint32
		for i := int(start); i < len(b); i++ {
			if (i-int(start))%2 == 0 {
				sum += uint32(b[i]) << 8
			} else {
				sum += uint32(b[i])
			}
		}
		for sum > 0xffff {
			sum = sum>>16 + sum&0xffff
		}
		want := ^uint16(sum)
		if want == 0 && offset == 6 {
			want = 0xffff
		}
		b = bytes.Clone(b)
		var p packet.Packet
		p.Reset(b, 0, len(b))
		p.CsumPartial, p.CsumStart, p.CsumOffset = true, int(start), offset
		if !packet.FinishChecksum(&p) {
			return
		}
		if got := binary.BigEndian.Uint16(b[int(start)+int(offset):]); got != want {
			t.Fatalf("checksum %04x, want %04x", got, want)
		}
	})
}

func BenchmarkSegment(b *testing.B) {
	p := stack{outer: "v4", payload: 65000, size: 1428, tcpOptions: 12, flags: packet.ACK}.superFrame(b, randomBytes(1, 65000), true)
	var s packet.Segmenter
	buf := make([]byte, packet.MaxSegmentHeader)
	b.SetBytes(int64(p.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Reset(p); err != nil {
			b.Fatal(err)
		}
		for h, _ := s.Next(buf); h != nil; h, _ = s.Next(buf) {
		}
	}
}

func BenchmarkFinishChecksum(b *testing.B) {
	p := stack{payload: 1448, size: 1}.superFrame(b, randomBytes(1, 1448), false)
	b.SetBytes(int64(p.Len()))
	b.ReportAllocs()
	for b.Loop() {
		p.CsumPartial, p.CsumStart, p.CsumOffset = true, p.L4, 16
		packet.FinishChecksum(p)
	}
}
