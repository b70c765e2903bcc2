package judge

import (
	"slices"

	"pktdirector/capture"
	"pktdirector/packet"
)

// mode is a forwarding method, as reports name it.
type mode string

// The methods, and what is said where a capture shows only that servers answer
// past it.
const (
	unknownMode mode = "unknown"
	natMode     mode = "nat"
	drMode      mode = "dr"
	tunMode     mode = "tun"
	fullnatMode mode = "fullnat"
)

// inference is what all connections together say about the director.
type inference struct {
	*Judge
	vips                                 map[serviceEnd]int  // ends that are balanced
	vipAddr                              map[packet.Addr]int // their addresses
	outs                                 map[serviceEnd]int  // ends that requests are rewritten to
	own                                  map[packet.MAC]bool // MACs of the director
	routers                              map[packet.MAC]bool // MACs that send on what others sent
	senders                              map[packet.MAC]bool // MACs that send for clients, their own included
	handshake                            int64               // ns, the longest that was forwarded
	goodService                          map[serviceEnd]int  // connections that began and were not reset, by service
	goodClient                           map[packet.Addr]int // and by client
	pairs                                int                 // connections seen coming in and going out
	rewrites                             bool                // some connections are rewritten or tunnelled
	mode                                 mode
	replies                              int                        // packets of servers
	good, goodUDP, silentUDP, answersUDP map[end]int                // connections, by server; the last by service
	servers                              map[end]map[end]int        // answered UDP conversations of a service, by server
	unheard                              []*asked                   // questions of the director's that nobody answered
	bySender                             map[packet.Addr][]*asked   // questions, by who asked
	of                                   map[serverKey]int          // all connections of a server
	addrs4VIP                            map[packet.Addr]int        // VIPs, with their connections
	conns                                []*conn                    // that are listed, in order
	addrs                                map[packet.MAC]packet.Addr // of servers, by MAC
}

// serverKey names a server, by its MAC where that is all that is known.
type serverKey struct {
	end
	mac packet.MAC
}

// infer works out what the paths of every connection mean.
func (j *Judge) infer() *inference {
	for _, q := range j.neigh.asks {
		if q.waiting && j.last-q.lastAt > patience {
			j.neigh.lapse(q)
		}
	}
	f := &inference{Judge: j, vips: map[serviceEnd]int{}, vipAddr: map[packet.Addr]int{}, outs: map[serviceEnd]int{},
		own: map[packet.MAC]bool{}, routers: map[packet.MAC]bool{}, senders: map[packet.MAC]bool{}, addrs: map[packet.MAC]packet.Addr{}}
	for _, c := range j.table.all {
		// By the clocks of two files the side of the servers may have come first.
		if a := c.alias; a != nil && a.alias == nil && a.mine == 0 && a.paths[0].ttl < c.paths[0].ttl {
			a.alias, c.alias = c, nil
			c.paths, c.mine = append(c.paths, a.paths...), len(c.paths)
		} else if a != nil && a.alias == nil {
			if c.alias.mine == 0 {
				c.alias.mine = len(c.alias.paths)
			}
			c.alias.paths = append(c.alias.paths, c.paths...)
		}
		for i := range c.paths {
			p := &c.paths[i]
			if p.ttl != 0 && !p.src.IsZero() && !j.neigh.owns(p.src, c.client.addr) {
				f.routers[p.src] = true
			}
			if p.ttl != 0 {
				f.senders[p.src] = true
			}
		}
	}
	for _, c := range j.table.all {
		c.pair()
		if c.out != none && c.in != none && c.alias == nil {
			f.count(c)
		}
	}
	// A MAC that forwards is the director's, and no router that it forwards to.
	for mac := range f.own {
		delete(f.routers, mac)
	}
	for _, c := range j.table.all {
		if c.out != none && c.in != none && c.alias == nil && f.routed(c) {
			f.forget(c)
		}
	}
	f.single()
	for _, c := range j.table.all {
		if c.listed && c.alias == nil {
			f.name(c)
			f.conns = append(f.conns, c)
		}
	}
	slices.SortStableFunc(f.conns, func(a, b *conn) int {
		if a.first != b.first {
			return int(min(1, max(-1, a.first-b.first)))
		}
		return int(a.order) - int(b.order)
	})
	return f
}

