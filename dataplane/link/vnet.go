package link

import (
	"encoding/binary"

	"pktdirector/packet"
)

// The legacy virtio-net header that the kernel puts in front of a frame
// (PACKET_VNET_HDR; virtio 1.2 section 5.1.6, in the host's byte order):
// flags, gso_type, hdr_len, gso_size, csum_start, csum_offset. csum_start counts
// from the frame's first byte.
const (
	vnetLen = 10

	vnetNeedsSum = 1 // flag: the checksum is unfinished

	vnetTCPv4 = 1
	vnetTCPv6 = 4
	vnetUDP   = 5
	vnetECN   = 0x80 // added to the type
)

// readVnet reads header into p's offload state; frame is where the frame
// begins in p.Buf. A type of super-frame that has no place in a Packet is
// left as what it is to its receiver: one large packet.
func readVnet(p *packet.Packet, header []byte, frame int) {
	if header[0]&vnetNeedsSum != 0 {
		p.CsumPartial = true
		p.CsumStart = frame + int(binary.NativeEndian.Uint16(header[6:]))
		p.CsumOffset = binary.NativeEndian.Uint16(header[8:])
	}
	switch header[1] &^ vnetECN {
	case vnetTCPv4:
		p.GSO = packet.GSOTCPv4
	case vnetTCPv6:
		p.GSO = packet.GSOTCPv6
	case vnetUDP:
		p.GSO = packet.GSOUDP
	default:
		return
	}
	p.GSOECN = header[1]&vnetECN != 0
	p.GSOSize = binary.NativeEndian.Uint16(header[4:])
}

// putVnet writes the header for p, whose Ethernet header is ether bytes long,
// into the front of b.
func putVnet(b []byte, p *packet.Packet, ether int) {
	clear(b[:vnetLen])
	if p.CsumPartial {
		b[0] = vnetNeedsSum
		binary.NativeEndian.PutUint16(b[6:], uint16(ether+p.CsumStart-p.Start))
		binary.NativeEndian.PutUint16(b[8:], p.CsumOffset)
	}
	switch p.GSO {
	case packet.GSONone:
		return
	case packet.GSOTCPv4:
		b[1] = vnetTCPv4
	case packet.GSOTCPv6:
		b[1] = vnetTCPv6
	case packet.GSOUDP:
		b[1] = vnetUDP
	}
	if p.GSOECN {
		b[1] |= vnetECN
	}
	binary.NativeEndian.PutUint16(b[2:], uint16(ether+p.HeaderLen()))
	binary.NativeEndian.PutUint16(b[4:], p.GSOSize)
}
