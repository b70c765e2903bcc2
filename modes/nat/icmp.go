package nat

import (
	"encoding/binary"

	"pktdirector/conntrack"
	"pktdirector/packet"
)

// forwardError rewrites an ICMP error about a packet of c. The client must see
// an error about what it sent to the VIP, from the VIP, whoever on the servers'
// side complained; the real server one about what it sent itself. So both the
// error and the packet it quotes are rewritten, at opposite ends. Eight quoted
// bytes of the transport header are enough. Its checksum, where it is quoted,
// stays as it is: nobody can check it against a packet cut short.
func forwardError(p *packet.Packet, c *conntrack.Conn, dir conntrack.Direction) bool {
	q, ok := p.Quote()
	if !ok || q.Kind != p.EtherType {
		return false
	}
	if dir == conntrack.Request {
		p.Flow.Dst = moveOuter(p, destination(), p.Flow.Dst, c.Dest)
		moveQuoted(p, &q, source(), c.Dest, c.DestPort)
	} else {
		p.Flow.Src = moveOuter(p, source(), p.Flow.Src, c.Virtual)
		moveQuoted(p, &q, destination(), c.Virtual, c.VirtualPort)
	}
	p.PutICMPChecksum()
	return true
}

// moveOuter changes an address of the error's own header and returns the new
// one.
func moveOuter(p *packet.Packet, s side, from, to packet.Addr) packet.Addr {
	if p.EtherType == packet.EtherIPv4 {
		to.Put4(p.Buf[p.L3+s.ipv4:])
		packet.Delta(0).Addr(from, to).Apply(p.Buf[p.L3+10 : p.L3+12])
	} else {
		to.Put16(p.Buf[p.L3+s.ipv6:])
	}
	return to
}

// moveQuoted changes an end of the quoted packet.
func moveQuoted(p *packet.Packet, q *packet.Quote, s side, to packet.Addr, port uint16) {
	if q.Kind == packet.EtherIPv4 {
		to.Put4(p.Buf[q.L3+s.ipv4:])
		packet.PutIPv4Checksum(p.Buf[q.L3:q.L4])
	} else {
		to.Put16(p.Buf[q.L3+s.ipv6:])
	}
	binary.BigEndian.PutUint16(p.Buf[q.L4+s.port:], port)
}
