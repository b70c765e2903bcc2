package filter

import (
	"encoding/binary"

	"pktdirector/packet"
)

// layer names a header.
type layer uint8

const (
	layerEther layer = iota
	layerIP
	layerIP6
	layerARP
	layerTCP
	layerUDP
	layerSCTP
	layerICMP
	layerICMP6
	layerIGMP
)

func layerNames() map[string]layer {
	return map[string]layer{
		"ether": layerEther, "ip": layerIP, "ip6": layerIP6, "arp": layerARP, "tcp": layerTCP, "udp": layerUDP, "sctp": layerSCTP,
		"icmp": layerICMP, "icmp6": layerICMP6, "igmp": layerIGMP,
	}
}

// proto of a layer above IP; 0 of others.
func (l layer) proto() packet.Proto {
	switch l {
	case layerTCP:
		return packet.TCP
	case layerUDP:
		return packet.UDP
	case layerSCTP:
		return packet.SCTP
	case layerICMP:
		return packet.ICMP
	case layerICMP6:
		return packet.ICMPv6
	case layerIGMP:
		return igmp
	}
	return 0
}

const igmp packet.Proto = 2

// Lengths and places of headers, in bytes.
const (
	ip4Header    = 20
	ip6Header    = 40
	ip6Fragment  = 44 // next header: a fragment's
	arpAddresses = 14 // where those of IPv4 over Ethernet begin: the sender's
	etherHeader  = 14
)

// matcher is a packet that an expression is asked about, and what was found in it.
// Like libpcap it reads IPv6's extension headers only where it says so.
type matcher struct {
	p      *Packet
	failed bool // bytes behind the end were asked for
	ether  [etherHeader]byte
	v4, v6 bool
	proto  packet.Proto // IPv4's protocol, or IPv6's first next header
	inner  packet.Proto // what follows an IPv6 fragment header that comes first
	rest   []byte       // behind IPv4's header, or IPv6's fixed one
	later  bool         // an IPv4 fragment that is not the first
}

func (m *matcher) layers() {
	p := m.p
	switch {
	case p.EtherType == packet.EtherIPv4 && len(p.Data) >= ip4Header:
		m.v4 = true
		m.proto = packet.Proto(p.Data[9])
		m.later = binary.BigEndian.Uint16(p.Data[6:])&0x1fff != 0
		m.rest = p.Data[min(len(p.Data), int(p.Data[0]&15)*4):]
	case p.EtherType == packet.EtherIPv6 && len(p.Data) >= ip6Header:
		m.v6 = true
		m.proto = packet.Proto(p.Data[6])
		m.rest = p.Data[ip6Header:]
		if m.proto == ip6Fragment && len(m.rest) > 0 {
			m.inner = packet.Proto(m.rest[0])
		}
	}
}

// is reports whether the packet is of a protocol above IP.
func (m *matcher) is(proto packet.Proto) bool {
	switch {
	case m.v4:
		return m.proto == proto
	case m.v6:
		return m.proto == proto || m.proto == ip6Fragment && m.inner == proto
	}
	return false
}

// has reports whether the packet has a header of the layer, as "tcp[0]" wants it:
// above IP, of IPv4, in a packet's first fragment; that of ICMPv6 behind IPv6's.
func (m *matcher) has(l layer) bool {
	switch l {
	case layerEther:
		return m.p.HasMAC
	case layerIP:
		return m.p.EtherType == packet.EtherIPv4
	case layerIP6:
		return m.p.EtherType == packet.EtherIPv6
	case layerARP:
		return m.p.EtherType == packet.EtherARP
	case layerICMP6:
		return m.v6 && m.proto == packet.ICMPv6
	}
	return m.v4 && m.proto == l.proto() && !m.later
}

// header returns the bytes from a layer on.
func (m *matcher) header(l layer) ([]byte, bool) {
	if !m.has(l) {
		return nil, false
	}
	switch l {
	case layerEther:
		copy(m.ether[:], m.p.DstMAC[:])
		copy(m.ether[6:], m.p.SrcMAC[:])
		binary.BigEndian.PutUint16(m.ether[12:], uint16(m.p.EtherType))
		return m.ether[:], true
	case layerIP, layerIP6, layerARP:
		return m.p.Data, true
	}
	return m.rest, true
}

// ports returns the packet's ports, of TCP, UDP or SCTP. Fragments but the first
// have none, nor has IPv6 behind extension headers.
func (m *matcher) ports() (src, dst uint16, there bool) {
	if !m.v4 && !m.v6 || m.later || m.proto != packet.TCP && m.proto != packet.UDP && m.proto != packet.SCTP {
		return 0, 0, false
	}
	if len(m.rest) < 4 {
		m.failed = true
		return 0, 0, false
	}
	return binary.BigEndian.Uint16(m.rest), binary.BigEndian.Uint16(m.rest[2:]), true
}

// addrs returns the packet's addresses; ARP's are those of sender and target.
func (m *matcher) addrs() (src, dst packet.Addr, there bool) {
	b := m.p.Data
	switch {
	case m.v4:
		return packet.AddrFrom4(b[12:]), packet.AddrFrom4(b[16:]), true
	case m.v6:
		return packet.AddrFrom16(b[8:]), packet.AddrFrom16(b[24:]), true
	case m.p.EtherType == packet.EtherARP && len(b) >= arpAddresses+14:
		return packet.AddrFrom4(b[arpAddresses:]), packet.AddrFrom4(b[arpAddresses+10:]), true
	}
	return packet.Addr{}, packet.Addr{}, false
}
