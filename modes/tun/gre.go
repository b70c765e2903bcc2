package tun

import (
	"encoding/binary"

	"pktdirector/packet"
)

// A GRE header (RFC 2784 section 2.1): flags and version, the inner packet's
// EtherType, and with GREChecksum the checksum over header and inner packet and
// a reserved word.
const (
	greProtoAt = 2
	greSumAt   = 4
)

// putGRE writes the header in front of the inner packet in.
func putGRE(hdr, in []byte, inner packet.EtherType, summed bool) {
	clear(hdr)
	binary.BigEndian.PutUint16(hdr[greProtoAt:], uint16(inner))
	if summed {
		hdr[0] = packet.GREChecksum
		binary.BigEndian.PutUint16(hdr[greSumAt:], ^packet.Fold(packet.Sum(in, packet.Sum(hdr, 0))))
	}
}
