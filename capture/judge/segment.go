package judge

import (
	"encoding/binary"

	"pktdirector/lvs"
	"pktdirector/packet"
)

// segment is what one packet says, as far as it was captured.
type segment struct {
	flow  packet.Flow
	flags uint8 // TCP
	seq   uint32
	ack   uint32
	// payload is the number of bytes behind the transport header on the wire.
	payload int
	length  int // of the IP packet on the wire, without an outer header
	ttl     uint8
	id      uint16 // IPv4
	df      bool
	print   uint32 // tells payloads of UDP apart

	tunnel     tunnelKind
	outerSrc   packet.Addr
	outerDst   packet.Addr
	icmp       []byte // ICMP message, header included; nil: none
	etherType  packet.EtherType
	ports      bool // whether flow has ports
	short      bool // too little of the transport header was captured
	outerProto packet.Proto
}

// tunnelKind is how a packet is wrapped.
type tunnelKind uint8

const (
	notTunnelled tunnelKind = iota
	ipip
	gre
	gue
)

func (k tunnelKind) String() string {
	switch k {
	case ipip:
		return lvs.IPIP.String()
	case gre:
		return lvs.GRE.String()
	case gue:
		return lvs.GUE.String()
	}
	return ""
}

// read reads the IP packet b, of which wire bytes were on the wire. It reports
// false for what is no IP packet, or not enough of one.
func (s *segment) read(b []byte, wire int) bool {
	*s = segment{}
	h, ok := readIP(b, wire)
	if !ok {
		return false
	}
	if inner, kind := unwrap(b, &h); kind != notTunnelled {
		at := len(b) - len(inner)
		if in, ok := readIP(inner, h.length-at); ok && in.length == h.length-at {
			s.tunnel, s.outerSrc, s.outerDst, s.outerProto = kind, h.src, h.dst, h.proto
			h, b = in, inner
		}
	}
	s.flow = packet.Flow{Src: h.src, Dst: h.dst, Proto: h.proto}
	s.length, s.ttl, s.id, s.df = h.length, h.ttl, h.id, h.df
	s.etherType = packet.EtherIPv6
	if h.v4 {
		s.etherType = packet.EtherIPv4
	}
	if h.later {
		return true
	}
	return s.transport(b[h.header:], h.length-h.header)
}

// transport reads what is behind the IP header; wire is its length on the wire.
func (s *segment) transport(t []byte, wire int) bool {
	be := binary.BigEndian
	switch s.flow.Proto {
	case packet.ICMP, packet.ICMPv6:
		s.icmp = t
		return true
	case packet.TCP, packet.UDP, packet.SCTP:
	default:
		return true
	}
	if len(t) < 4 {
		s.short = true
		return true
	}
	s.ports = true
	s.flow.SrcPort, s.flow.DstPort = be.Uint16(t), be.Uint16(t[2:])
	switch s.flow.Proto {
	case packet.TCP:
		if len(t) < 14 {
			s.ports, s.short = false, true // nothing can be said of it
			return true
		}
		s.seq, s.ack, s.flags = be.Uint32(t[4:]), be.Uint32(t[8:]), t[13]
		s.payload = max(0, wire-int(t[12]>>4)*4)
	case packet.UDP:
		s.payload = max(0, wire-packet.UDPHeaderLen)
		s.print = fingerprint(t[min(len(t), packet.UDPHeaderLen):], s.payload)
	case packet.SCTP:
		s.payload = max(0, wire-packet.SCTPHeaderLen)
		s.print = fingerprint(t[min(len(t), packet.SCTPHeaderLen):], s.payload)
	}
	return true
}

// fingerprint hashes the beginning of a payload and its length (FNV-1a).
func fingerprint(b []byte, length int) uint32 {
	h := uint32(2166136261) ^ uint32(length)
	for _, x := range b[:min(len(b), 32)] {
		h = (h ^ uint32(x)) * 16777619
	}
	return h
}

// ipHeader is an IP header of either version.
type ipHeader struct {
	src, dst packet.Addr
	proto    packet.Proto
	header   int // bytes, IPv6 extension headers included
	length   int // of the packet, on the wire
	ttl      uint8
	id       uint16
	df, v4   bool
	later    bool // a fragment without ports
}

