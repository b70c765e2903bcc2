package tun

import (
	"encoding/binary"

	"pktdirector/conntrack"
	"pktdirector/packet"
)

// A UDP header (RFC 768) and a GUE header of version 0 without options
// (draft-ietf-intarea-gue): a byte of version, control flag and length of options,
// all 0, the inner packet's protocol number, and two bytes of flags, 0.
const (
	gueLen     = packet.UDPHeaderLen + packet.GUEHeaderLen
	udpPortAt  = 2 // destination port
	udpLenAt   = 4
	udpSumAt   = 6
	gueAt      = packet.UDPHeaderLen
	gueProtoAt = gueAt + 1
	gueFlagsAt = gueAt + 2
)

// putGUE writes both headers in front of the inner packet in. The UDP checksum
// covers all of it, or is 0, over IPv6 too (RFC 6935, RFC 6936). In front of a
// super-frame, whose length a datagram cannot have, it says only that there is one.
func putGUE(hdr, in []byte, o *outer, from, to uint16, summed bool) {
	clear(hdr)
	binary.BigEndian.PutUint16(hdr, from)
	binary.BigEndian.PutUint16(hdr[udpPortAt:], to)
	length := len(hdr) + len(in)
	binary.BigEndian.PutUint16(hdr[udpLenAt:], uint16(length))
	hdr[gueProtoAt] = byte(innerProto(o.inner))
	if !summed {
		return
	}
	sum := ^packet.Fold(packet.Sum(in, packet.Sum(hdr, packet.PseudoSum(o.director, o.server, packet.UDP, length))))
	if sum == 0 {
		sum = 0xffff // 0 says that there is none
	}
	binary.BigEndian.PutUint16(hdr[udpSumAt:], sum)
}

// The range of GUE source ports: the kernel's net.ipv4.ip_local_port_range.
const (
	firstSourcePort = 32768
	lastSourcePort  = 60999
)

// sourcePort returns the source port of a connection's tunnel packets, one for
// each connection: routers and network cards spread tunnels by it.
func (f *Encapsulator) sourcePort(c *conntrack.Conn) uint16 {
	h := f.seed ^ uint64(c.Proto)<<32 ^ uint64(c.ClientPort)<<16 ^ uint64(c.VirtualPort)
	for _, a := range [2]packet.Addr{c.Client, c.Virtual} {
		hi, lo := a.Words()
		h = mix(mix(h^hi) ^ lo)
	}
	return firstSourcePort + uint16(h>>32*(lastSourcePort-firstSourcePort+1)>>32)
}

// mix is the finaliser of SplitMix64, which spreads every bit over all.
func mix(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