// pair finds the way in, and the way that the packets were sent on.
func (c *conn) pair() {
	best := 0
	for i := range c.paths {
		for k := range c.paths {
			if i == k {
				continue
			}
			if n := c.paths[i].forwardedAs(&c.paths[k]); n > best {
				best, c.in, c.out = n, i, k
			}
		}
	}
	if c.in == none {
		if len(c.paths) > 1 {
			c.in, c.direct = c.sameWay()
		}
		return
	}
	in := &c.paths[c.in]
	for i := range c.paths {
		if i != c.in && i != c.out && in.sameWay(&c.paths[i]) {
			c.direct = i
		}
	}
	switch out := &c.paths[c.out]; {
	case out.tunnel != notTunnelled:
		c.kind = tunMode
	case c.aliased():
		c.kind = fullnatMode
	case in.remote == out.remote:
		c.kind = drMode
	default:
		c.kind = natMode
	}
}

// aliased reports whether the way out belongs to another client's end.
func (c *conn) aliased() bool {
	// Paths that were appended from the other side are behind c's own; those were
	// at most as many as have the client's first packet.
	return c.out >= c.own() || c.in >= c.own()
}

// own is how many of the paths are the connection's own.
func (c *conn) own() int {
	if c.mine == 0 {
		return len(c.paths)
	}
	return c.mine
}

// sameWay finds a path in and one beside it when nothing was sent on: requests
// that stay unanswered, and what the client sends to the server itself.
func (c *conn) sameWay() (in, direct int) {
	for i := range c.paths {
		for k := i + 1; k < len(c.paths); k++ {
			if c.paths[i].sameWay(&c.paths[k]) && c.paths[i].req.syns > 0 && c.paths[k].req.syns == 0 {
				return i, k
			}
		}
	}
	return none, none
}

// sameWay reports whether packets of p and q came in alike, for different ends:
// they were sent by the same machine to the same one.
func (p *path) sameWay(q *path) bool {
	if p.ttl == 0 || q.ttl == 0 || p.tunnel != q.tunnel || p.remote == q.remote {
		return false
	}
	switch {
	case !p.dst.IsZero() && !q.dst.IsZero():
		return p.dst == q.dst && p.src == q.src
	case p.dir != capture.DirectionUnknown:
		return p.dir == q.dir
	}
	return p.link == q.link && p.ttl == q.ttl
}

