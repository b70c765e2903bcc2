package endpoint

import (
	"encoding/binary"

	"pktdirector/packet"
)

// Fields behind an outer IP header: GRE's (RFC 2784 section 2.1), UDP's (RFC
// 768), and those of GUE version 0 behind UDP's (draft-ietf-intarea-gue).
const (
	greTypeAt  = 2
	udpPortAt  = 2
	udpLenAt   = 4
	udpSumAt   = 6
	gueProtoAt = packet.UDPHeaderLen + 1
	gueFlagsAt = packet.UDPHeaderLen + 2
	gueLen     = packet.UDPHeaderLen + packet.GUEHeaderLen
)

// Congestion marks (RFC 3168 section 5).
const (
	ecn        = 0b11
	congestion = 0b11 // CE
)

// unwrap takes off what stands in front of a tunnelled packet: IPIP, GRE, or GUE
// to the UDP port gue. p is parsed and whole. unwrap reports false for anything
// that no director sends, a wrong checksum of the tunnel's own header included.
func unwrap(p *packet.Packet, gue uint16) bool {
	if p.Frag == packet.FirstFragment || p.Frag == packet.LaterFragment || p.GSO != packet.GSONone {
		return false
	}
	b := p.Buf[p.L4:p.End]
	skip, kind := 0, packet.EtherType(0)
	switch p.Flow.Proto {
	case packet.IPIP, packet.IPv6P:
		kind = etherOf(p.Flow.Proto)
	case packet.GRE:
		skip, kind = greHeader(b)
	case packet.UDP:
		if p.Flow.DstPort == gue {
			skip, kind = gueHeader(b, p.Flow)
		}
	}
	if kind == 0 {
		return false
	}
	mark := ecnOf(p.Buf[p.L3:], p.EtherType)
	in := *p
	in.Start, in.EtherType, in.Tagged, in.Assembled = p.L4+skip, kind, false, nil
	if packet.Parse(&in) != packet.ParseOK {
		return false
	}
	if mark == congestion {
		// Congestion on the tunnel's way is congestion on the packet's, and a
		// sender that cannot be told so loses the packet (RFC 6040 section 4.2).
		if ecnOf(in.Bytes(), kind) == 0 {
			return false
		}
		markCongestion(&in)
	}
	*p = in
	return true
}

// greHeader returns the length of a GRE header and what it carries; 0: nothing
// for us.
func greHeader(b []byte) (int, packet.EtherType) {
	if len(b) < packet.GREHeaderLen || b[0]&^packet.GREChecksum != 0 || b[1] != 0 {
		return 0, 0
	}
	n := packet.GREHeaderLen
	if b[0] == packet.GREChecksum {
		n += packet.GREChecksumLen
		if len(b) < n || packet.Fold(packet.Sum(b, 0)) != 0xffff {
			return 0, 0
		}
	}
	switch kind := packet.EtherType(binary.BigEndian.Uint16(b[greTypeAt:])); kind {
	case packet.EtherIPv4, packet.EtherIPv6:
		return n, kind
	}
	return 0, 0
}

// gueHeader returns the length of UDP and GUE headers and what they carry; 0:
// nothing for us.
func gueHeader(b []byte, f packet.Flow) (int, packet.EtherType) {
	if len(b) < gueLen || int(binary.BigEndian.Uint16(b[udpLenAt:])) != len(b) ||
		b[packet.UDPHeaderLen] != 0 || b[gueFlagsAt] != 0 || b[gueFlagsAt+1] != 0 {
		return 0, 0
	}
	summed := b[udpSumAt] != 0 || b[udpSumAt+1] != 0
	if summed && packet.Fold(packet.Sum(b, packet.PseudoSum(f.Src, f.Dst, packet.UDP, len(b)))) != 0xffff {
		return 0, 0
	}
	return gueLen, etherOf(packet.Proto(b[gueProtoAt]))
}

// etherOf returns the IP version that a protocol number stands for; 0: none.
func etherOf(p packet.Proto) packet.EtherType {
	switch p {
	case packet.IPIP:
		return packet.EtherIPv4
	case packet.IPv6P:
		return packet.EtherIPv6
	}
	return 0
}

// ecnOf returns the congestion mark of an IP header.
func ecnOf(ip []byte, kind packet.EtherType) byte {
	if kind == packet.EtherIPv6 {
		return ip[1] >> 4 & ecn
	}
	return ip[1] & ecn
}

// markCongestion sets "congestion experienced".
func markCongestion(p *packet.Packet) {
	ip := p.Bytes()
	if p.EtherType == packet.EtherIPv6 {
		ip[1] |= congestion << 4
		return
	}
	ip[1] |= congestion
	packet.PutIPv4Checksum(ip[:p.L4-p.L3])
}
