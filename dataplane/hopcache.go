package dataplane

import (
	"time"

	"pktdirector/packet"
)

// hopCacheSize is how many next hops, and as many neighbours, a worker remembers: a
// power of two. Real servers and gateways are few; clients beyond the router share
// its neighbour.
const hopCacheSize = 256

// hopCache remembers what a worker found out about ways, so that a packet takes no
// lock and walks no table for them. It is a worker's own. What is remembered holds
// for the tables that it was found in.
type hopCache struct {
	hops       [hopCacheSize]cachedHop
	neighbours [hopCacheSize]cachedNeighbour
}

// cachedHop is what nextHop answered.
type cachedHop struct {
	host   *hostRoutes
	links  *[]LinkInfo
	target packet.Addr
	from   int    // index of the link that the packet came by
	tag    uint32 // its VLAN tag
	hop    hop
}

// cachedNeighbour is a neighbour that was known and fresh.
type cachedNeighbour struct {
	key     neighbourKey
	mac     packet.MAC
	changes uint64        // neighbours.changes when it was looked up
	until   time.Duration // engine time at which it must be looked up again
}

// place spreads addresses over the cache.
func place(a packet.Addr) uint64 {
	hi, lo := a.Words()
	return (hi ^ lo) * 0x9e3779b97f4a7c15 >> (64 - 8) % hopCacheSize
}

// nextHop looks up the way to target for a packet that came in as p. A packet
// read from a link without MACs leaves by that link: the host routes it from
// there.
func (w *Worker) nextHop(target packet.Addr, p *packet.Packet) (hop, bool) {
	host, links := w.d.host.Load(), w.d.links.Load()
	tag := uint32(0)
	if p.Tagged {
		tag = 1<<16 | uint32(p.VLAN)
	}
	c := &w.ways.hops[place(target)]
	if c.target == target && c.host == host && c.links == links && c.from == p.Link && c.tag == tag {
		return c.hop, true
	}
	h, ok := w.lookupHop(host, *links, target, p)
	if ok {
		*c = cachedHop{host: host, links: links, target: target, from: p.Link, tag: tag, hop: h}
	}
	return h, ok
}

// mac returns a neighbour's MAC; stale says it should be asked for again.
func (w *Worker) mac(key neighbourKey) (mac packet.MAC, known, stale bool) {
	n := &w.d.neighbours
	changes := n.changes.Load() // before it is looked up: what changes later is newer
	c := &w.ways.neighbours[place(key.addr)]
	if c.changes == changes && w.now < c.until && c.key == key {
		return c.mac, true, false
	}
	mac, until, known := n.lookup(key)
	if known {
		*c = cachedNeighbour{key: key, mac: mac, changes: changes, until: until}
	}
	return mac, known, known && w.now >= until
}
