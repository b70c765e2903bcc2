package endpoint

import (
	"encoding/binary"

	"pktdirector/packet"
)

// Parts of an IPv4 header (RFC 791 section 3.1, RFC 3168 section 5).
const (
	minHeader    = 20
	tosAt        = 1
	lengthAt     = 2
	fragmentAt   = 6
	protoAt      = 9
	dstAt        = 16
	moreOrOffset = 0x3fff // more-fragments bit and offset
	ecn          = 0b11
	congestion   = 0b11 // CE
)

// unwrap takes the outer header off an IPIP packet. It reports false, and
// leaves p as it is, for anything that is no whole IPIP packet.
func unwrap(p *packet.Packet) bool {
	outer := p.Bytes()
	n, ok := header(outer)
	if !ok || packet.Proto(outer[protoAt]) != packet.IPIP ||
		binary.BigEndian.Uint16(outer[fragmentAt:])&moreOrOffset != 0 {
		return false
	}
	total := int(binary.BigEndian.Uint16(outer[lengthAt:]))
	if total > len(outer) || total < n {
		return false
	}
	inner := outer[n:total]
	m, ok := header(inner)
	if !ok {
		return false
	}
	if n := int(binary.BigEndian.Uint16(inner[lengthAt:])); n < m || n > len(inner) {
		return false
	}
	if outer[tosAt]&ecn == congestion {
		// Congestion on the tunnel's way is congestion on the packet's, and a
		// sender that cannot be told so loses the packet (RFC 6040 section 4.2).
		if inner[tosAt]&ecn == 0 {
			return false
		}
		inner[tosAt] |= congestion
		packet.PutIPv4Checksum(inner[:m])
	}
	p.Start += n
	p.End = p.Start + int(binary.BigEndian.Uint16(inner[lengthAt:]))
	p.L3, p.L4 = p.Start, p.Start+m
	p.EtherType = packet.EtherIPv4
	p.Tagged = false
	return true
}

// header returns the length of the IPv4 header that b begins with.
func header(b []byte) (int, bool) {
	if len(b) < minHeader || b[0]>>4 != 4 {
		return 0, false
	}
	n := int(b[0]&0xf) * 4
	return n, n >= minHeader && n <= len(b)
}

// dst returns the destination of an IPv4 packet, the zero address when b is
// none.
func dst(b []byte) packet.Addr {
	if _, ok := header(b); !ok {
		return packet.Addr{}
	}
	return packet.AddrFrom4(b[dstAt:])
}

// mayFragment reports whether routers may fragment p on its way: what arrives
// may then be a piece.
func mayFragment(p *packet.Packet) bool {
	b := p.Bytes()
	return len(b) >= minHeader && b[fragmentAt]&dontFragment == 0
}

// dontFragment is the DF bit in the byte at fragmentAt.
const dontFragment = 0x40
