package dataplane

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"pktdirector/conntrack"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// Forwarder rewrites a connection's packet for one forwarding method. It only
// rewrites bytes: the next hop, TTL and MTU are the director's.
type Forwarder interface {
	// Forward rewrites the parsed packet p of connection c in place; from is
	// the director's own address towards the next hop. An ICMP packet is an
	// error about c's packets the other way: see packet.Quote. It reports
	// false when the packet cannot be rewritten.
	Forward(p *packet.Packet, c *conntrack.Conn, dir conntrack.Direction, from packet.Addr) bool
	// Overhead returns the bytes Forward adds.
	Overhead(c *conntrack.Conn) int
}

// Forwarders holds one Forwarder per method.
type Forwarders [lvs.Tunnel + 1]Forwarder

// Options are the engine's inputs besides packets and time.
type Options struct {
	Seed       uint64     // of all hashes and ids: the same seed, the same behaviour
	Forwarders Forwarders // by method; Apply refuses methods that have none
	Decisions  bool       // keep the Decisions of each batch in Worker.Decisions
	Shards     int        // of the connection table; 0: conntrack.DefaultShards
	// ConnMax is the largest number of connections, and of templates; 0:
	// conntrack.DefaultMax. The setting conn_max changes it.
	ConnMax int
}

// Director is the engine. Its methods may be called from any goroutine;
// packets go through Workers.
type Director struct {
	seed       uint64
	forwarders Forwarders
	decisions  bool
	connMax    int // Options.ConnMax

	table      *conntrack.Table
	templates  *conntrack.Table // of persistent services
	tunables   atomic.Pointer[Tunables]
	local      atomic.Pointer[[]netip.Prefix]
	defended   atomic.Uint64 // the second of the last round of drop_entry
	estimated  atomic.Uint64 // the last step of the rates
	drops      atomic.Uint64 // packets that met drop_packet
	rules      atomic.Pointer[rules]
	dests      atomic.Pointer[destinations]
	host       atomic.Pointer[hostRoutes]
	links      atomic.Pointer[[]LinkInfo]
	neighbours neighbours
	ftp        ftpHelper
	verdicts   [numVerdicts]atomic.Uint64
	paths      pathMTUs
	announce   atomic.Bool // VIPs changed: gratuitous ARP is due
	ipID       atomic.Uint32

	applying sync.Mutex
	retired  map[lvs.ServiceKey][]*lvs.Destination // of removed services; guarded by applying
}

// New returns an engine without links, routes and services.
func New(o Options) *Director {
	if o.Shards == 0 {
		o.Shards = conntrack.DefaultShards
	}
	d := &Director{seed: o.Seed, forwarders: o.Forwarders, decisions: o.Decisions, retired: map[lvs.ServiceKey][]*lvs.Destination{}}
	d.table = conntrack.New(o.Shards, o.Seed, d.ended)
	d.table.KeepWhile(d.ftp.holds)
	d.templates = conntrack.New(max(1, o.Shards/templateShare), o.Seed, d.templateEnded)
	if o.ConnMax == 0 {
		o.ConnMax = conntrack.DefaultMax
	}
	d.connMax = o.ConnMax
	d.limitTables(o.ConnMax)
	tunables := DefaultTunables()
	d.tunables.Store(&tunables)
	d.local.Store(&[]netip.Prefix{})
	d.rules.Store(&rules{})
	d.dests.Store(&destinations{})
	d.host.Store(newHostRoutes(HostTable{}))
	d.links.Store(&[]LinkInfo{})
	d.neighbours.init()
	d.ipID.Store(uint32(o.Seed))
	return d
}

// ended takes a connection that ended out of its destination's counts. The
// table calls it under a shard's lock.
func (d *Director) ended(c *conntrack.Conn) {
	d.dests.Load().all[c.DestID].Unbind(c.Active())
	if !c.Control.IsZero() {
		d.templates.Release(c.Control)
	}
	d.ftp.ended(c)
}

func (d *Director) templateEnded(c *conntrack.Conn) {
	d.dests.Load().all[c.DestID].Persistent.Add(-1)
}

// templateShare is how many shards of connections stand beside one of
// templates: a client's template serves many connections.
const templateShare = 8

// SetLinks tells the engine its links. A link's index in the slice is what
// Packet.Link holds.
func (d *Director) SetLinks(links []LinkInfo) {
	copied := append([]LinkInfo(nil), links...)
	d.links.Store(&copied)
}

// Worker takes packets through the engine, for one goroutine. Workers share
// everything but their buffers.
type Worker struct {
	d     *Director
	now   time.Duration
	out   []*packet.Packet
	made  []*packet.Packet // packets of the engine's own, reused each batch
	nMade int
	icmp  bucket
	// scratch keeps the bytes of a segment that is rewritten, for the call.
	scratch []byte
	conn    conntrack.Conn // copy of the present packet's; here so that it needs no allocation

	// Decisions of the last Process call, when Options.Decisions is set.
	Decisions []Decision
}

// NewWorker returns a worker.
func (d *Director) NewWorker() *Worker { return &Worker{d: d, icmp: newBucket()} }

