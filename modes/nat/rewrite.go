package nat

import "pktdirector/packet"

// End is an end of a packet.
type End struct {
	Addr packet.Addr
	Port uint16
}

// Rewrite replaces both ends of p, a parsed packet, in place. Of an ICMP error it
// replaces those of the error, whose ports do not count, and, the other way round,
// those of the packet that it quotes. It reports false for a packet whose transport
// header is cut short, or that quotes too little.
func Rewrite(p *packet.Packet, from, to End) bool {
	if p.Flow.Proto == packet.ICMP || p.Flow.Proto == packet.ICMPv6 {
		return rewriteError(p, from, to)
	}
	if p.Frag != packet.LaterFragment && p.ShortTransport() {
		return false
	}
	change{}.move(p, source(), from).move(p, destination(), to).apply(p)
	return true
}

func rewriteError(p *packet.Packet, from, to End) bool {
	q, ok := p.Quote()
	if !ok || q.Kind != p.EtherType {
		return false
	}
	p.Flow.Src = moveOuter(p, source(), p.Flow.Src, from.Addr)
	p.Flow.Dst = moveOuter(p, destination(), p.Flow.Dst, to.Addr)
	moveQuoted(p, &q, source(), to.Addr, to.Port)
	moveQuoted(p, &q, destination(), from.Addr, from.Port)
	p.PutICMPChecksum()
	return true
}
