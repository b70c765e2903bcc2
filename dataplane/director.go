package dataplane

import (
	"sync"
	"sync/atomic"
	"time"

	"pktdirector/conntrack"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/sched"
)

// Forwarder rewrites a connection's packet for one forwarding method. It only
// rewrites bytes: the next hop, TTL and MTU are the director's.
type Forwarder interface {
	// Forward rewrites the parsed packet p of connection c in place; from is
	// the director's own address towards the next hop. It reports false
	// when the packet cannot be rewritten.
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
}

// Director is the engine. Its methods may be called from any goroutine;
// packets go through Workers.
type Director struct {
	seed       uint64
	forwarders Forwarders
	decisions  bool

	table      *conntrack.Table
	rules      atomic.Pointer[rules]
	dests      atomic.Pointer[destinations]
	host       atomic.Pointer[hostRoutes]
	links      atomic.Pointer[[]LinkInfo]
	neighbours neighbours
	verdicts   [numVerdicts]atomic.Uint64
	announce   atomic.Bool // VIPs changed: gratuitous ARP is due
	ipID       atomic.Uint32

	applying sync.Mutex
	retired  map[lvs.ServiceKey]*service // guarded by applying
}

// New returns an engine without links, routes and services.
func New(o Options) *Director {
	if o.Shards == 0 {
		o.Shards = conntrack.DefaultShards
	}
	d := &Director{seed: o.Seed, forwarders: o.Forwarders, decisions: o.Decisions, retired: map[lvs.ServiceKey]*service{}}
	d.table = conntrack.New(o.Shards, o.Seed, d.ended)
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
}

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
	conn  conntrack.Conn // copy of the present packet's; here so that it needs no allocation

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
	return w.out
}

