package packet

import (
	"encoding/binary"
	"hash/crc32"
)

// PutSCTPChecksum computes the CRC32c of an SCTP packet, which has at least its
// common header, and writes it in place, lowest byte first (RFC 9260 section
// 6.8). It covers no addresses.
func PutSCTPChecksum(b []byte) {
	clear(b[8:12])
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

// Types of SCTP chunks (RFC 9260 section 3.2).
const (
	chunkAbort      = 6
	chunkCookieEcho = 10
	chunkCookieAck  = 11

	chunkHeaderLen = 4
)

// DecisiveChunk returns the type of the chunk that says what the packet does to its
// association: the first one, unless that completes the handshake and an ABORT
// comes right behind it. It is noChunk (255) where there is none.
func (p *Packet) DecisiveChunk() uint8 {
	if p.Chunk != chunkCookieEcho && p.Chunk != chunkCookieAck {
		return p.Chunk
	}
	b := p.Buf[p.L4+SCTPHeaderLen : p.End]
	if len(b) < chunkHeaderLen {
		return p.Chunk
	}
	n := int(binary.BigEndian.Uint16(b[2:]))
	behind := (n + 3) &^ 3 // chunks are padded (RFC 9260 section 3.2)
	if n >= chunkHeaderLen && len(b) >= behind+chunkHeaderLen && b[behind] == chunkAbort {
		return chunkAbort
	}
	return p.Chunk
}
