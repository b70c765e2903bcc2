package capture

import (
	"encoding/binary"

	"pktdirector/packet"
)

// Lengths of link-layer headers, in bytes.
const (
	etherLen    = 14
	tagLen      = 4
	snapLen     = 8 // LLC and SNAP (IEEE 802.2)
	sllLen      = 16
	sll2Len     = 20
	loopbackLen = 4
)

// etherVLANOld is the tag that switches wrote before 802.1ad.
const etherVLANOld packet.EtherType = 0x9100

// minEtherType is the least EtherType; below stand lengths (IEEE 802.3 section
// 3.2.6) and Linux's numbers of frames without one.
const minEtherType = 0x0600

// decode reads the header of b. A header that was cut leaves an empty payload
// and what stood before the cut.
func (l *LinkLayer) decode(kind LinkType, b []byte) {
	switch kind {
	case Ethernet:
		l.ethernet(b)
	case SLL:
		l.cooked(b)
	case SLL2:
		l.cooked2(b)
	case Null, Loop:
		l.loopback(kind, b)
	default:
		l.EtherType = ipVersion(b)
	}
}

func (l *LinkLayer) ethernet(b []byte) {
	l.Offset = len(b)
	if len(b) < 6 {
		return
	}
	l.HasDst = true
	copy(l.DstMAC[:], b)
	if l.Kind == KindUnknown {
		switch {
		case l.DstMAC == packet.Broadcast:
			l.Kind = Broadcast
		case l.DstMAC.IsMulticast():
			l.Kind = Multicast
		}
	}
	if len(b) < 12 {
		return
	}
	l.HasSrc = true
	copy(l.SrcMAC[:], b[6:])
	if len(b) >= etherLen {
		l.network(b, packet.EtherType(binary.BigEndian.Uint16(b[12:])), etherLen)
	}
}

// network reads tags, and the EtherType behind an LLC header with SNAP, from
// offset on, where eth is the type found before.
func (l *LinkLayer) network(b []byte, eth packet.EtherType, offset int) {
	for isTag(eth) && l.nTags < maxTags {
		if len(b) < offset+tagLen {
			l.Offset = len(b)
			return
		}
		l.tags[l.nTags] = Tag{eth, binary.BigEndian.Uint16(b[offset:])}
		l.nTags++
		eth = packet.EtherType(binary.BigEndian.Uint16(b[offset+2:]))
		offset += tagLen
	}
	const snap = "\xaa\xaa\x03\x00\x00\x00" // RFC 1042
	if eth < minEtherType && len(b) >= offset+snapLen && string(b[offset:offset+6]) == snap {
		eth = packet.EtherType(binary.BigEndian.Uint16(b[offset+6:]))
		offset += snapLen
	}
	if eth < minEtherType {
		eth = 0
	}
	l.EtherType, l.Offset = eth, offset
}

func isTag(eth packet.EtherType) bool {
	return eth == packet.EtherVLAN || eth == packet.EtherQinQ || eth == etherVLANOld
}

// cooked reads LINKTYPE_LINUX_SLL: packet type, ARPHRD_ type, address length,
// address (8 bytes), protocol.
func (l *LinkLayer) cooked(b []byte) {
	if len(b) < sllLen {
		l.Offset = len(b)
		return
	}
	l.packetType(binary.BigEndian.Uint16(b))
	l.source(binary.BigEndian.Uint16(b[2:]), int(binary.BigEndian.Uint16(b[4:])), b[6:])
	l.protocol(b, binary.BigEndian.Uint16(b[2:]), binary.BigEndian.Uint16(b[14:]), sllLen)
}

// cooked2 reads LINKTYPE_LINUX_SLL2: protocol, 2 bytes unused, interface index,
// ARPHRD_ type, packet type, address length, address (8 bytes).
func (l *LinkLayer) cooked2(b []byte) {
	if len(b) < sll2Len {
		l.Offset = len(b)
		return
	}
	l.IfIndex = binary.BigEndian.Uint32(b[4:])
	l.packetType(uint16(b[10]))
	l.source(binary.BigEndian.Uint16(b[8:]), int(b[11]), b[12:])
	l.protocol(b, binary.BigEndian.Uint16(b[8:]), binary.BigEndian.Uint16(b), sll2Len)
}

// ARPHRD_ types (linux/if_arp.h): whose addresses are MACs, and whose protocol
// field is no EtherType.
const (
	arpEthernet = 1
	arpLoopback = 772
	arpNetlink  = 824
)

func (l *LinkLayer) source(kind uint16, n int, address []byte) {
	if n == len(l.SrcMAC) && (kind == arpEthernet || kind == arpLoopback) {
		l.HasSrc = true
		copy(l.SrcMAC[:], address)
	}
}

func (l *LinkLayer) protocol(b []byte, kind, proto uint16, offset int) {
	if kind == arpNetlink {
		l.Offset = offset
		return
	}
	l.network(b, packet.EtherType(proto), offset)
}

// packetType reads the kernel's PACKET_HOST and so on (packet(7)).
func (l *LinkLayer) packetType(kind uint16) {
	const (
		host = iota
		broadcast
		multicast
		otherHost
		outgoing
	)
	l.Direction = Incoming
	switch kind {
	case host:
		l.Kind = ToUs
	case broadcast:
		l.Kind = Broadcast
	case multicast:
		l.Kind = Multicast
	case otherHost:
		l.Kind = OtherHost
	case outgoing:
		l.Direction = Outgoing
	default:
		l.Direction = DirectionUnknown
	}
}

// loopback reads the address family in front of a packet. Its numbers are the
// writing system's own, and in LINKTYPE_NULL so is the byte order: no family has
// a number above 0xffff.
func (l *LinkLayer) loopback(kind LinkType, b []byte) {
	if len(b) < loopbackLen {
		l.Offset = len(b)
		return
	}
	l.Offset = loopbackLen
	family := binary.BigEndian.Uint32(b)
	if kind == Null && family > 0xffff {
		family = binary.LittleEndian.Uint32(b)
	}
	switch family {
	case 2:
		l.EtherType = packet.EtherIPv4
	case 10, 23, 24, 28, 30: // Linux; Windows; NetBSD and OpenBSD; FreeBSD; macOS
		l.EtherType = packet.EtherIPv6
	}
}

// ipVersion tells IPv4 from IPv6 where no header does.
func ipVersion(b []byte) packet.EtherType {
	if len(b) == 0 {
		return 0
	}
	switch b[0] >> 4 {
	case 4:
		return packet.EtherIPv4
	case 6:
		return packet.EtherIPv6
	}
	return 0
}