// forwardedAs reports how much speaks for q being what became of p: 0 is nothing.
func (p *path) forwardedAs(q *path) int {
	if p.tunnel != notTunnelled || p.sameWay(q) {
		return 0
	}
	if p.ttl == 0 || q.ttl == 0 { // only replies were seen of one
		if q.remote == p.remote || p.ttl == 0 && q.ttl == 0 && p.rep.firstAt < q.rep.firstAt {
			return 0
		}
		if q.ttl == 0 && !q.repSrc.IsZero() && q.repSrc == p.dst || p.ttl == 0 && !p.repSrc.IsZero() && p.repSrc == q.dst {
			return 0 // a reply as the client gets it, from an address it did not ask
		}
		return 1
	}
	if p.dir == capture.Outgoing && q.dir != capture.Outgoing || q.dir == capture.Incoming && p.dir != capture.Incoming {
		return 0
	}
	n := 0
	switch {
	case q.tunnel != notTunnelled:
		n = 8
	case p.dir != q.dir:
		n = 8
	case !p.dst.IsZero() && p.dst == q.src && q.dst != p.src:
		n = 8
	case !p.dst.IsZero() && q.dst == p.src && p.src != q.src:
		return 0 // the other way round
	case p.ttl > q.ttl:
		n = 4
	case p.ttl < q.ttl:
		return 0
	case p.req.firstAt <= q.req.firstAt:
		n = 2
	default:
		return 0
	}
	if p.req.syns > 0 && q.req.syns > 0 {
		n++
	}
	return n*2 + b2i(p.req.firstAt <= q.req.firstAt)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (f *inference) count(c *conn) { f.tally(c, 1) }

func (f *inference) forget(c *conn) {
	f.tally(c, -1)
	c.in, c.out, c.direct, c.kind = none, none, none, ""
	c.routed = true
}

func (f *inference) tally(c *conn, by int) {
	in, out := &c.paths[c.in], &c.paths[c.out]
	f.pairs += by
	service := serviceEnd{in.remote, c.client.proto}
	if f.vips[service] += by; f.vips[service] == 0 {
		delete(f.vips, service)
	}
	if f.vipAddr[in.remote.addr] += by; f.vipAddr[in.remote.addr] == 0 {
		delete(f.vipAddr, in.remote.addr)
	}
	f.rewrites = f.rewrites || c.kind != drMode
	if c.kind == natMode || c.kind == fullnatMode {
		if f.outs[serviceEnd{out.remote, c.client.proto}] += by; f.outs[serviceEnd{out.remote, c.client.proto}] == 0 {
			delete(f.outs, serviceEnd{out.remote, c.client.proto})
		}
	}
	if by > 0 {
		if !in.dst.IsZero() {
			f.own[in.dst] = true
		}
		if !out.src.IsZero() {
			f.own[out.src] = true
		}
	}
}

// routed reports whether a packet that went on unchanged was not balanced, but
// only passed on: to the machine that has the address it goes to, or to a router.
func (f *inference) routed(c *conn) bool {
	in, out := &c.paths[c.in], &c.paths[c.out]
	if c.kind != drMode {
		return false
	}
	if out.dst.IsZero() {
		// Nobody knows where it went; that the address is the director's, others say.
		return !f.claimedBy(in.remote.addr, in.dst) && f.rewrites
	}
	return f.neigh.owns(out.dst, in.remote.addr) && !f.neigh.owns(in.dst, in.remote.addr) ||
		f.routers[out.dst] && !f.neigh.owns(in.dst, in.remote.addr)
}

func (f *inference) claimedBy(a packet.Addr, mac packet.MAC) bool {
	for _, c := range f.neigh.claims[a] {
		if mac.IsZero() && f.own[c.mac] || !mac.IsZero() && c.mac == mac {
			return true
		}
	}
	return false
}

// name says which service and which server a connection had.
func (f *inference) name(c *conn) {
	v6 := !c.client.addr.Is4()
	if c.in != none {
		c.service = c.paths[c.in].remote
	}
	if c.out == none {
		if c.direct != none {
			c.server = c.paths[c.direct].remote
		}
		return
	}
	out := &c.paths[c.out]
	switch c.kind {
	case tunMode:
		c.service = out.remote
		c.server = end{out.outerDst, out.remote.port}
	case drMode:
		c.service = out.remote
		c.serverMAC = out.dst
		c.server = end{f.addressOf(out.dst, v6), out.remote.port}
	default:
		c.server = out.remote
	}
}

// addressOf finds the address of a server by its MAC: best one that the director
// asked for.
func (f *inference) addressOf(mac packet.MAC, v6 bool) packet.Addr {
	if a, known := f.addrs[mac]; known && a.Is4() != v6 {
		return a
	}
	best, rank := packet.Addr{}, 0
	for _, a := range f.neigh.byMAC[mac] {
		if f.vipAddr[a] > 0 || a.Is4() == v6 {
			continue
		}
		r := 2
		if hi, _ := a.Words(); v6 && hi>>54 == 0xfe80>>6 {
			r = 1 // link-local
		}
		for own := range f.own {
			if q := f.neigh.asks[ask{own, a}]; q != nil {
				r = 3
			}
		}
		if r > rank {
			best, rank = a, r
		}
	}
	f.addrs[mac] = best
	return best
}
