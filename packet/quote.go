package packet

import "encoding/binary"

// ICMPHeaderLen is the part of an ICMP error in front of the packet it quotes
// (RFC 792, RFC 4443 section 2.1).
const ICMPHeaderLen = 8

// Quote is the packet that an ICMP error quotes, as far as the quote goes: its
// IP header and, of TCP, UDP and SCTP, at least the ports. Offsets are absolute
// in the error's Buf.
type Quote struct {
	Kind        EtherType
	L3, L4, End int // the quoted headers, and the end of the quoted bytes
	Flow        Flow
	DF          bool // IPv4 don't-fragment; always true for IPv6
}

// Quote reads what p, a parsed ICMP error, quotes. It reports false when that
// does not go as far as the ports.
func (p *Packet) Quote() (Quote, bool) {
	at := p.L4 + ICMPHeaderLen
	if at > p.End {
		return Quote{}, false
	}
	q, ok := ParseQuote(p.Buf[:p.End], at, p.EtherType)
	if n := p.quoteLen(); n > 0 {
		q.End = min(q.End, max(q.L4, at+n))
	}
	return q, ok
}

// extendedQuote is the least length of a quote that something follows (RFC 4884
// section 4).
const extendedQuote = 128

// quoteLen returns the length of the quote in an error that says it, because
// something follows the quote, and 0 for others (RFC 4884 section 3).
func (p *Packet) quoteLen() int {
	n := 0
	switch kind := p.Buf[p.L4]; {
	case p.EtherType == EtherIPv4 && (kind == 3 || kind == 11): // unreachable, time exceeded
		n = int(p.Buf[p.L4+5]) * 4
	case p.EtherType == EtherIPv6 && (kind == 1 || kind == 3):
		n = int(p.Buf[p.L4+4]) * 8
	}
	if n < extendedQuote {
		return 0
	}
	return n
}

// ParseQuote reads the quoted packet of the given kind that begins at buf[at]
// and ends with buf, or earlier by its own length. It never panics. Lengths and
// the header checksum are not checked, since a quote is cut short and often
// altered on its way.
func ParseQuote(buf []byte, at int, kind EtherType) (Quote, bool) {
	q := Quote{Kind: kind, L3: at, End: len(buf)}
	if at < 0 || at > len(buf) {
		return q, false
	}
	ok := false
	switch kind {
	case EtherIPv4:
		ok = q.parseIPv4(buf)
	case EtherIPv6:
		ok = q.parseIPv6(buf)
	}
	if !ok {
		return q, false
	}
	switch q.Flow.Proto {
	case TCP, UDP, SCTP:
		if q.End-q.L4 < 4 {
			return q, false
		}
		q.Flow.SrcPort = binary.BigEndian.Uint16(buf[q.L4:])
		q.Flow.DstPort = binary.BigEndian.Uint16(buf[q.L4+2:])
	}
	return q, true
}

func (q *Quote) parseIPv4(buf []byte) bool {
	b := buf[q.L3:]
	if len(b) < IPv4HeaderLen || b[0]>>4 != 4 {
		return false
	}
	headerLen := int(b[0]&15) * 4
	frag := binary.BigEndian.Uint16(b[6:])
	if headerLen < IPv4HeaderLen || headerLen > len(b) || frag&ipv4OffsetMask != 0 {
		return false // a later fragment has no ports
	}
	q.L4 = q.L3 + headerLen
	q.cut(int(binary.BigEndian.Uint16(b[2:])))
	q.DF = frag&ipv4DontFragment != 0
	q.Flow = Flow{Src: AddrFrom4(b[12:]), Dst: AddrFrom4(b[16:]), Proto: Proto(b[9])}
	return true
}

// cut ends the quote where the quoted packet itself ended.
func (q *Quote) cut(total int) {
	if q.L3+total >= q.L4 {
		q.End = min(q.End, q.L3+total)
	}
}

func (q *Quote) parseIPv6(buf []byte) bool {
	b := buf[q.L3:]
	if len(b) < IPv6HeaderLen || b[0]>>4 != 6 {
		return false
	}
	q.DF = true
	q.Flow = Flow{Src: AddrFrom16(b[8:]), Dst: AddrFrom16(b[24:])}
	if q.Flow.Src.Is4() || q.Flow.Dst.Is4() {
		return false // an IPv4-mapped address must not pass for IPv4
	}
	next, at := b[6], IPv6HeaderLen
	for range maxExtensions {
		size := 0
		switch next {
		case extHopByHop, extRouting, extDestOptions, extFragment, extAuth:
			if len(b) < at+8 {
				return false
			}
		default:
			q.Flow.Proto = Proto(next)
			q.L4 = q.L3 + at
			q.cut(IPv6HeaderLen + int(binary.BigEndian.Uint16(b[4:])))
			return true
		}
		switch next {
		case extFragment:
			if binary.BigEndian.Uint16(b[at+2:])>>3 != 0 {
				return false
			}
			size = 8
		case extAuth:
			size = (int(b[at+1]) + 2) * 4
		default:
			size = (int(b[at+1]) + 1) * 8
		}
		next = b[at]
		if at += size; at > len(b) {
			return false
		}
	}
	return false
}

// ICMPChecksumOK reports whether the checksum of p, a parsed ICMP or ICMPv6
// packet, is right. One that offloads left unfinished is.
func (p *Packet) ICMPChecksumOK() bool { return p.CsumPartial || Fold(p.sumICMP()) == 0xffff }

// TCPChecksumOK reports whether the checksum of p, a parsed segment, is right. One that
// offloads left unfinished is, and that of a super-frame, which is each segment's own.
func (p *Packet) TCPChecksumOK() bool {
	b := p.Buf[p.L4:p.End]
	return p.CsumPartial || p.GSO != GSONone || Fold(Sum(b, PseudoSum(p.Flow.Src, p.Flow.Dst, TCP, len(b)))) == 0xffff
}

// PutICMPChecksum computes the checksum of p, an ICMP or ICMPv6 packet whose
// Flow has the addresses in its header, anew.
func (p *Packet) PutICMPChecksum() {
	field := p.Buf[p.L4+2 : p.L4+4]
	clear(field)
	p.CsumPartial = false
	binary.BigEndian.PutUint16(field, ^Fold(p.sumICMP()))
}

func (p *Packet) sumICMP() uint64 {
	b := p.Buf[p.L4:p.End]
	if p.Flow.Proto == ICMPv6 {
		return Sum(b, PseudoSum(p.Flow.Src, p.Flow.Dst, ICMPv6, len(b)))
	}
	return Sum(b, 0)
}