func (w *Worker) begin(now time.Duration) {
	w.now = max(w.now, now)
	w.out, w.nMade = w.out[:0], 0
	w.Decisions = w.Decisions[:0]
	w.d.table.Advance(w.now)
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
	case packet.TCP, packet.UDP:
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

// connection finds the packet's connection, or starts one, moves its state on
// and copies it to w.conn. A verdict other than pending ends the packet's way.
func (w *Worker) connection(p *packet.Packet) (conntrack.Direction, Verdict) {
	f := &p.Flow
	slot := w.d.table.Lock(f.Proto, f.Src, f.SrcPort)
	if c := slot.Request(f); c != nil && !reopens(c, p) {
		v := w.touch(slot, c, conntrack.Request, p)
		slot.Unlock()
		return conntrack.Request, v
	} else if c != nil {
		slot.Remove(c)
	}
	rules := w.d.rules.Load()
	svc := rules.services[lvs.ServiceKey{Proto: f.Proto, VIP: f.Dst, Port: f.DstPort}]
	if svc != nil && mayStart(p) {
		v := w.start(slot, svc, p)
		slot.Unlock()
		if v == NoDestination {
			w.refuse(p)
		}
		return conntrack.Request, v
	}
	slot.Unlock()
	v := w.reply(p)
	if v == NotOurs {
		v = w.unknown(p, rules, svc != nil)
	}
	return conntrack.Reply, v
}

// reply finds the connection that p is a real server's reply of.
func (w *Worker) reply(p *packet.Packet) Verdict {
	f := &p.Flow
	slot := w.d.table.Lock(f.Proto, f.Dst, f.DstPort)
	defer slot.Unlock()
	c := slot.Reply(f)
	if c == nil {
		return NotOurs
	}
	return w.touch(slot, c, conntrack.Reply, p)
}

// mayStart reports whether a packet without a connection may start one: any
// UDP packet, and a TCP segment with SYN but without RST.
func mayStart(p *packet.Packet) bool {
	return p.Flow.Proto != packet.TCP || p.TCPFlags&(packet.SYN|packet.RST) == packet.SYN
}

// reopens reports whether p is a SYN on a connection that is over, whose entry
// then makes way for a new one (net.ipv4.vs.conn_reuse_mode 1).
func reopens(c *conntrack.Conn, p *packet.Packet) bool {
	return p.Flow.Proto == packet.TCP && p.TCPFlags&(packet.SYN|packet.RST|packet.ACK) == packet.SYN &&
		(c.State == conntrack.TimeWait || c.State == conntrack.Close)
}

// touch counts a packet of an existing connection and moves its state on. A
// request whose real server was removed is dropped and does not renew the timer.
func (w *Worker) touch(slot conntrack.Slot, c *conntrack.Conn, dir conntrack.Direction, p *packet.Packet) Verdict {
	dest := w.d.dests.Load().all[c.DestID]
	if dir == conntrack.Request && !dest.Available() {
		return DestinationGone
	}
	if slot.Step(c, dir, p.TCPFlags, w.now) {
		dest.Move(c.Active())
	}
	w.count(dest, dir, p)
	w.conn = *c
	return pending
}

// count adds a packet to its destination's and service's statistics. A
// super-frame counts as the packets it is on the wire.
func (w *Worker) count(dest *lvs.Destination, dir conntrack.Direction, p *packet.Packet) {
	n, bytes := uint64(1), uint64(p.Len())
	if p.GSO != packet.GSONone {
		header := uint64(p.HeaderLen())
		n = max(1, (bytes-header+uint64(p.GSOSize)-1)/uint64(p.GSOSize))
		bytes += (n - 1) * header
	}
	svc := w.d.rules.Load().services[dest.Service]
	if dir == conntrack.Request {
		dest.Stats.In(n, bytes)
		if svc != nil {
			svc.stats.In(n, bytes)
		}
		return
	}
	dest.Stats.Out(n, bytes)
	if svc != nil {
		svc.stats.Out(n, bytes)
	}
}

// start schedules a new connection and enters it.
func (w *Worker) start(slot conntrack.Slot, svc *service, p *packet.Packet) Verdict {
	f := &p.Flow
	var decide func(sched.Request, []sched.Candidate)
	if w.d.decisions {
		decide = func(r sched.Request, candidates []sched.Candidate) {
			w.Decisions = append(w.Decisions, Decision{Service: svc.key, Flow: r.Flow, Candidates: candidates})
		}
	}
	dest := svc.schedule(*f, false, decide)
	if dest == nil {
		return NoDestination
	}
	c := conntrack.Conn{
		Proto: f.Proto, Client: f.Src, ClientPort: f.SrcPort, Virtual: f.Dst, VirtualPort: f.DstPort,
		Dest: dest.Server.RIP, DestPort: dest.Server.Port, Method: dest.Method(), DestID: dest.ID,
	}
	if c.Method != lvs.Masq {
		c.Flags |= conntrack.NoOutput
	}
	entered, err := slot.Insert(c)
	if err != nil {
		dest.Unbind(false)
		return ReplyTaken
	}
	return w.touch(slot, entered, conntrack.Request, p)
}

// unknown judges a packet that belongs to no connection and starts none. For
// an address of the director's own it answers as a host without a listener
// would; what the host itself owns is the host's to answer.
func (w *Worker) unknown(p *packet.Packet, r *rules, served bool) Verdict {
	if _, vip := r.vips[p.Flow.Dst]; !vip {
		return NotOurs
	}
	if !served && w.d.host.Load().owns(p.Flow.Dst) {
		return NotOurs
	}
	if p.ShortTransport() {
		return ShortHeader
	}
	if p.Flow.Proto == packet.TCP {
		w.reset(p)
	} else {
		w.refuse(p)
	}
	if served {
		return NoConnection
	}
	return NoService
}

// forward sends a connection's packet on: next hop, TTL, MTU, rewriting,
// neighbour.
func (w *Worker) forward(p *packet.Packet, c *conntrack.Conn, dir conntrack.Direction) Verdict {
	target, done := c.Dest, Forwarded
	if dir == conntrack.Reply {
		target, done = c.Client, Replied
	}
	forwarder := w.d.forwarders[c.Method]
	hop, ok := w.nextHop(target, p)
	if p.TTL <= 1 {
		w.timeExceeded(p, c, dir)
		return TTLExceeded
	}
	p.DecrementTTL()
	switch {
	case !ok:
		return NoRoute
	case hop.layer3 && c.Method == lvs.Route:
		return NeedsEthernet
	case p.WireLen()+forwarder.Overhead(c) > hop.mtu:
		if p.DF {
			w.tooBig(p, c, dir, hop.mtu-forwarder.Overhead(c))
		}
		return TooBig
	case !forwarder.Forward(p, c, dir, hop.source):
		if c.Method == lvs.Tunnel {
			return NoTunnelSource
		}
		return ShortHeader
	}
	return w.send(p, hop, done)
}
