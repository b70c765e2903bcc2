package nat

import (
	"encoding/binary"

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
		change{}.move(p, destination(), End{c.Dest, c.DestPort}).apply(p)
	} else {
		change{}.move(p, source(), End{c.Virtual, c.VirtualPort}).apply(p)
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

// change is what a rewrite does to checksums: that of the IP header and of the
// pseudo-header depends on the addresses, the transport header's on all.
type change struct{ addrs, all packet.Delta }

// move writes an end of p and returns the change extended by it.
func (d change) move(p *packet.Packet, s side, to End) change {
	from := End{p.Flow.Dst, p.Flow.DstPort}
	if s.source {
		from = End{p.Flow.Src, p.Flow.SrcPort}
	}
	if p.EtherType == packet.EtherIPv4 {
		to.Addr.Put4(p.Buf[p.L3+s.ipv4:])
	} else {
		to.Addr.Put16(p.Buf[p.L3+s.ipv6:])
	}
	if p.Frag == packet.LaterFragment {
		to.Port = from.Port // what follows is payload
	} else {
		binary.BigEndian.PutUint16(p.Buf[p.L4+s.port:], to.Port)
	}
	if s.source {
		p.Flow.Src, p.Flow.SrcPort = to.Addr, to.Port
	} else {
		p.Flow.Dst, p.Flow.DstPort = to.Addr, to.Port
	}
	d.addrs = d.addrs.Addr(from.Addr, to.Addr)
	d.all = d.all.Addr(from.Addr, to.Addr).Word(from.Port, to.Port)
	return d
}

// apply updates the checksums of p.
func (d change) apply(p *packet.Packet) {
	if p.EtherType == packet.EtherIPv4 {
		d.addrs.Apply(p.Buf[p.L3+10 : p.L3+12])
	}
	if p.Frag != packet.LaterFragment {
		d.updateTransport(p)
	}
}

// updateTransport updates the transport checksum. An unfinished one covers only
// the pseudo-header so far, which has no ports. UDP over IPv4 sends 0 for "none computed", and 0xffff
// for a sum that comes out as 0 (RFC 768).
func (d change) updateTransport(p *packet.Packet) {
	field := p.ChecksumField()
	switch {
	case p.Flow.Proto == packet.SCTP:
		sumSCTP(p)
	case field == nil:
	case p.CsumPartial && p.CsumStart == p.L4:
		d.addrs.ApplyPartial(field)
	case p.Flow.Proto == packet.UDP:
		if field[0] == 0 && field[1] == 0 {
			sumUDP(p, field)
			return
		}
		d.all.Apply(field)
		if field[0] == 0 && field[1] == 0 {
			field[0], field[1] = 0xff, 0xff
		}
	default:
		d.all.Apply(field)
	}
}

// sumUDP computes the checksum of a datagram that had none, as the kernel does. A
// super-frame's is left to be finished by whoever cuts it.
func sumUDP(p *packet.Packet, field []byte) {
	if p.GSO != packet.GSONone {
		packet.DeferChecksum(p)
		return
	}
	b := p.Buf[p.L4:p.End]
	sum := ^packet.Fold(packet.Sum(b, packet.PseudoSum(p.Flow.Src, p.Flow.Dst, packet.UDP, len(b))))
	if sum == 0 {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(field, sum)
}

// sumSCTP computes the CRC32c of an SCTP packet anew, as the kernel does: a
// wrong one comes out right. It covers no addresses, so an unfinished one stays
// as it is (RFC 9260 section 6.8).
func sumSCTP(p *packet.Packet) {
	if b := p.Buf[p.L4:p.End]; !p.CsumPartial && len(b) >= packet.SCTPHeaderLen {
		packet.PutSCTPChecksum(b)
	}
}
