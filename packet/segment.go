package packet

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// MaxSegmentHeader bounds the headers of a segment, all together: a tunnel's, the largest IPv4 and TCP headers, and as much again for IPv6
// extension headers.
const MaxSegmentHeader = 320

// Errors of Segmenter.Reset about packets that are no super-frames it can cut.
var (
	ErrNoSuperFrame  = errors.New("the packet is no super-frame")
	ErrSegmentHeader = errors.New("headers that cannot be repeated in segments")
)

// A Segmenter cuts a super-frame into the packets it stands for, as a network
// card with segmentation offload does (the kernel's tcp_gso_segment and
// __udp_gso_segment): every segment repeats the headers with its own lengths,
// identification, sequence number, flags and finished checksums. A tunnel's
// header in front of the packet (outer IP, GRE, UDP with GUE) is repeated too, its
// checksum computed where there is one: GRE's flag says so, or a UDP checksum
// other than 0.
//
// A segment is handed out as a header and a payload, and the payload is a part
// of the super-frame's own buffer: nothing is copied but headers, and nothing
// is allocated. The zero Segmenter is ready for Reset.
type Segmenter struct {
	header  []byte // of the super-frame: from the outermost IP header to the payload
	payload []byte
	size    int // payload bytes a segment
	next    int // index of the next segment
	l3, l4  int // offsets in header; l3 is above 0 behind an outer header
	udp     bool
	noSum   bool // UDP over IPv4 without a checksum

	outer tunnelHeader // when l3 is above 0
	// atomicOuter: the outer header is IPv4 with DF and identification 0,
	// which says nothing (RFC 6864 section 4.1) and stays 0.
	atomicOuter bool

	pseudo uint64 // pseudo-header sum but for the length
}

// Reset prepares to cut p, which must be parsed and stay untouched until the
// last segment is done with.
func (s *Segmenter) Reset(p *Packet) error {
	*s = Segmenter{}
	if p.GSO == GSONone || p.GSOSize == 0 {
		return ErrNoSuperFrame
	}
	if p.Start < 0 || p.L3 < p.Start || p.L4 < p.L3+IPv4HeaderLen || p.L4 > p.End || p.End > len(p.Buf) {
		return fmt.Errorf("%w: offsets %d, %d, %d, %d of %d bytes", ErrSegmentHeader, p.Start, p.L3, p.L4, p.End, len(p.Buf))
	}
	b := p.Bytes()
	l3, l4 := p.L3-p.Start, p.L4-p.Start
	end := l4 + UDPHeaderLen
	proto := UDP
	if p.GSO != GSOUDP {
		proto = TCP
		if l4+TCPHeaderLen > len(b) {
			return fmt.Errorf("%w: TCP header cut short", ErrSegmentHeader)
		}
		end = l4 + int(b[l4+12]>>4)*4
		if end < l4+TCPHeaderLen {
			return fmt.Errorf("%w: TCP data offset %d", ErrSegmentHeader, b[l4+12]>>4)
		}
	}
	if end > len(b) || end > MaxSegmentHeader {
		return fmt.Errorf("%w: %d bytes of headers in a packet of %d, at most %d", ErrSegmentHeader, end, len(b), MaxSegmentHeader)
	}
	if l3 > 0 {
		var err error
		if s.outer, err = parseTunnelHeader(b[:l3]); err != nil {
			return err
		}
		s.atomicOuter = b[0]>>4 == 4 && b[4] == 0 && b[5] == 0 && b[6]&(ipv4DontFragment>>8) != 0
	}
	switch inner := b[l3:l4]; {
	case inner[0]>>4 == 4 && int(inner[0]&15)*4 == len(inner):
		s.noSum = proto == UDP && !p.CsumPartial && binary.BigEndian.Uint16(b[l4+udpChecksum:]) == 0
	case inner[0]>>4 == 6 && len(inner) >= IPv6HeaderLen:
	default:
		return fmt.Errorf("%w: IP header of %d bytes beginning with 0x%02x", ErrSegmentHeader, len(inner), inner[0])
	}
	src, dst := headerAddrs(b[l3:])
	s.pseudo = PseudoSum(src, dst, proto, 0)
	s.header, s.payload = b[:end], b[end:]
	s.size, s.l3, s.l4, s.udp = int(p.GSOSize), l3, l4, proto == UDP
	return nil
}

// Len returns how many segments the super-frame stands for, at least 1. It
// needs a Reset without error.
func (s *Segmenter) Len() int {
	return max(1, (len(s.payload)+s.size-1)/s.size)
}

