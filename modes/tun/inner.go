package tun

import "pktdirector/packet"

// Inner tells where the packet inside an outer packet of the given protocol
// begins in its payload, and of which kind it is.
func (*IPIP) Inner(proto packet.Proto, payload []byte) (skip int, kind packet.EtherType, ok bool) {
	switch proto {
	case packet.IPIP:
		return 0, packet.EtherIPv4, true
	case packet.IPv6P:
		return 0, packet.EtherIPv6, true
	}
	return 0, 0, false
}
