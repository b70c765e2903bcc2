package tun

import "pktdirector/packet"

// innerProto is the protocol number by which an outer IP header, or a GUE
// header, carries a packet of the given IP version (RFC 2003, RFC 4213).
func innerProto(inner packet.EtherType) packet.Proto {
	if inner == packet.EtherIPv6 {
		return packet.IPv6P
	}
	return packet.IPIP
}
