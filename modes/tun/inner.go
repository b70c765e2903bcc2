package tun

import (
	"encoding/binary"

	"pktdirector/packet"
)

// Inner tells where in payload, what follows the outer IP header of one of the
// director's tunnel packets, the inner packet begins, and which IP version it
// is. payload may be cut anywhere, as ICMP errors quote packets: when not a byte of
// the inner packet is left, skip is the payload's length. It reports false for what
// no Encapsulator writes. Checksums and lengths are not looked at. Any UDP
// payload that looks like GUE passes, whatever its ports: whether a connection has
// to do with the inner packet is for the caller to find out.
func (*Encapsulator) Inner(proto packet.Proto, payload []byte) (skip int, kind packet.EtherType, ok bool) {
	switch proto {
	case packet.GRE:
		proto, skip, ok = greInner(payload)
	case packet.UDP:
		proto, skip, ok = gueInner(payload)
	default:
		ok = true
	}
	if !ok || proto != packet.IPIP && proto != packet.IPv6P {
		return 0, 0, false
	}
	version := byte(4)
	kind = packet.EtherIPv4
	if proto == packet.IPv6P {
		version, kind = 6, packet.EtherIPv6
	}
	if skip >= len(payload) {
		return len(payload), kind, true
	}
	return skip, kind, payload[skip]>>4 == version
}

// greInner reads a GRE header as putGRE writes it.
func greInner(b []byte) (proto packet.Proto, length int, ok bool) {
	if len(b) < packet.GREHeaderLen || b[0]&^packet.GREChecksum != 0 || b[1] != 0 {
		return 0, 0, false
	}
	length = packet.GREHeaderLen
	if b[0] != 0 {
		length += packet.GREChecksumLen
	}
	switch packet.EtherType(binary.BigEndian.Uint16(b[greProtoAt:])) {
	case packet.EtherIPv4:
		return packet.IPIP, length, true
	case packet.EtherIPv6:
		return packet.IPv6P, length, true
	}
	return 0, 0, false
}

// gueInner reads UDP and GUE headers as putGUE writes them. Where the GUE header
// is cut off, as by a router that quotes 8 bytes, nothing tells the inner
// packet's IP version, which does not matter then.
func gueInner(b []byte) (proto packet.Proto, length int, ok bool) {
	switch {
	case len(b) < packet.UDPHeaderLen:
		return 0, 0, false
	case len(b) < gueLen:
		return packet.IPIP, gueLen, true
	}
	return packet.Proto(b[gueProtoAt]), gueLen, b[gueAt] == 0 && b[gueFlagsAt] == 0 && b[gueFlagsAt+1] == 0
}
