package dataplane

import (
	"maps"
	"sync"
	"sync/atomic"

	"pktdirector/conntrack"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// sourceKey names a pool of ports: those of one address that connections to one
// real server use, to whatever port of it. Two real servers may be sent from the
// same address and port: their replies differ by their own address.
type sourceKey struct {
	rip, source packet.Addr
	proto       packet.Proto
}

func keyOf(c *conntrack.Conn, source packet.Addr) sourceKey {
	return sourceKey{rip: c.Dest, source: source, proto: c.Proto}
}

// sourcePool gives ports to FullNAT connections. The port that was given back
// longest ago is given next, so that the server has the most time to forget its
// last connection.
type sourcePool struct {
	// owner is, by port, the number of the shard that holds the connection,
	// plus one; 0: none. It is written under mu and read without.
	owner [1 << 16]atomic.Uint32

	mu    sync.Mutex
	ports lvs.PortRange
	free  []uint16 // a ring: n ports from first on
	first int
	n     int
	used  int
	gone  bool // not in the list any more
}

// sourcePools are all pools. Their lock is taken after a shard's.
type sourcePools struct {
	seed  uint64
	mu    sync.Mutex // guards changes of byKey
	byKey atomic.Pointer[map[sourceKey]*sourcePool]
}

// sparePools is how many pools are kept at least, used or not.
const sparePools = 64

func (s *sourcePools) init(seed uint64) {
	s.seed = seed
	s.byKey.Store(&map[sourceKey]*sourcePool{})
}

// pool returns the pool of that key, made if it is not there.
func (s *sourcePools) pool(key sourceKey) *sourcePool {
	if p := (*s.byKey.Load())[key]; p != nil {
		return p
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all := *s.byKey.Load()
	if p := all[key]; p != nil {
		return p
	}
	next := maps.Clone(all)
	if len(next) >= sparePools {
		maps.DeleteFunc(next, func(_ sourceKey, p *sourcePool) bool { return p.retire() })
	}
	p := &sourcePool{}
	next[key] = p
	s.byKey.Store(&next)
	return p
}

// retire takes a pool that no connection uses out of use.
func (p *sourcePool) retire() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = p.used == 0
	return p.gone
}

// refill makes ports the ones to give, those in use left out, in an order that
// nobody outside can guess.
func (p *sourcePool) refill(ports lvs.PortRange, seed uint64) {
	size := int(ports.To) - int(ports.From) + 1
	p.ports, p.first, p.n, p.free = ports, 0, 0, make([]uint16, size)
	for i := range size {
		if port := ports.From + uint16(i); p.owner[port].Load() == 0 {
			p.free[p.n] = port
			p.n++
		}
	}
	shuffle(p.free[:p.n], seed)
}

// shuffle puts ports in an order that only who knows the seed can tell: a
// Fisher-Yates shuffle over the numbers of splitmix64.
func shuffle(ports []uint16, seed uint64) {
	for i := len(ports) - 1; i > 0; i-- {
		seed += 0x9e3779b97f4a7c15
		z := (seed ^ seed>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		j := int((z ^ z>>31) % uint64(i+1))
		ports[i], ports[j] = ports[j], ports[i]
	}
}

// take gives a port to a connection in a shard; 0 when none is left. It reports
// false when the pool is gone.
func (p *sourcePool) take(ports lvs.PortRange, shard uint32, seed uint64) (port uint16, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return 0, false
	}
	if p.ports != ports {
		p.refill(ports, seed)
	}
	if p.n == 0 {
		return 0, true
	}
	port = p.free[p.first]
	p.first = (p.first + 1) % len(p.free)
	p.n--
	p.used++
	p.owner[port].Store(shard + 1)
	return port, true
}

// put takes a port back.
func (p *sourcePool) put(port uint16) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.owner[port].Store(0)
	p.used--
	if port < p.ports.From || port > p.ports.To {
		return // of a range that was configured before
	}
	p.free[(p.first+p.n)%len(p.free)] = port
	p.n++
}

// giveSource gives a FullNAT connection an address and port towards its server,
// from those of its service in turn, beginning by its client. It reports false
// when all are in use.
func (w *Worker) giveSource(slot conntrack.Slot, c *conntrack.Conn, src *lvs.Sources, p *packet.Packet) bool {
	if len(src.Addrs) == 0 {
		hop, ok := w.nextHop(c.Dest, p)
		own := w.source(&hop)
		return ok && own.IsValid() && own.Is4() == c.Dest.Is4() && w.giveSourceOf(slot, c, src.Ports, own)
	}
	hi, lo := c.Client.Words()
	begin := int((hi ^ lo ^ lo>>32 ^ uint64(c.ClientPort)) % uint64(len(src.Addrs)))
	for i := range src.Addrs {
		if w.giveSourceOf(slot, c, src.Ports, src.Addrs[(begin+i)%len(src.Addrs)]) {
			return true
		}
	}
	return false
}

func (w *Worker) giveSourceOf(slot conntrack.Slot, c *conntrack.Conn, ports lvs.PortRange, source packet.Addr) bool {
	switch {
	case ports != (lvs.PortRange{}):
	case w.d.host.Load().owns(source):
		ports = lvs.HostSourcePorts()
	default:
		ports = lvs.DefaultSourcePorts()
	}
	key := keyOf(c, source)
	hi, lo := key.rip.Words()
	for {
		port, ok := w.d.sources.pool(key).take(ports, slot.Shard(), w.d.sources.seed^hi^lo)
		if !ok {
			continue // it went a moment ago: there will be a new one
		}
		c.Source, c.SourcePort = source, port
		return port != 0
	}
}

// takeSourceBack gives an ended connection's port back. Its shard is locked.
func (d *Director) takeSourceBack(c *conntrack.Conn) {
	if c.SourcePort == 0 {
		return
	}
	if p := (*d.sources.byKey.Load())[keyOf(c, c.Source)]; p != nil {
		p.put(c.SourcePort)
	}
}

// lockReply locks the shard of the connection that f may be a reply of: its
// client's, whom f names, or who was given the address and port that f is for.
func (w *Worker) lockReply(f *packet.Flow) conntrack.Slot {
	if p := (*w.d.sources.byKey.Load())[sourceKey{rip: f.Src, source: f.Dst, proto: f.Proto}]; p != nil {
		if shard := p.owner[f.DstPort].Load(); shard != 0 {
			return w.d.table.LockReply(shard-1, f.Proto, f.Dst, f.DstPort)
		}
	}
	return w.d.table.Lock(f.Proto, f.Dst, f.DstPort)
}

// findReply locks that shard, and finds the connection.
func (w *Worker) findReply(f *packet.Flow, known *preview) (conntrack.Slot, *conntrack.Conn) {
	if known.keyed && known.dir == conntrack.Reply && len(*w.d.sources.byKey.Load()) == 0 {
		slot := w.d.table.LockKey(&known.key)
		return slot, slot.ReplyAt(&known.key, f)
	}
	slot := w.lockReply(f)
	return slot, slot.Reply(f)
}

// answersFor reports whether the director answers neighbours' questions for an
// address: a VIP, or a source address that the host does not have.
func (w *Worker) answersFor(a packet.Addr) bool {
	if w.d.standby.Load() {
		return false
	}
	r := w.d.rules.Load()
	if _, vip := r.vips[a]; vip {
		return true
	}
	return r.isSource(a) && !w.d.host.Load().owns(a)
}

// isSource reports whether FullNAT servers are sent to from an address.
func (r *rules) isSource(a packet.Addr) bool {
	_, is := r.sources[a]
	return is
}
