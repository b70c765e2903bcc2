package packettest

import (
	"encoding/binary"
	"fmt"
	"testing"

	"pktdirector/packet"
)

// Piece is one fragment of a packet: Len bytes of its payload from Offset on.
type Piece struct {
	Offset, Len int
	Last        bool // no more to come
}

// Pieces cuts n bytes into pieces of size, which must be a multiple of 8.
func Pieces(n, size int) []Piece {
	var list []Piece
	for at := 0; at < n; at += size {
		list = append(list, Piece{at, min(size, n-at), at+size >= n})
	}
	return list
}

// Fragment returns one piece of p, an IPv4 packet without options or an IPv6
// packet without extension headers, as a fragment with identification id.
func Fragment(tb testing.TB, p *packet.Packet, id uint32, piece Piece) *packet.Packet {
	tb.Helper()
	b := p.Bytes()
	if b[0]>>4 == 4 {
		raw := append(append([]byte(nil), b[:20]...), b[20+piece.Offset:20+piece.Offset+piece.Len]...)
		binary.BigEndian.PutUint16(raw[2:], uint16(len(raw)))
		binary.BigEndian.PutUint16(raw[4:], uint16(id))
		field := binary.BigEndian.Uint16(b[6:])&0x4000 | uint16(piece.Offset/8)
		if !piece.Last {
			field |= 0x2000
		}
		binary.BigEndian.PutUint16(raw[6:], field)
		binary.BigEndian.PutUint16(raw[10:], 0)
		binary.BigEndian.PutUint16(raw[10:], ^fold(sum(raw[:20])))
		return Packet(raw, packet.EtherIPv4)
	}
	raw := append(append([]byte(nil), b[:40]...), b[6], 0, 0, 0, 0, 0, 0, 0)
	raw = append(raw, b[40+piece.Offset:40+piece.Offset+piece.Len]...)
	raw[6] = 44
	binary.BigEndian.PutUint16(raw[4:], uint16(len(raw)-40))
	field := uint16(piece.Offset)
	if !piece.Last {
		field |= 1
	}
	binary.BigEndian.PutUint16(raw[42:], field)
	binary.BigEndian.PutUint32(raw[44:], id)
	return Packet(raw, packet.EtherIPv6)
}

// Fragments cuts p at size payload bytes.
func Fragments(tb testing.TB, p *packet.Packet, id uint32, size int) []*packet.Packet {
	tb.Helper()
	header := 20
	if p.Bytes()[0]>>4 == 6 {
		header = 40
	}
	var list []*packet.Packet
	for _, piece := range Pieces(p.Len()-header, size) {
		list = append(list, Fragment(tb, p, id, piece))
	}
	return list
}

// Join puts the fragments of one packet together, byte by byte, as their receiver
// does: they may come in any order, but none may be missing, overlap or differ
// in its header. A single whole packet is returned as it is.
func Join(list []*packet.Packet) (*packet.Packet, error) {
	var whole, have []byte
	var first []byte
	var id uint32
	end := -1
	for i, p := range list {
		b := p.Bytes()
		header, skip, offset, more, thisID := 20, 0, 0, false, uint32(0)
		switch {
		case len(b) >= 20 && b[0]>>4 == 4:
			header = int(b[0]&15) * 4
			if n := int(binary.BigEndian.Uint16(b[2:])); n != len(b) {
				return nil, fmt.Errorf("fragment %d: total length %d, but %d bytes", i, n, len(b))
			}
			if fold(sum(b[:header])) != 0xffff {
				return nil, fmt.Errorf("fragment %d: wrong header checksum", i)
			}
			field := binary.BigEndian.Uint16(b[6:])
			offset, more, thisID = int(field&0x1fff)*8, field&0x2000 != 0, uint32(binary.BigEndian.Uint16(b[4:]))
		case len(b) >= 40 && b[0]>>4 == 6:
			if n := 40 + int(binary.BigEndian.Uint16(b[4:])); n != len(b) {
				return nil, fmt.Errorf("fragment %d: payload length says %d, but %d bytes", i, n, len(b))
			}
			header = 40
			if b[6] == 44 {
				field := binary.BigEndian.Uint16(b[42:])
				skip, offset, more, thisID = 8, int(field&^7), field&1 != 0, binary.BigEndian.Uint32(b[44:])
			}
		default:
			return nil, fmt.Errorf("fragment %d: no IP packet", i)
		}
		payload := b[header+skip:]
		if more && len(payload)%8 != 0 {
			return nil, fmt.Errorf("fragment %d: %d bytes with more to come", i, len(payload))
		}
		if i > 0 && thisID != id {
			return nil, fmt.Errorf("fragment %d: identification %#x, not %#x", i, thisID, id)
		}
		id = thisID
		if grow := offset + len(payload) - len(whole); grow > 0 {
			whole, have = append(whole, make([]byte, grow)...), append(have, make([]byte, grow)...)
		}
		for j := range payload {
			if have[offset+j] != 0 {
				return nil, fmt.Errorf("fragment %d: byte %d is there twice", i, offset+j)
			}
			whole[offset+j], have[offset+j] = payload[j], 1
		}
		if !more {
			end = offset + len(payload)
		}
		if offset == 0 {
			first = append([]byte(nil), b[:header]...)
			if skip > 0 {
				first[6] = b[40]
			}
		}
	}
	if end != len(whole) || first == nil {
		return nil, fmt.Errorf("the first or the last of %d fragments is missing", len(list))
	}
	for j := range have {
		if have[j] == 0 {
			return nil, fmt.Errorf("byte %d of %d is missing", j, len(whole))
		}
	}
	raw := append(first, whole...)
	if raw[0]>>4 == 6 {
		binary.BigEndian.PutUint16(raw[4:], uint16(len(raw)-40))
		return Packet(raw, packet.EtherIPv6), nil
	}
	header := int(raw[0]&15) * 4
	binary.BigEndian.PutUint16(raw[2:], uint16(len(raw)))
	raw[6], raw[7] = raw[6]&0x40, 0
	binary.BigEndian.PutUint16(raw[10:], 0)
	binary.BigEndian.PutUint16(raw[10:], ^fold(sum(raw[:header])))
	return Packet(raw, packet.EtherIPv4), nil
}
