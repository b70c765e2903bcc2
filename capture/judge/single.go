package judge

import (
	"pktdirector/capture"
	"pktdirector/packet"
)

// single decides about connections that were seen on one side only: by what is
// known of the others, and where nothing is, by how they differ.
func (f *inference) single() {
	clients := map[packet.Addr]bool{}
	for _, c := range f.table.all {
		if c.in != none && c.out != none {
			clients[c.client.addr] = true
		}
	}
	one := f.oneSided()
	for _, c := range f.table.all {
		switch {
		case c.alias != nil || c.routed || len(c.paths) == 0:
		case c.in != none && c.out != none:
			c.listed = true
		case f.pairs > 0:
			f.beside(c, clients)
		default:
			one.place(c)
		}
	}
}

// beside places a connection that was seen on one side, while others were on both.
func (f *inference) beside(c *conn, clients map[packet.Addr]bool) {
	for i := range c.paths {
		p := &c.paths[i]
		service := serviceEnd{p.remote, c.client.proto}
		switch {
		case p.tunnel != notTunnelled:
			c.out, c.kind, c.listed = i, tunMode, true
		case f.vips[service] > 0 || f.vipAddr[p.remote.addr] > 0:
			if !p.src.IsZero() && f.own[p.src] && p.ttl != 0 {
				c.out, c.kind, c.listed = i, drMode, true // only sent on
			} else if c.in == none {
				c.in, c.listed = i, true
			}
		case f.outs[service] > 0 && c.out == none:
			if i != c.direct && (clients[c.client.addr] || p.ttl != 0 && !ownTTL(p.ttl)) && !f.neigh.owns(p.src, c.client.addr) {
				c.out, c.kind, c.listed = i, natMode, true
			}
		}
	}
	if c.in != none {
		c.listed = c.listed || f.vipAddr[c.paths[c.in].remote.addr] > 0
	}
}

// ownTTL reports whether a TTL is one that packets begin with.
func ownTTL(ttl uint8) bool { return ttl == 64 || ttl == 128 || ttl == 255 }

// oneSide is what can be said of a capture that shows one side of a director.
type oneSide struct {
	*inference
	dsts    map[onWire]map[packet.MAC]bool  // where packets to one end went
	remotes map[onPort]map[packet.Addr]bool // ends with one port, by their MACs
	macs    map[onPort]map[packet.MAC]bool
	tunnels bool
	clients map[packet.MAC]bool // MACs that send for clients that are others
	replied map[onWire]bool     // an end that answers from where requests go
	past    bool                // connections go on whose answers go past the capture
}

type onWire struct {
	src    packet.MAC
	remote serviceEnd
}

type onPort struct {
	src   packet.MAC
	port  uint16
	proto packet.Proto
}

func (f *inference) oneSided() *oneSide {
	o := &oneSide{inference: f, dsts: map[onWire]map[packet.MAC]bool{}, remotes: map[onPort]map[packet.Addr]bool{},
		macs: map[onPort]map[packet.MAC]bool{}, clients: f.routers, replied: map[onWire]bool{}}
	if f.pairs > 0 {
		return o
	}
	for _, c := range f.table.all {
		for i := range c.paths {
			p := &c.paths[i]
			o.tunnels = o.tunnels || p.tunnel != notTunnelled
			o.past = o.past || p.rep.packets == 0 && p.req.syns > 0 && p.req.payloads > 0 && c.direct == none
			if i == c.direct || p.dst.IsZero() || p.ttl == 0 {
				continue
			}
			add(o.dsts, onWire{p.src, serviceEnd{p.remote, c.client.proto}}, p.dst)
			key := onPort{p.src, p.remote.port, c.client.proto}
			add(o.remotes, key, p.remote.addr)
			add(o.macs, key, p.dst)
			if p.rep.packets > 0 && p.repSrc == p.dst {
				o.replied[onWire{p.src, serviceEnd{p.remote, c.client.proto}}] = true
			}
		}
	}
	return o
}

func add[K, V comparable](m map[K]map[V]bool, k K, v V) {
	if m[k] == nil {
		m[k] = map[V]bool{}
	}
	m[k][v] = true
}

// place decides about one connection: whether it goes to a VIP, or comes from one.
func (o *oneSide) place(c *conn) {
	i := 0
	if c.in != none {
		i = c.in
	}
	p := &c.paths[i]
	wire := onWire{p.src, serviceEnd{p.remote, c.client.proto}}
	port := onPort{p.src, p.remote.port, c.client.proto}
	checks := !p.src.IsZero() && o.neigh.owns(p.src, c.client.addr) && o.clients[p.src]
	switch {
	case p.tunnel != notTunnelled:
		c.out, c.kind, c.listed = i, tunMode, true
	case o.tunnels || checks:
		// The director's own, or what else is on the wire.
	case len(o.dsts[wire]) > 1 && c.direct == none && !o.replied[wire]:
		c.out, c.kind, c.listed = i, drMode, true
	case len(o.remotes[port]) > 1 && len(o.macs[port]) > 1 || p.dir == capture.Outgoing && p.ttl != 0:
		c.out, c.kind, c.listed = i, natMode, true
	default:
		c.in, c.listed = i, true
		c.kind = o.modeOf(c, p)
		o.own[p.dst] = o.own[p.dst] || !p.dst.IsZero()
	}
	if c.out != none {
		o.own[p.src] = o.own[p.src] || !p.src.IsZero()
	}
}

// modeOf guesses the method from the client's side alone: replies that come
// through the director are those of NAT.
func (o *oneSide) modeOf(c *conn, p *path) mode {
	// A director may reset by itself, and answer errors: for ports that nobody serves.
	if p.rep.packets > 1 || p.rep.packets == 1 && !p.rep.rst || p.rep.rst && c.hasISN && !o.past || c.direct != none {
		return natMode
	}
	for i := range c.icmp {
		if c.icmp[i].fragNeeded() && c.icmp[i].from == p.remote.addr {
			return tunMode // room for an outer header is missing
		}
	}
	return unknownMode
}
