package dataplane

import (
	"net/netip"

	"pktdirector/packet"
)

// forged reports whether no host sends from the source of p: a group, a broadcast,
// the loopback network, "this host", or an address of the director's own that came
// in from outside (RFC 1812 section 5.3.7, RFC 4291 section 2.7). The kernel drops
// such packets before IPVS sees them; an answer would go to a crowd, or to the
// director itself. What comes out of a TUN device may be the host's own.
func (w *Worker) forged(p *packet.Packet) bool {
	src := p.Flow.Src
	ip := src.Netip()
	if !src.IsValid() || ip.IsMulticast() || ip.IsLoopback() || ip.IsUnspecified() { // :: is the zero Addr
		return true
	}
	host := w.d.host.Load()
	if src.Is4() {
		if a := src.V4(); a>>24 == 0 || a == 0xffffffff || host.broadcasts(ip) {
			return true
		}
	}
	links := *w.d.links.Load()
	if p.Link >= 0 && p.Link < len(links) && links[p.Link].Layer3 {
		return false
	}
	return host.owns(src) || w.d.serves(src)
}

// broadcasts reports whether an IPv4 address means everybody on one of the host's
// subnets.
func (h *hostRoutes) broadcasts(ip netip.Addr) bool {
	for _, a := range h.addrs {
		if n := a.Prefix.Bits(); a.Prefix.Addr().Is4() && n < 31 && a.Prefix.Contains(ip) {
			mask := uint32(1)<<(32-n) - 1
			if packet.AddrFrom(ip).V4()&mask == mask {
				return true
			}
		}
	}
	return false
}
