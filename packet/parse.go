package packet

import "encoding/binary"

// ParseError tells why Parse refused a packet. It is a number and not an
// error, since refusals happen at line rate.
type ParseError uint8

// What can be wrong with a packet.
const (
	ParseOK      ParseError = iota
	ErrShort                // the bytes end before the header does
	ErrVersion              // neither IPv4 nor IPv6, or not what the EtherType says
	ErrLength               // a length field contradicts the bytes
	ErrChecksum             // the IPv4 header checksum is wrong
	ErrExtension            // IPv6 extension headers that cannot be walked
)

// String names the error in words.
func (e ParseError) String() string {
	switch e {
	case ParseOK:
		return "ok"
	case ErrShort:
		return "header cut short"
	case ErrVersion:
		return "wrong IP version"
	case ErrLength:
		return "wrong length field"
	case ErrChecksum:
		return "wrong IP header checksum"
	case ErrExtension:
		return "unusable IPv6 extension header"
	}
	return "unknown parse error"
}

// Sizes and offsets of fixed headers.
const (
	IPv4HeaderLen = 20 // RFC 791 section 3.1, without options
	IPv6HeaderLen = 40 // RFC 8200 section 3
	TCPHeaderLen  = 20 // RFC 9293 section 3.1, without options
	UDPHeaderLen  = 8  // RFC 768
	SCTPHeaderLen = 12 // RFC 9260 section 3.1, without chunks

	tcpChecksum = 16
	udpChecksum = 6

	ipv4MoreFragments = 0x2000
	ipv4DontFragment  = 0x4000
	ipv4OffsetMask    = 0x1fff
)

// noChunk is Packet.Chunk of what is no SCTP packet with a chunk.
const noChunk = 255

// Parse reads the packet's IP and transport headers into L3, L4, Flow and
// their companions, and cuts link-layer padding off. It allocates nothing,
// never panics, and leaves p.Bytes unchanged but for the padding.
func Parse(p *Packet) ParseError {
	p.L3, p.L4 = p.Start, p.Start
	p.Flow = Flow{}
	p.TCPFlags, p.Chunk, p.Frag = 0, noChunk, Whole
	if p.Len() < 1 {
		return ErrShort
	}
	switch {
	case p.EtherType == EtherIPv4 && p.Buf[p.Start]>>4 == 4:
		return parseIPv4(p)
	case p.EtherType == EtherIPv6 && p.Buf[p.Start]>>4 == 6:
		return parseIPv6(p)
	}
	return ErrVersion
}

func parseIPv4(p *Packet) ParseError {
	b := p.Bytes()
	if len(b) < IPv4HeaderLen {
		return ErrShort
	}
	headerLen := int(b[0]&15) * 4
	total := int(binary.BigEndian.Uint16(b[2:]))
	switch {
	case headerLen < IPv4HeaderLen:
		return ErrLength
	case headerLen > len(b):
		return ErrShort
	case total < headerLen || total > len(b):
		return ErrLength
	case Fold(Sum(b[:headerLen], 0)) != 0xffff:
		return ErrChecksum
	}
	p.End = p.Start + total
	p.L4 = p.Start + headerLen
	p.TTL = b[8]
	p.Flow.Proto = Proto(b[9])
	p.Flow.Src = AddrFrom4(b[12:])
	p.Flow.Dst = AddrFrom4(b[16:])
	frag := binary.BigEndian.Uint16(b[6:])
	p.DF = frag&ipv4DontFragment != 0
	switch {
	case frag&ipv4OffsetMask != 0:
		p.Frag = LaterFragment
		return checkOffload(p)
	case frag&ipv4MoreFragments != 0:
		p.Frag = FirstFragment
	}
	return parseTransport(p)
}

// IPv6 extension headers (RFC 8200 section 4).
const (
	extHopByHop    = 0
	extRouting     = 43
	extFragment    = 44
	extAuth        = 51
	extDestOptions = 60

	// maxExtensions bounds the walk; real packets carry one or two.
	maxExtensions = 8
)

