package capture

import "fmt"

// LinkType says with what header packets of a capture file begin (the registry
// of the pcap and pcapng formats, LINKTYPE_ values).
type LinkType uint16

// Link types that are read.
const (
	Null       LinkType = 0   // BSD loopback, address family in the writer's byte order
	Ethernet   LinkType = 1   //
	RawOld     LinkType = 12  // bare IP packets, DLT_RAW of most systems
	RawOpenBSD LinkType = 14  // bare IP packets, DLT_RAW of OpenBSD
	Raw        LinkType = 101 // bare IP packets
	Loop       LinkType = 108 // OpenBSD loopback, address family in network byte order
	SLL        LinkType = 113 // Linux cooked capture v1
	IPv4       LinkType = 228 // bare IPv4 packets
	IPv6       LinkType = 229 // bare IPv6 packets
	SLL2       LinkType = 276 // Linux cooked capture v2
)

// Supported reports whether packets of that type are read.
func (l LinkType) Supported() bool {
	switch l {
	case Null, Ethernet, RawOld, RawOpenBSD, Raw, Loop, SLL, IPv4, IPv6, SLL2:
		return true
	}
	return false
}

// readable is what an error recommends.
const readable = "Ethernet (1), raw IP (12, 14, 101, 228, 229), Linux cooked (113, 276) and loopback (0, 108) are read"

// String returns the type's name and number.
func (l LinkType) String() string { return fmt.Sprintf("%s (%d)", l.name(), uint16(l)) }

// name returns what people call the type, "link type" for rare ones.
func (l LinkType) name() string {
	switch l {
	case Null:
		return "BSD loopback"
	case Ethernet:
		return "Ethernet"
	case RawOld, RawOpenBSD, Raw:
		return "raw IP"
	case Loop:
		return "OpenBSD loopback"
	case SLL:
		return "Linux cooked v1"
	case SLL2:
		return "Linux cooked v2"
	case IPv4:
		return "raw IPv4"
	case IPv6:
		return "raw IPv6"
	case 3:
		return "AX.25"
	case 6:
		return "token ring"
	case 7:
		return "ARCNET"
	case 8:
		return "SLIP"
	case 9, 50:
		return "PPP"
	case 51:
		return "PPPoE"
	case 10:
		return "FDDI"
	case 100:
		return "ATM RFC 1483"
	case 104:
		return "Cisco HDLC"
	case 105:
		return "IEEE 802.11"
	case 107:
		return "frame relay"
	case 117:
		return "OpenBSD pflog"
	case 119:
		return "IEEE 802.11 with a Prism header"
	case 122:
		return "IP over Fibre Channel"
	case 127:
		return "IEEE 802.11 with radiotap"
	case 138:
		return "Apple IP over FireWire"
	case 143:
		return "DOCSIS"
	case 147, 148, 149, 150, 151, 152, 153, 154, 155, 156, 157, 158, 159, 160, 161, 162:
		return "private use"
	case 163:
		return "IEEE 802.11 with an AVS header"
	case 187, 201:
		return "Bluetooth HCI H4"
	case 189, 220:
		return "Linux USB"
	case 192:
		return "PPI"
	case 195, 215, 230:
		return "IEEE 802.15.4"
	case 197:
		return "Endace ERF"
	case 204:
		return "PPP with direction"
	case 224:
		return "Fibre Channel"
	case 227:
		return "SocketCAN"
	case 239:
		return "netfilter log"
	case 247:
		return "InfiniBand"
	case 249:
		return "USBPcap"
	case 251:
		return "Bluetooth LE"
	case 253:
		return "Linux netlink"
	case 271:
		return "vsock monitor"
	case 272:
		return "Nordic Bluetooth LE"
	}
	return "link type"
}
