package dataplane

import (
	"github.com/gaissmai/bart"

	"pktdirector/packet"
)

// hostRoutes is a HostTable made ready for lookups. It never changes.
type hostRoutes struct {
	routes bart.Table[Route]
	addrs  []LinkAddr
	local  map[packet.Addr]struct{}
}

func newHostRoutes(t HostTable) *hostRoutes {
	h := &hostRoutes{addrs: t.Addrs, local: map[packet.Addr]struct{}{}}
	for _, r := range t.Routes {
		dst := r.Dst.Masked()
		if had, ok := h.routes.Get(dst); ok && had.Metric <= r.Metric {
			continue
		}
		h.routes.Insert(dst, r)
	}
	for _, a := range t.Addrs {
		h.local[packet.AddrFrom(a.Prefix.Addr())] = struct{}{}
	}
	for _, a := range t.Local {
		h.local[a] = struct{}{}
	}
	return h
}

// SetHost replaces what the engine knows of the host's routes and addresses.
func (d *Director) SetHost(t HostTable) { d.host.Store(newHostRoutes(t)) }

// owns reports whether the host itself has the address.
func (h *hostRoutes) owns(a packet.Addr) bool {
	_, ok := h.local[a]
	return ok
}

// source returns the host's address on a link that is best for talking to a
// neighbour: one of the neighbour's own subnet, else any of its family, else
// the zero Addr.
func (h *hostRoutes) source(link int, to packet.Addr) packet.Addr {
	var any packet.Addr
	ip := to.Netip()
	for _, a := range h.addrs {
		if a.Link != link || a.Prefix.Addr().Is4() != to.Is4() {
			continue
		}
		if a.Prefix.Contains(ip) {
			return packet.AddrFrom(a.Prefix.Addr())
		}
		if !any.IsValid() {
			any = packet.AddrFrom(a.Prefix.Addr())
		}
	}
	return any
}

// hop is where a packet goes next.
type hop struct {
	link   int
	vlan   uint16      // VLAN id to send with; 0: untagged, or the link's own
	addr   packet.Addr // the neighbour: gateway, or the target itself
	source packet.Addr // the director's own address towards it
	mtu    int
	layer3 bool
	vital  bool // a gateway, or the way to a real server
}

// nextHop looks up the way to target for a packet that came in as p. A packet
// read from a link without MACs leaves by that link: the host routes it from
// there.
func (w *Worker) nextHop(target packet.Addr, p *packet.Packet) (hop, bool) {
	host, links := w.d.host.Load(), *w.d.links.Load()
	route, ok := host.routes.Lookup(target.Netip())
	if p.Link >= 0 && p.Link < len(links) && links[p.Link].Layer3 {
		route.Link, route.Gateway, ok = p.Link, packet.Addr{}, true
	}
	if !ok || route.Link < 0 || route.Link >= len(links) {
		return hop{}, false
	}
	link := &links[route.Link]
	h := hop{link: route.Link, addr: target, source: route.Source, mtu: link.MTU, layer3: link.Layer3}
	if route.Gateway.IsValid() {
		h.addr, h.vital = route.Gateway, true
	}
	if route.MTU > 0 {
		h.mtu = min(h.mtu, route.MTU)
	}
	if !h.source.IsValid() {
		h.source = host.source(route.Link, h.addr)
	}
	if link.VLAN == 0 && p.Tagged && p.Link == route.Link {
		h.vlan = p.VLAN & vlanID
	}
	return h, true
}

// vlanID masks the VLAN id out of a tag (IEEE 802.1Q; the rest is priority).
const vlanID = 0x0fff