// Process takes a batch through the engine at engine time now (time since the
// engine's start, never going back). It returns the packets to send, in order:
// most are packets of the batch, rewritten. They are valid until the next call.
func (w *Worker) Process(in []*packet.Packet, now time.Duration) []*packet.Packet {
	w.begin(now)
	for _, p := range in {
		w.settle(p, w.step(p))
	}
	return w.out
}

// Tick runs what is due without a packet: expiry of connections, requests to
// neighbours that do not answer, announcements of VIPs. Call it at least every
// 50 ms.
func (w *Worker) Tick(now time.Duration) []*packet.Packet {
	w.begin(now)
	if w.d.announce.CompareAndSwap(true, false) {
		w.announceVIPs()
	}
	w.askNeighbours()
	w.defend()
	w.estimate()
	return w.out
}

// defend runs a round of drop_entry once a second.
func (w *Worker) defend() {
	round := uint64(w.now / time.Second)
	if w.d.tunables.Load().DropEntry != always || w.d.defended.Swap(round) == round {
		return
	}
	w.d.table.DropSome(round, w.now)
	w.d.templates.DropSome(round, w.now)
}

func (w *Worker) begin(now time.Duration) {
	w.now = max(w.now, now)
	w.out, w.nMade = w.out[:0], 0
	w.Decisions = w.Decisions[:0]
	w.d.table.Advance(w.now)
	w.d.templates.Advance(w.now)
}

// settle gives a packet its verdict and counts it; a packet that waits for a
// neighbour is settled when the wait ends.
func (w *Worker) settle(p *packet.Packet, v Verdict) {
	if v == pending {
		return
	}
	p.Verdict = uint8(v)
	w.d.verdicts[v].Add(1)
}

// Unsent tells the engine that a link did not take p.
func (w *Worker) Unsent(p *packet.Packet) {
	if p.Verdict == uint8(pending) {
		return // a packet of the engine's own
	}
	w.d.verdicts[p.Verdict].Add(^uint64(0))
	p.Verdict = uint8(TxDropped)
	w.d.verdicts[TxDropped].Add(1)
}

// step is the way of a packet.
func (w *Worker) step(p *packet.Packet) Verdict {
	switch {
	case p.Class == packet.Outgoing:
		return Outgoing
	case p.Class == packet.OtherHost:
		return OtherHost
	case p.Truncated:
		return Truncated
	case p.EtherType == packet.EtherARP:
		return w.arp(p)
	}
	if e := packet.Parse(p); e != packet.ParseOK {
		return parseVerdict(e)
	}
	switch p.Flow.Proto {
	case packet.TCP, packet.UDP, packet.SCTP:
	case packet.ICMP, packet.ICMPv6:
		return w.icmpIn(p)
	default:
		return NotOurs
	}
	if p.Class != packet.ToUs || p.Frag != packet.Whole {
		return w.notBalanced(p)
	}
	dir, v := w.connection(p)
	if v != pending {
		return v
	}
	return w.forward(p, &w.conn, dir)
}

// notBalanced judges what cannot be matched to a connection: a fragment, or a
// packet that came as a broadcast.
func (w *Worker) notBalanced(p *packet.Packet) Verdict {
	if _, vip := w.d.rules.Load().vips[p.Flow.Dst]; vip && p.Frag != packet.Whole {
		return FragmentDropped
	}
	return NotOurs
}

// forward sends a connection's packet on: next hop, TTL, MTU, rewriting,
// neighbour.
func (w *Worker) forward(p *packet.Packet, c *conntrack.Conn, dir conntrack.Direction) Verdict {
	if c.Flags&conntrack.Local != 0 && dir == conntrack.Request {
		return w.localNode(p, c)
	}
	target, done := c.Dest, Forwarded
	if dir == conntrack.Reply {
		target, done = c.Client, Replied
	}
	if isICMP(p) {
		done = ErrorForwarded
	}
	forwarder := w.d.forwarders[c.Method]
	hop, ok := w.nextHop(target, p)
	hop.vital = hop.vital || dir == conntrack.Request
	if c.Method == lvs.Tunnel {
		hop.mtu = w.d.paths.limit(target, hop.mtu, w.now)
	}
	if p.TTL <= 1 {
		w.timeExceeded(p, c, dir)
		return TTLExceeded
	}
	p.DecrementTTL()
	overhead, helped := forwarder.Overhead(c), ftpControl(c) && helpable(p)
	if helped {
		overhead += w.help(p, c, dir)
	}
	switch {
	case !ok:
		return NoRoute
	case hop.layer3 && c.Method == lvs.Route:
		return NeedsEthernet
	case p.WireLen()+overhead > hop.mtu:
		if p.DF {
			w.tooBig(p, c, dir, hop.mtu-overhead)
		}
		return TooBig
	case helped && !w.helpEnd(p, c, dir):
		return TooBig
	case !forwarder.Forward(p, c, dir, hop.source):
		if c.Method == lvs.Tunnel {
			return NoTunnelSource
		}
		return ShortHeader
	}
	return w.send(p, hop, done)
}
