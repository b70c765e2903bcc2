// Package tun forwards by tunnelling (ipvsadm -i): an outer header in front of
// the client's packet carries it to the real server, which decapsulates it,
// finds the VIP on itself and answers the client directly.
//
// The outer header is an IP header of the real server's version and, by the
// kind of tunnel (lvs.TunnelInfo), nothing else (ipip.go), a GRE header (gre.go),
// or UDP and GUE headers (gue.go). The inner packet may be of the other IP
// version.
//
// The outer IP header is the kernel's: TTL and TOS of the inner packet,
// congestion experienced turned into ECT(0), don't-fragment copied from IPv4 to
// IPv4, id 0 with don't-fragment and a counter without. inner.go reads such
// packets again, as ICMP errors quote them.
package tun

import (
	"encoding/binary"
	"sync/atomic"

	"pktdirector/conntrack"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// Encapsulator is the tunnelling forwarder, for every kind of tunnel.
type Encapsulator struct {
	seed uint64
	id   atomic.Uint32
}

// New returns an Encapsulator whose outer ids and GUE source ports depend on
// seed.
func New(seed uint64) *Encapsulator {
	f := &Encapsulator{seed: seed}
	f.id.Store(uint32(seed ^ seed>>32))
	return f
}

// Overhead returns the length in bytes of all that Forward puts in front of a
// packet of c.
func (*Encapsulator) Overhead(c *conntrack.Conn) int { return c.Tunnel().HeaderLen(c.Dest) }

// ipLen is the length of an outer IP header to a real server.
func ipLen(server packet.Addr) int {
	if server.Is4() {
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
// director address of the real server's family. Outer IPv4 gets don't-fragment
// where p.DF says so.
func (f *Encapsulator) Forward(p *packet.Packet, c *conntrack.Conn, _ conntrack.Direction, director packet.Addr) bool {
	if !director.IsValid() || director.Is4() != c.Dest.Is4() {
		return false
	}
	// A checksum over the inner packet needs its final bytes. That of a
	// super-frame is computed when it is cut.
	tunnel := c.Tunnel()
	summed := tunnel.Checksum != lvs.NoChecksum && tunnel.Type != lvs.IPIP
	if summed && p.GSO == packet.GSONone && !packet.FinishChecksum(p) {
		return false
	}
	o := outer{director: director, server: c.Dest, ttl: p.TTL, inner: p.EtherType}
	in := p.Buf[p.L3:p.End]
	if p.EtherType == packet.EtherIPv6 {
		o.tos = in[0]<<4 | in[1]>>4
	} else {
		o.tos, o.df = in[1], p.DF
	}
	hdr, ok := p.Push(f.Overhead(c))
	if !ok {
		return false
	}
	ip, shim := hdr[:ipLen(c.Dest)], hdr[ipLen(c.Dest):]
	switch tunnel.Type {
	case lvs.GRE:
		o.proto = packet.GRE
		putGRE(shim, in, o.inner, summed)
	case lvs.GUE:
		o.proto = packet.UDP
		putGUE(shim, in, &o, f.sourcePort(c), tunnel.Port, summed)
	default:
		o.proto = innerProto(o.inner)
	}
	if c.Dest.Is4() {
		f.putIPv4(ip, p, &o)
		p.EtherType = packet.EtherIPv4
	} else {
		putIPv6(ip, p, &o)
		p.EtherType = packet.EtherIPv6
	}
	return true
}

// outer is what an outer IP header says.
type outer struct {
	director, server packet.Addr
	proto            packet.Proto
	inner            packet.EtherType
	tos, ttl         byte
	df               bool
}

// putIPv4 writes an outer IPv4 header. The total length of a super-frame may
// not fit its field; cutting it into segments sets the real ones, and gives each
// an id of its own.
func (f *Encapsulator) putIPv4(hdr []byte, p *packet.Packet, o *outer) {
	clear(hdr)
	hdr[0] = 4<<4 | packet.IPv4HeaderLen/4
	hdr[1] = outerTOS(o.tos)
	binary.BigEndian.PutUint16(hdr[2:], uint16(p.Len()))
	if o.df {
		hdr[6] = 0x40
	} else {
		n := uint32(1)
		if p.GSO != packet.GSONone {
			n += uint32(p.Len() / max(1, int(p.GSOSize)))
		}
		binary.BigEndian.PutUint16(hdr[4:], uint16(f.id.Add(n)-n+1))
	}
	hdr[8] = o.ttl
	hdr[9] = byte(o.proto)
	o.director.Put4(hdr[12:])
	o.server.Put4(hdr[16:])
	packet.PutIPv4Checksum(hdr)
}

func putIPv6(hdr []byte, p *packet.Packet, o *outer) {
	clear(hdr)
	tos := outerTOS(o.tos)
	hdr[0], hdr[1] = 6<<4|tos>>4, tos<<4
	binary.BigEndian.PutUint16(hdr[4:], uint16(p.Len()-packet.IPv6HeaderLen))
	hdr[6] = byte(o.proto)
	hdr[7] = o.ttl
	o.director.Put16(hdr[8:])
	o.server.Put16(hdr[24:])
}
