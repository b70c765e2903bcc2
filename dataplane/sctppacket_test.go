package dataplane_test

import (
	"encoding/binary"
	"testing"

	"pktdirector/packet"
)

// sctp builds an SCTP packet with one chunk and the right checksum.
func sctp(src, dst string, srcPort, dstPort uint16, kind byte) *packet.Packet {
	s := make([]byte, 12+20)
	binary.BigEndian.PutUint16(s, srcPort)
	binary.BigEndian.PutUint16(s[2:], dstPort)
	s[12], s[15] = kind, 20
	binary.LittleEndian.PutUint32(s[8:], crc32c(s))
	return carrying(packet.SCTP, src, dst, s)
}

// crc32c is the checksum of RFC 9260 appendix A, bit by bit. The field itself
// counts as zero.
func crc32c(b []byte) uint32 {
	crc := ^uint32(0)
	for i, x := range b {
		if i >= 8 && i < 12 {
			x = 0
		}
		crc ^= uint32(x)
		for range 8 {
			crc = crc>>1 ^ 0x82f63b78&-(crc&1)
		}
	}
	return ^crc
}

func wantCRC32c(t *testing.T, p *packet.Packet) {
	t.Helper()
	b := p.Buf[p.L4:p.End]
	if got, want := binary.LittleEndian.Uint32(b[8:]), crc32c(b); got != want {
		t.Errorf("CRC32c %08x, want %08x", got, want)
	}
}
