package nat

import (
	"encoding/binary"
	"hash/crc32"

	"pktdirector/conntrack"
	"pktdirector/packet"
)

// Masq is the masquerading forwarder.
type Masq struct{}

// Overhead returns 0: masquerading adds no bytes.
func (Masq) Overhead(*conntrack.Conn) int { return 0 }

// Forward rewrites p, a parsed packet of c, in place. It reports false for a
// packet whose transport header is cut short, which the kernel drops in this
// mode. An ICMP packet is an error about c.
func (Masq) Forward(p *packet.Packet, c *conntrack.Conn, dir conntrack.Direction, _ packet.Addr) bool {
	if p.Flow.Proto == packet.ICMP || p.Flow.Proto == packet.ICMPv6 {
		return forwardError(p, c, dir)
	}
	if p.Frag != packet.LaterFragment && p.ShortTransport() {
		return false
	}
	if dir == conntrack.Request {
		rewrite(p, destination(), c.Dest, c.DestPort)
	} else {
		rewrite(p, source(), c.Virtual, c.VirtualPort)
	}
	return true
}

// side is the end of a packet that is rewritten: where its address stands in
// an IPv4 and an IPv6 header, and its port in the transport header.
type side struct {
	ipv4, ipv6, port int
	source           bool
}

func source() side      { return side{ipv4: 12, ipv6: 8, port: 0, source: true} }
func destination() side { return side{ipv4: 16, ipv6: 24, port: 2} }

func rewrite(p *packet.Packet, s side, addr packet.Addr, port uint16) {
	oldAddr, oldPort := p.Flow.Dst, p.Flow.DstPort
	if s.source {
		oldAddr, oldPort = p.Flow.Src, p.Flow.SrcPort
	}
	addrDelta := packet.Delta(0).Addr(oldAddr, addr)
	if p.EtherType == packet.EtherIPv4 {
		addr.Put4(p.Buf[p.L3+s.ipv4:])
		addrDelta.Apply(p.Buf[p.L3+10 : p.L3+12])
	} else {
		addr.Put16(p.Buf[p.L3+s.ipv6:])
	}
	if s.source {
		p.Flow.Src = addr
	} else {
		p.Flow.Dst = addr
	}
	if p.Frag == packet.LaterFragment {
		return // what follows is payload
	}
	binary.BigEndian.PutUint16(p.Buf[p.L4+s.port:], port)
	if s.source {
		p.Flow.SrcPort = port
	} else {
		p.Flow.DstPort = port
	}
	updateChecksum(p, addrDelta, addrDelta.Word(oldPort, port))
}

// updateChecksum applies a change of addresses, or of addresses and ports, to
// the transport checksum. An unfinished one covers only the pseudo-header so
// far, which has no ports. UDP over IPv4 sends 0 for "none computed", which
// stays, and 0xffff for a sum that comes out as 0 (RFC 768).
func updateChecksum(p *packet.Packet, addrs, all packet.Delta) {
	field := p.ChecksumField()
	switch {
	case p.Flow.Proto == packet.SCTP:
		sumSCTP(p)
	case field == nil:
	case p.CsumPartial && p.CsumStart == p.L4:
		addrs.ApplyPartial(field)
	case p.Flow.Proto == packet.UDP:
		if field[0] == 0 && field[1] == 0 {
			return
		}
		all.Apply(field)
		if field[0] == 0 && field[1] == 0 {
			field[0], field[1] = 0xff, 0xff
		}
	default:
		all.Apply(field)
	}
}

// sumSCTP computes the CRC32c of an SCTP packet anew, as the kernel does: a
// wrong one comes out right. It covers no addresses, so an unfinished one stays
// as it is (RFC 9260 section 6.8).
func sumSCTP(p *packet.Packet) {
	b := p.Buf[p.L4:p.End]
	if p.CsumPartial || len(b) < packet.SCTPHeaderLen {
		return
	}
	clear(b[8:12])
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}
