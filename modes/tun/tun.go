// Package tun forwards by tunnelling (ipvsadm -i): an outer IP header in front
// of the client's packet carries it to the real server, which decapsulates it,
// finds the VIP on itself and answers the client directly.
//
// The outer header is the kernel's: TTL and TOS of the inner packet, congestion
// experienced turned into ECT(0), don't-fragment copied, id 0 with
// don't-fragment and a counter without.
package tun

import (
	"encoding/binary"
	"sync/atomic"

	"pktdirector/conntrack"
	"pktdirector/packet"
)

// IPIP is the tunnelling forwarder (RFC 2003, RFC 2473).
type IPIP struct{ id atomic.Uint32 }

// New returns an IPIP whose outer ids start at a number made from seed.
func New(seed uint64) *IPIP {
	f := new(IPIP)
	f.id.Store(uint32(seed ^ seed>>32))
	return f
}

// Overhead returns the outer header's length in bytes.
func (*IPIP) Overhead(c *conntrack.Conn) int {
	if c.Dest.Is4() {
		return packet.IPv4HeaderLen
	}
	return packet.IPv6HeaderLen
}

// Congestion bits of the TOS or traffic class (RFC 3168).
const (
	ecnMask = 3
	ecnECT0 = 2
	ecnCE   = 3
)

// outerTOS returns the outer TOS for an inner one: the same, except that
// "congestion experienced" is not copied outwards.
func outerTOS(tos byte) byte {
	if tos&ecnMask == ecnCE {
		return tos&^ecnMask | ecnECT0
	}
	return tos
}

// Forward pushes an outer header from director, the director's address towards
// the real server, to c.Dest. It reports false when there is no headroom or no
// director address of the real server's family.
func (f *IPIP) Forward(p *packet.Packet, c *conntrack.Conn, _ conntrack.Direction, director packet.Addr) bool {
	if !director.IsValid() || director.Is4() != c.Dest.Is4() {
		return false
	}
	inner := p.Buf[p.L3:p.End]
	tos, proto := inner[1], packet.IPIP
	if p.EtherType == packet.EtherIPv6 {
		tos, proto = inner[0]<<4|inner[1]>>4, packet.IPv6P
	}
	hdr, ok := p.Push(f.Overhead(c))
	if !ok {
		return false
	}
	if c.Dest.Is4() {
		f.putIPv4(hdr, p, tos, proto, director, c.Dest)
		p.EtherType = packet.EtherIPv4
	} else {
		putIPv6(hdr, p, tos, proto, director, c.Dest)
		p.EtherType = packet.EtherIPv6
	}
	return true
}

// putIPv4 writes an outer IPv4 header. The total length of a super-frame may
// not fit its field; cutting it into segments sets the real ones. IPv6 inside
// never sets the outer don't-fragment bit.
func (f *IPIP) putIPv4(hdr []byte, p *packet.Packet, tos byte, proto packet.Proto, src, dst packet.Addr) {
	clear(hdr)
	hdr[0] = 4<<4 | packet.IPv4HeaderLen/4
	hdr[1] = outerTOS(tos)
	binary.BigEndian.PutUint16(hdr[2:], uint16(p.Len()))
	if p.DF && proto == packet.IPIP {
		hdr[6] = 0x40
	} else {
		binary.BigEndian.PutUint16(hdr[4:], uint16(f.id.Add(1)))
	}
	hdr[8] = p.TTL
	hdr[9] = byte(proto)
	src.Put4(hdr[12:])
	dst.Put4(hdr[16:])
	packet.PutIPv4Checksum(hdr)
}

func putIPv6(hdr []byte, p *packet.Packet, tos byte, proto packet.Proto, src, dst packet.Addr) {
	clear(hdr)
	tos = outerTOS(tos)
	hdr[0], hdr[1] = 6<<4|tos>>4, tos<<4
	binary.BigEndian.PutUint16(hdr[4:], uint16(p.Len()-packet.IPv6HeaderLen))
	hdr[6] = byte(proto)
	hdr[7] = p.TTL
	src.Put16(hdr[8:])
	dst.Put16(hdr[24:])
}
