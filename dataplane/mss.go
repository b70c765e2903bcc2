package dataplane

import (
	"pktdirector/conntrack"
	"pktdirector/packet"
)

// clampMSS lowers the maximum segment size in a SYN or SYN+ACK of c to what the
// way to c's real server takes behind overhead bytes of a tunnel's header. hop is
// the packet's own next hop. Only connections of services with ClampMSS come here.
func (w *Worker) clampMSS(p *packet.Packet, c *conntrack.Conn, dir conntrack.Direction, hop hop, overhead int) {
	if p.TCPFlags&packet.SYN == 0 || p.Flow.Proto != packet.TCP {
		return
	}
	mtu := hop.mtu
	if dir == conntrack.Reply {
		if to, ok := w.nextHop(c.Dest, p); ok {
			mtu = min(mtu, to.mtu)
		}
	}
	headers := packet.IPv4HeaderLen
	if p.EtherType == packet.EtherIPv6 {
		headers = packet.IPv6HeaderLen
	}
	if mss := mtu - overhead - headers - packet.TCPHeaderLen; mss > 0 {
		packet.ClampMSS(p, uint16(min(mss, 65535)))
	}
}
