package dataplane

import (
	"math"
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
type Forwarders [lvs.FullNAT + 1]Forwarder

// Options are the engine's inputs besides packets and time.
type Options struct {
	Seed       uint64     // of all hashes and ids: the same seed, the same behaviour
	Forwarders Forwarders // by method; Apply refuses methods that have none
	Decisions  bool       // keep the Decisions of each batch in Worker.Decisions
	Shards     int        // of the connection table; 0: conntrack.DefaultShards
	// ConnMax is the largest number of connections, and of templates; 0:
	// conntrack.DefaultMax. The setting conn_max changes it.
	ConnMax int
	// History is how many decisions and state changes are kept for Director.History,
	// and a quarter as many drops; 0: none. Of services of up to 32 servers every
	// candidate is kept, some 100 bytes each.
	History int
	// LocalVIPs: only addresses named by SetLocal or SetHost are the
	// director's, as the kernel's IPVS has it: a service on any other never sees
	// a packet. Otherwise every VIP is the director's.
	LocalVIPs bool
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
	defended   atomic.Uint64 // the second of the last look at memory, and round of drop_entry
	memory     atomic.Int64  // pages available
	estimated  atomic.Uint64 // the last step of the rates
	drops      atomic.Uint64 // packets that met drop_packet
	rules      atomic.Pointer[rules]
	dests      atomic.Pointer[destinations]
	host       atomic.Pointer[hostRoutes]
	links      atomic.Pointer[[]LinkInfo]
	neighbours neighbours
	ftp        ftpHelper
	sources    sourcePools
	verdicts   [numVerdicts]atomic.Uint64
	choices    choices
	paths      pathMTUs
	fragments  *packet.Reassembler
	servers    realServers
	localVIPs  bool
	announce   atomic.Bool // VIPs changed: gratuitous ARP is due
	standby    atomic.Bool
	bounced    atomic.Uint64 // see Bounced
	ipID       atomic.Uint32
	observed   atomic.Uint32 // Observed
	decided    atomic.Uint64 // decisions that were kept
	endings    endings
	history    history
	snap       atomic.Int64  // see SetSnap
	seen       atomic.Uint64 // packets that captures have numbered

	applying sync.Mutex
	retired  map[lvs.ServiceKey][]*lvs.Destination // of removed services; guarded by applying
	past     lvs.Stats                             // what removed services counted, and others before -Z; guarded by applying
}

// New returns an engine without links, routes and services.
func New(o Options) *Director {
	if o.Shards == 0 {
		o.Shards = conntrack.DefaultShards
	}
	d := &Director{seed: o.Seed, forwarders: o.Forwarders, decisions: o.Decisions, localVIPs: o.LocalVIPs, retired: map[lvs.ServiceKey][]*lvs.Destination{}}
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
	d.memory.Store(math.MaxInt64)
	d.local.Store(&[]netip.Prefix{})
	d.rules.Store(&rules{})
	d.dests.Store(&destinations{})
	d.host.Store(newHostRoutes(HostTable{}))
	d.links.Store(&[]LinkInfo{})
	d.neighbours.init()
	d.fragments = packet.NewReassembler(o.Seed)
	d.servers.init()
	d.sources.init(o.Seed)
	d.ipID.Store(uint32(o.Seed))
	d.history.init(o.History)
	return d
}

// ended takes a connection that ended out of its destination's counts. The
// table calls it under a shard's lock.
func (d *Director) ended(c *conntrack.Conn) {
	d.dests.Load().all[c.DestID].Unbind(c.Active())
	d.observeEnd(c)
	if !c.Control.IsZero() {
		d.templates.Release(c.Control)
	}
	d.ftp.ended(c)
	d.takeSourceBack(c)
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
	d      *Director
	now    time.Duration
	out    []*packet.Packet
	made   []*packet.Packet // packets of the engine's own, reused each batch
	nMade  int
	icmp   bucket
	resets bucket
	ways   hopCache
	ahead  lookahead
	tally  tally
	// scratch keeps the bytes of a segment that is rewritten, for the call.
	scratch []byte
	conn    conntrack.Conn // copy of the present packet's; here so that it needs no allocation

	// Records of the last Process or Tick call: see Director.Observe. Decisions are
	// there, too, when Options.Decisions is set.
	Decisions []Decision
	States    []StateChange
	Drops     []Drop
	Packets   []PacketRecord
	Missed    uint64   // ends of connections that States lacks: there were too many
	observed  Observed // by those who listen, and the history
	listened  Observed // by those who listen
	// scratchDecision is the one that only the history wants.
	scratchDecision Decision
	seen            []byte // of Packets
	about           about  // the present packet's connection, where somebody watches
}

// NewWorker returns a worker.
func (d *Director) NewWorker() *Worker {
	return &Worker{d: d, icmp: newBucket(errorRate, errorBurst), resets: newBucket(resetRate, resetBurst)}
}

// Process takes a batch through the engine at engine time now (time since the
// engine's start, never going back). It returns the packets to send, in order:
// most are packets of the batch, rewritten. They are valid until the next call.
func (w *Worker) Process(in []*packet.Packet, now time.Duration) []*packet.Packet {
	w.begin(now)
	for len(in) > 0 {
		n := min(len(in), lookaheadSize)
		w.lookAhead(in[:n])
		for i, p := range in[:n] {
			if w.observed&ObservePackets != 0 {
				w.seeIn(p)
			}
			v := w.step(p, &w.ahead.of[i])
			w.settle(p, v)
			if w.observed&ObservePackets != 0 {
				w.seeVerdict(p, v)
			}
		}
		in = in[n:]
	}
	w.flush()
	w.endRecords()
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
	w.expireFragments()
	w.estimate()
	w.flush()
	w.endRecords()
	return w.out
}

func (w *Worker) begin(now time.Duration) {
	w.now = max(w.now, now)
	w.out, w.nMade = w.out[:0], 0
	w.beginRecords()
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
	w.tally.settled(v, 1)
	w.observeDrop(p, v)
}

// Unsent tells the engine that a link did not take p.
func (w *Worker) Unsent(p *packet.Packet) {
	if p.Verdict == uint8(pending) {
		return // a packet of the engine's own
	}
	w.d.verdicts[p.Verdict].Add(^uint64(0))
	p.Verdict = uint8(TxDropped)
	w.d.verdicts[TxDropped].Add(1)
	w.observeDrop(p, TxDropped)
	if w.observed&ObservePackets != 0 {
		w.seeUnsent(p)
	}
}

// step is the way of a packet, of which something is known already.
func (w *Worker) step(p *packet.Packet, known *preview) Verdict {
	switch {
	case p.Class == packet.Outgoing:
		return Outgoing
	case p.Class == packet.OtherHost:
		return OtherHost
	case p.Truncated:
		return Truncated
	case p.EtherType == packet.EtherARP:
		return w.arp(p)
	case w.d.standby.Load():
		return StandingBy
	}
	if !known.parsed {
		known.result = packet.Parse(p)
	}
	if known.result != packet.ParseOK {
		return parseVerdict(known.result)
	}
	if p.Class == packet.ToUs && p.Frag != packet.Whole {
		return w.fragment(p)
	}
	return w.whole(p, known)
}

// whole is the way of a packet that is not, or no more, in pieces.
func (w *Worker) whole(p *packet.Packet, known *preview) Verdict {
	switch p.Flow.Proto {
	case packet.TCP, packet.UDP, packet.SCTP:
	case packet.ICMP, packet.ICMPv6:
		return w.icmpIn(p)
	default:
		return w.otherProtocol(p)
	}
	if p.Class != packet.ToUs {
		return NotOurs
	}
	if v := w.options(p); v != pending {
		return v
	}
	dir, v := w.connection(p, known)
	if v != pending {
		return v
	}
	return w.forward(p, &w.conn, dir)
}

// forward sends a connection's packet on: next hop, TTL, MTU, rewriting,
// neighbour.
func (w *Worker) forward(p *packet.Packet, c *conntrack.Conn, dir conntrack.Direction) Verdict {
	if c.Flags&conntrack.Local != 0 && dir == conntrack.Request {
		return w.localNode(p, c)
	}
	if c.Method == lvs.Masq && dir == conntrack.Request && c.Client == c.Dest && !isICMP(p) {
		return Hairpin // nobody takes a packet that says it comes from itself
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
	if dir == conntrack.Reply && ok && w.exceeds(p, c.Method, hop.mtu) {
		w.tooBig(p, c, dir, hop.mtu) // the error quotes the reply as it came
		return TooBig
	}
	p.DecrementTTL()
	control := ftpControl(c) && helpable(p)
	overhead, helped := forwarder.Overhead(c), control && p.TCPChecksumOK()
	if helped {
		overhead += w.help(p, c, dir)
	}
	if c.Flags&conntrack.ClampMSS != 0 && ok {
		w.clampMSS(p, c, dir, hop, overhead)
	}
	if c.Flags&conntrack.TOA != 0 && ok {
		w.tellClient(p, c, dir, hop)
	}
	switch {
	case !ok:
		return NoRoute
	case hop.layer3 && c.Method == lvs.Route:
		return NeedsEthernet
	case w.exceeds(p, c.Method, hop.mtu-overhead):
		w.tooBig(p, c, dir, hop.mtu-overhead)
		return TooBig
	case control && !helped:
		return BadChecksum // nobody takes it, and what it says is not to be believed
	case helped && !w.helpEnd(p, c, dir):
		return TooBig
	case !forwarder.Forward(p, c, dir, w.outerSource(c, &hop)):
		if c.Method == lvs.Tunnel {
			return NoTunnelSource
		}
		return ShortHeader
	}
	v := w.emit(p, hop, done)
	w.noteBounce(p, c, dir)
	return v
}