// readIP reads an IP header. A length of 0 is that of a super-frame larger than
// the field can say.
func readIP(b []byte, wire int) (ipHeader, bool) {
	var h ipHeader
	be := binary.BigEndian
	if len(b) < packet.IPv4HeaderLen {
		return h, false
	}
	switch b[0] >> 4 {
	case 4:
		h.v4, h.header, h.length = true, int(b[0]&15)*4, int(be.Uint16(b[2:]))
		if h.length == 0 {
			h.length = wire
		}
		if h.header < packet.IPv4HeaderLen || h.header > len(b) || h.length < h.header || h.length > wire {
			return h, false
		}
		h.id, h.ttl, h.proto = be.Uint16(b[4:]), b[8], packet.Proto(b[9])
		h.src, h.dst = packet.AddrFrom4(b[12:]), packet.AddrFrom4(b[16:])
		const dontFragment, offset = 0x4000, 0x1fff
		frag := be.Uint16(b[6:])
		h.df, h.later = frag&dontFragment != 0, frag&offset != 0
		return h, true
	case 6:
		return readIPv6(b, wire)
	}
	return h, false
}

func readIPv6(b []byte, wire int) (ipHeader, bool) {
	h := ipHeader{df: true}
	be := binary.BigEndian
	if len(b) < packet.IPv6HeaderLen {
		return h, false
	}
	h.length = packet.IPv6HeaderLen + int(be.Uint16(b[4:]))
	if h.length == packet.IPv6HeaderLen {
		h.length = wire
	}
	if h.length > wire {
		return h, false
	}
	h.ttl, h.src, h.dst = b[7], packet.AddrFrom16(b[8:]), packet.AddrFrom16(b[24:])
	const hopByHop, routing, fragment, auth, options, most = 0, 43, 44, 51, 60, 8
	next, at := b[6], packet.IPv6HeaderLen
	for range most {
		size := 8
		switch next {
		case hopByHop, routing, options, auth, fragment:
			if len(b) < at+8 {
				return h, false
			}
		default:
			h.proto, h.header = packet.Proto(next), at
			return h, at <= len(b)
		}
		switch next {
		case fragment:
			h.later = be.Uint16(b[at+2:])>>3 != 0
		case auth:
			size = (int(b[at+1]) + 2) * 4
		default:
			size = (int(b[at+1]) + 1) * 8
		}
		next = b[at]
		if at += size; at > len(b) || at > h.length {
			return h, false
		}
		if h.later {
			h.proto, h.header = packet.Proto(next), at
			return h, true
		}
	}
	return h, false
}

// unwrap returns the packet inside the tunnel packet b whose header is h.
// GUE has no port that all use: the header, and that a whole packet of the right
// length is behind it, must do.
func unwrap(b []byte, h *ipHeader) ([]byte, tunnelKind) {
	if h.later || h.header > len(b) {
		return nil, notTunnelled
	}
	t := b[h.header:]
	switch h.proto {
	case packet.IPIP, packet.IPv6P:
		return t, ipip
	case packet.GRE:
		const sum, key, seq, version = 0x80, 0x20, 0x10, 7
		if len(t) < packet.GREHeaderLen || t[1]&version != 0 || t[0]&^(sum|key|seq) != 0 {
			return nil, notTunnelled
		}
		at := packet.GREHeaderLen
		for _, option := range []byte{sum, key, seq} {
			if t[0]&option != 0 {
				at += 4
			}
		}
		kind := packet.EtherType(binary.BigEndian.Uint16(t[2:]))
		if at > len(t) || kind != packet.EtherIPv4 && kind != packet.EtherIPv6 {
			return nil, notTunnelled
		}
		return t[at:], gre
	case packet.UDP:
		if len(t) < packet.UDPHeaderLen+packet.GUEHeaderLen {
			return nil, notTunnelled
		}
		g := t[packet.UDPHeaderLen:]
		const lengthBits, direct = 0x1f, 1
		if version := g[0] >> 6; version == direct && looksLikeIP(g) {
			return g, gue // variant 1 has no header of its own
		} else if version != 0 || g[0]&0x20 != 0 {
			return nil, notTunnelled
		}
		if proto := packet.Proto(g[1]); proto != packet.IPIP && proto != packet.IPv6P {
			return nil, notTunnelled
		}
		at := packet.GUEHeaderLen + int(g[0]&lengthBits)*4
		if at > len(g) || !looksLikeIP(g[at:]) {
			return nil, notTunnelled
		}
		return g[at:], gue
	}
	return nil, notTunnelled
}

func looksLikeIP(b []byte) bool {
	return len(b) >= packet.IPv4HeaderLen && (b[0] == 0x45 || b[0]>>4 == 6 && len(b) >= packet.IPv6HeaderLen)
}
