package packet

import (
	"encoding/binary"
	"fmt"
)

// Sizes and fields of the headers between an outer and an inner IP header.
const (
	GREHeaderLen   = 4 // RFC 2784 section 2.1, without a checksum
	GREChecksumLen = 4 // checksum and reserved word, when GREChecksum is set
	GUEHeaderLen   = 4 // generic UDP encapsulation, version 0, without options

	// GREChecksum is the only flag of byte 0 of a GRE header that the
	// director uses: a checksum follows.
	GREChecksum = 0x80
)

// tunnelHeader is what stands in front of a tunnelled packet: an outer IP
// header and, behind it, that of GRE or of UDP and GUE.
type tunnelHeader struct {
	ip     int // length of the outer IP header
	proto  Proto
	sumAt  int // offset of the tunnel's own checksum behind the outer IP header; 0: none
	pseudo uint64
}

// parseTunnelHeader reads the whole header in front of an inner packet, as the
// director writes it: options of GRE and GUE are none of ours.
func parseTunnelHeader(b []byte) (tunnelHeader, error) {
	var h tunnelHeader
	switch {
	case b[0]>>4 == 4 && len(b) >= IPv4HeaderLen && int(b[0]&15)*4 >= IPv4HeaderLen && int(b[0]&15)*4 <= len(b):
		h.ip, h.proto = int(b[0]&15)*4, Proto(b[9])
	case b[0]>>4 == 6 && len(b) >= IPv6HeaderLen:
		h.ip, h.proto = IPv6HeaderLen, Proto(b[6])
	default:
		return h, fmt.Errorf("%w: outer header of %d bytes beginning with 0x%02x", ErrSegmentHeader, len(b), b[0])
	}
	rest := b[h.ip:]
	wrong := func() error {
		return fmt.Errorf("%w: outer header carries %s with %d bytes in front of the inner packet", ErrSegmentHeader, h.proto, len(rest))
	}
	switch h.proto {
	case IPIP, IPv6P:
		if len(rest) != 0 {
			return h, wrong()
		}
	case GRE:
		switch {
		case len(rest) == GREHeaderLen && rest[0] == 0:
		case len(rest) == GREHeaderLen+GREChecksumLen && rest[0] == GREChecksum:
			h.sumAt = 4
		default:
			return h, wrong()
		}
	case UDP:
		if len(rest) != UDPHeaderLen+GUEHeaderLen {
			return h, wrong()
		}
		if rest[udpChecksum] != 0 || rest[udpChecksum+1] != 0 {
			h.sumAt = udpChecksum
			src, dst := headerAddrs(b)
			h.pseudo = PseudoSum(src, dst, UDP, 0)
		}
	default:
		return h, wrong()
	}
	return h, nil
}

// finish writes lengths, identification and checksum of a tunnel's header into
// b for the n-th packet of a super-frame; inner is the sum of the inner packet,
// length its bytes.
func (h *tunnelHeader) finish(b []byte, n, length int, inner uint64) {
	length += len(b)
	putLength(b[:h.ip], length, n)
	rest := b[h.ip:]
	length -= h.ip
	if h.proto == UDP {
		binary.BigEndian.PutUint16(rest[4:], uint16(length))
	}
	if h.sumAt == 0 {
		return
	}
	field := rest[h.sumAt : h.sumAt+2]
	field[0], field[1] = 0, 0
	sum := Sum(rest, inner)
	if h.proto == UDP {
		sum = add64(sum, add64(h.pseudo, uint64(length)))
	}
	putTransportChecksum(field, sum, h.proto == UDP)
}
