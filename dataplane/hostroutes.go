package dataplane

import (
	"math"

	"github.com/gaissmai/bart"

	"pktdirector/conntrack"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// hostRoutes is a HostTable made ready for lookups. It never changes.
type hostRoutes struct {
	routes bart.Table[Route]
	addrs  []LinkAddr
	local  map[packet.Addr]struct{}
	mtu    int // the smallest that a route sets
}

func newHostRoutes(t HostTable) *hostRoutes {
	h := &hostRoutes{addrs: t.Addrs, local: map[packet.Addr]struct{}{}, mtu: math.MaxInt}
	for _, r := range t.Routes {
		if r.MTU > 0 {
			h.mtu = min(h.mtu, r.MTU)
		}
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
	link      int
	vlan      uint16      // VLAN id to send with; 0: untagged, or the link's own
	addr      packet.Addr // the neighbour: gateway, or the target itself
	preferred packet.Addr // the route's source address; zero: none
	mtu       int
	layer3    bool
	vital     bool // a gateway, or the way to a real server
}

// lookupHop is nextHop without its memory.
func (w *Worker) lookupHop(host *hostRoutes, links []LinkInfo, target packet.Addr, p *packet.Packet) (hop, bool) {
	route, ok := host.routes.Lookup(target.Netip())
	if p.Link >= 0 && p.Link < len(links) && links[p.Link].Layer3 {
		route.Link, route.Gateway, ok = p.Link, packet.Addr{}, true
	}
	if !ok || route.Link < 0 || route.Link >= len(links) {
		return hop{}, false
	}
	link := &links[route.Link]
	h := hop{link: route.Link, addr: target, preferred: route.Source, mtu: link.MTU, layer3: link.Layer3}
	if route.Gateway.IsValid() {
		h.addr, h.vital = route.Gateway, true
	}
	if route.MTU > 0 {
		h.mtu = min(h.mtu, route.MTU)
	}
	if link.VLAN == 0 && p.Tagged && p.Link == route.Link {
		h.vlan = p.VLAN & vlanID
	}
	return h, true
}

// source returns the director's own address towards the next hop; zero: none.
func (w *Worker) source(h *hop) packet.Addr {
	if h.preferred.IsValid() {
		return h.preferred
	}
	return w.d.host.Load().source(h.link, h.addr)
}

// outerSource is source for a connection whose packets get headers in front; others
// need none.
func (w *Worker) outerSource(c *conntrack.Conn, h *hop) packet.Addr {
	if c.Method != lvs.Tunnel {
		return packet.Addr{}
	}
	return w.source(h)
}

// vlanID masks the VLAN id out of a tag (IEEE 802.1Q; the rest is priority).
const vlanID = 0x0fff