// Next builds the next segment's headers in the front of buf, which must hold
// MaxSegmentHeader bytes, and returns them with the payload that follows them.
// After the last segment it returns nil for both.
func (s *Segmenter) Next(buf []byte) (header, payload []byte) {
	if s.header == nil || s.next >= s.Len() {
		return nil, nil
	}
	n := s.next
	s.next++
	payload = s.payload[n*s.size : min((n+1)*s.size, len(s.payload))]
	header = buf[:copy(buf, s.header)]

	putLength(header[s.l3:s.l4], len(header)-s.l3+len(payload), n)
	sum := s.finishTransport(header[s.l4:], payload, n)
	if s.l3 > 0 {
		id := n
		if s.atomicOuter {
			id = 0
		}
		inner := header[s.l3:]
		if s.outer.sumAt > 0 {
			sum = Sum(inner, sum)
		}
		s.outer.finish(header[:s.l3], id, len(inner)+len(payload), sum)
	}
	return header, payload
}

// finishTransport writes what differs from segment to segment into the
// transport header of segment n, and returns the payload's sum, which is 0 when
// nothing needs it.
func (s *Segmenter) finishTransport(transport, payload []byte, n int) (payloadSum uint64) {
	length := len(transport) + len(payload)
	at := tcpChecksum
	if s.udp {
		binary.BigEndian.PutUint16(transport[4:], uint16(length))
		at = udpChecksum
		if s.noSum {
			if s.outer.sumAt > 0 {
				payloadSum = Sum(payload, 0)
			}
			return payloadSum
		}
	} else {
		seq := binary.BigEndian.Uint32(transport[4:])
		binary.BigEndian.PutUint32(transport[4:], seq+uint32(n*s.size))
		if n > 0 {
			transport[13] &^= CWR // one answer to one congestion mark (RFC 3168 section 6.1.2)
		}
		if n < s.Len()-1 {
			transport[13] &^= FIN | PSH
		}
	}
	field := transport[at : at+2]
	field[0], field[1] = 0, 0
	payloadSum = Sum(payload, 0)
	putTransportChecksum(field, Sum(transport, add64(payloadSum, add64(s.pseudo, uint64(length)))), s.udp)
	return payloadSum
}

// putLength writes the length of segment n into one of its IP headers and
// counts an IPv4 identification up, as the kernel's inet_gso_segment does.
func putLength(ip []byte, length, n int) {
	if ip[0]>>4 == 6 {
		binary.BigEndian.PutUint16(ip[4:], uint16(length-IPv6HeaderLen))
		return
	}
	binary.BigEndian.PutUint16(ip[2:], uint16(length))
	id := binary.BigEndian.Uint16(ip[4:])
	binary.BigEndian.PutUint16(ip[4:], id+uint16(n))
	PutIPv4Checksum(ip)
}

// putTransportChecksum writes the complement of sum. A UDP checksum of 0 goes
// out as 0xffff, since 0 says that there is none (RFC 768).
func putTransportChecksum(field []byte, sum uint64, udp bool) {
	c := ^Fold(sum)
	if c == 0 && udp {
		c = 0xffff
	}
	binary.BigEndian.PutUint16(field, c)
}

// FinishChecksum completes an unfinished transport checksum, which is work the
// sender left to its network card. It reports false, and changes nothing, when
// the checksum's place is outside the packet.
func FinishChecksum(p *Packet) bool {
	if !p.CsumPartial {
		return true
	}
	at := p.CsumStart + int(p.CsumOffset)
	if p.CsumStart < p.Start || at+2 > p.End || p.End > len(p.Buf) {
		return false
	}
	if p.Flow.Proto == SCTP {
		PutSCTPChecksum(p.Buf[p.CsumStart:p.End])
		p.CsumPartial = false
		return true
	}
	// The field holds the pseudo-header's sum, which belongs into the total.
	putTransportChecksum(p.Buf[at:at+2], Sum(p.Buf[p.CsumStart:p.End], 0), p.CsumOffset == udpChecksum)
	p.CsumPartial = false
	return true
}

// DeferChecksum turns the finished checksum of a parsed TCP or UDP super-frame
// into an unfinished one, which is the only kind that segmentation offload
// takes. The checksum must be known to be right, or be none: a wrong one would be
// repaired.
func DeferChecksum(p *Packet) {
	field := p.ChecksumField()
	if p.CsumPartial || field == nil {
		return
	}
	p.CsumPartial = true
	p.CsumStart = p.L4
	p.CsumOffset = tcpChecksum
	if p.Flow.Proto == UDP {
		p.CsumOffset = udpChecksum
	}
	// The flow may be that of before a rewrite; the bytes are the packet's.
	src, dst := headerAddrs(p.Buf[p.L3:])
	binary.BigEndian.PutUint16(field, Fold(PseudoSum(src, dst, p.Flow.Proto, p.End-p.L4)))
}

// headerAddrs reads the addresses of an IP header known to be whole.
func headerAddrs(ip []byte) (src, dst Addr) {
	if ip[0]>>4 == 6 {
		return AddrFrom16(ip[8:]), AddrFrom16(ip[24:])
	}
	return AddrFrom4(ip[12:]), AddrFrom4(ip[16:])
}