func parseIPv6(p *Packet) ParseError {
	b := p.Bytes()
	if len(b) < IPv6HeaderLen {
		return ErrShort
	}
	total := IPv6HeaderLen + int(binary.BigEndian.Uint16(b[4:]))
	if total > len(b) {
		return ErrLength
	}
	b = b[:total]
	p.End = p.Start + total
	p.TTL = b[7]
	p.DF = true
	p.Flow.Src = AddrFrom16(b[8:])
	p.Flow.Dst = AddrFrom16(b[24:])
	if p.Flow.Src.Is4() || p.Flow.Dst.Is4() {
		return ErrVersion // an IPv4-mapped address must not pass for IPv4
	}
	next, at := b[6], IPv6HeaderLen
	for range maxExtensions {
		var size int
		switch next {
		case extHopByHop, extRouting, extDestOptions, extFragment, extAuth:
			if len(b) < at+8 {
				return ErrExtension
			}
		default:
			p.Flow.Proto = Proto(next)
			p.L4 = p.Start + at
			if p.Frag == LaterFragment {
				return checkOffload(p)
			}
			return parseTransport(p)
		}
		switch next {
		case extFragment:
			size = 8
			field := binary.BigEndian.Uint16(b[at+2:])
			switch {
			case field>>3 != 0:
				p.Frag = LaterFragment
			case field&1 != 0:
				p.Frag = FirstFragment
			default:
				p.Frag = AtomicFragment
			}
		case extAuth:
			size = (int(b[at+1]) + 2) * 4
		default:
			size = (int(b[at+1]) + 1) * 8
		}
		next = b[at]
		at += size
		if at > len(b) {
			return ErrExtension
		}
		if p.Frag == LaterFragment {
			// What follows is the middle of something.
			p.Flow.Proto = Proto(next)
			p.L4 = p.Start + at
			return checkOffload(p)
		}
	}
	return ErrExtension
}

// parseTransport reads ports and flags as far as the bytes go. A transport
// header cut short is no error here: DR and TUN forward it as the kernel does.
func parseTransport(p *Packet) ParseError {
	b := p.Buf[p.L4:p.End]
	switch p.Flow.Proto {
	case TCP, UDP, SCTP:
		if len(b) < 4 {
			break
		}
		p.Flow.SrcPort = binary.BigEndian.Uint16(b)
		p.Flow.DstPort = binary.BigEndian.Uint16(b[2:])
		if p.Flow.Proto == TCP && len(b) >= 14 {
			p.TCPFlags = b[13]
		}
		if p.Flow.Proto == SCTP && len(b) > SCTPHeaderLen {
			p.Chunk = b[SCTPHeaderLen]
		}
	}
	return checkOffload(p)
}

// checkOffload refuses offload metadata that contradicts the packet, so that
// nobody behind Parse has to check it again.
func checkOffload(p *Packet) ParseError {
	if p.CsumPartial && (p.CsumStart < p.L4 || p.CsumStart+int(p.CsumOffset)+2 > p.End) {
		return ErrLength
	}
	if p.GSO == GSONone {
		return ParseOK
	}
	want := TCP
	if p.GSO == GSOUDP {
		want = UDP
	}
	if p.Flow.Proto != want || p.Frag != Whole || p.GSOSize == 0 || p.ShortTransport() ||
		p.HeaderLen() < p.L4-p.Start+8 || p.Start+p.HeaderLen() > p.End {
		return ErrLength
	}
	if want == TCP && p.HeaderLen() < p.L4-p.Start+TCPHeaderLen {
		return ErrLength
	}
	return ParseOK
}

// ShortTransport reports whether the TCP, UDP or SCTP header is cut short.
func (p *Packet) ShortTransport() bool {
	n := p.End - p.L4
	switch p.Flow.Proto {
	case TCP:
		return n < TCPHeaderLen
	case UDP:
		return n < UDPHeaderLen
	case SCTP:
		return n < SCTPHeaderLen
	}
	return false
}

// ChecksumField returns the 2 bytes of the TCP or UDP checksum, or nil where
// there is none. It needs a parsed packet that is no LaterFragment.
func (p *Packet) ChecksumField() []byte {
	at := -1
	switch p.Flow.Proto {
	case TCP:
		at = p.L4 + tcpChecksum
	case UDP:
		at = p.L4 + udpChecksum
	}
	if at < 0 || p.Frag == LaterFragment || at+2 > p.End {
		return nil
	}
	return p.Buf[at : at+2]
}

// DecrementTTL lowers the IPv4 TTL or IPv6 hop limit of the packet's own
// header by one and keeps the IPv4 header checksum right. The TTL must be
// above 0.
func (p *Packet) DecrementTTL() {
	p.TTL--
	if p.EtherType == EtherIPv6 {
		p.Buf[p.L3+7]--
		return
	}
	old := binary.BigEndian.Uint16(p.Buf[p.L3+8:])
	p.Buf[p.L3+8]--
	Delta(0).Word(old, old-1<<8).Apply(p.Buf[p.L3+10 : p.L3+12])
}
