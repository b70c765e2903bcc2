package dataplane

import (
	"net/netip"
	"slices"
	"time"

	"pktdirector/conntrack"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/sched"
)

// connection finds the packet's connection, or starts one, moves its state on
// and copies it to w.conn. A verdict other than pending ends the packet's way.
func (w *Worker) connection(p *packet.Packet) (conntrack.Direction, Verdict) {
	f := &p.Flow
	rules := w.d.rules.Load()
	if len(rules.services) == 0 {
		return conntrack.Request, w.unknown(p, rules, false)
	}
	slot := w.d.table.Lock(f.Proto, f.Src, f.SrcPort)
	c := slot.Request(f)
	if c == nil && w.d.ftp.waiting.Load() > 0 && f.Proto == packet.TCP && w.mayStart(p) {
		slot.Unlock()
		w.called(p)
		slot = w.d.table.Lock(f.Proto, f.Src, f.SrcPort)
		c = slot.Request(f)
	}
	if c != nil && c.Flags&conntrack.NoClientPort != 0 {
		c = nil // no client has port 0
	}
	if c != nil && !w.reopens(c, p) {
		v := w.touch(slot, c, conntrack.Request, p)
		slot.Unlock()
		return conntrack.Request, v
	} else if c != nil {
		slot.Remove(c)
	}
	mark := rules.mark(p)
	svc := rules.match(p, mark)
	if svc != nil && w.mayStart(p) {
		v := w.start(slot, svc, mark, p)
		slot.Unlock()
		switch v {
		case NoDestination:
			w.refuse(p)
		case NoService:
			v = w.unknown(p, rules, false)
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
// UDP packet, an SCTP packet with INIT, and a TCP segment with SYN but without RST; with sloppy_tcp any
// segment but RST.
func (w *Worker) mayStart(p *packet.Packet) bool {
	if p.ShortTransport() {
		return false
	}
	switch p.Flow.Proto {
	case packet.SCTP:
		if w.d.tunables.Load().SloppySCTP != 0 {
			return p.Chunk != sctpAbort
		}
		return p.Chunk == sctpInit
	case packet.UDP:
		return true
	}
	if p.Flow.SrcPort == ftpDataPort {
		return false // a real server's call to a client of active FTP
	}
	if w.d.tunables.Load().SloppyTCP != 0 {
		return p.TCPFlags&packet.RST == 0
	}
	return p.TCPFlags&(packet.SYN|packet.RST) == packet.SYN
}

// Types of SCTP chunks that start and end an association (RFC 9260).
const (
	sctpInit  = 1
	sctpAbort = 6
)

// reopens reports whether the entry c makes way for what p starts anew: with
// expire_nodest_conn when its real server was removed, and on the first packet
// of a connection by conn_reuse_mode, or when the server is drained, by
// expire_nodest_conn. Connections made through a template stay with their server
// whatever conn_reuse_mode says.
func (w *Worker) reopens(c *conntrack.Conn, p *packet.Packet) bool {
	tune := w.d.tunables.Load()
	dest := w.d.dests.Load().all[c.DestID]
	if tune.ExpireNodestConn != 0 && !dest.Available() {
		return true
	}
	syn := p.Flow.Proto == packet.TCP && p.TCPFlags&packet.SYN != 0
	if !syn && (p.Flow.Proto != packet.SCTP || p.Chunk != sctpInit) {
		return false
	}
	if tune.ExpireNodestConn != 0 && dest.Weight() == 0 {
		return true
	}
	if tune.ConnReuseMode == 0 || !c.Control.IsZero() || c.Parent != 0 {
		return false
	}
	switch c.State {
	case conntrack.TimeWait, conntrack.Close, conntrack.SCTPClosed:
		return true
	case conntrack.FinWait:
		return tune.ConnReuseMode&2 != 0 && c.Flags&conntrack.NoOutput != 0
	}
	return false
}

// touch counts a packet of an existing connection and moves its state on. A
// request whose real server was removed is dropped and does not renew the timer.
func (w *Worker) touch(slot conntrack.Slot, c *conntrack.Conn, dir conntrack.Direction, p *packet.Packet) Verdict {
	dest := w.d.dests.Load().all[c.DestID]
	if dir == conntrack.Request && !dest.Available() {
		return DestinationGone
	}
	if dest.Method() == lvs.Tunnel {
		c.Tunnel = dest.Tunnel()
	}
	was := c.State
	what := p.TCPFlags
	if p.Flow.Proto == packet.SCTP {
		what = p.Chunk
	}
	// A header cut short may be forwarded, but says nothing about the state.
	if !p.ShortTransport() && slot.Step(c, dir, what, w.now) {
		dest.Move(c.Active())
	}
	if was == conntrack.Listen && c.State != was && c.Parent != 0 {
		w.d.ftp.began(c)
	}
	if c.State != was && !c.Control.IsZero() && assures(c, dir) {
		w.d.templates.Assure(c.Control)
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

// assures reports whether a connection's new state proves that its client is
// real, which its template notes.
func assures(c *conntrack.Conn, dir conntrack.Direction) bool {
	return c.State == conntrack.Established || c.Proto == packet.UDP && dir == conntrack.Reply
}

// start schedules a new connection and enters it.
func (w *Worker) start(slot conntrack.Slot, svc *service, mark uint32, p *packet.Packet) Verdict {
	if w.throttled() {
		return ThrottledNew
	}
	if !slot.Room() {
		return TableFull
	}
	f := &p.Flow
	var decision *Decision
	if w.d.decisions {
		decision = &Decision{Service: svc.key, Mark: mark, Flow: *f}
	}
	var control conntrack.TemplateRef
	var dest *lvs.Destination
	refused := NoDestination
	svc.mu.Lock()
	persistent := svc.config.Persist > 0
	if svc.dataOfFTP(f) && !persistent {
		svc.mu.Unlock()
		return NoService
	}
	onePacket := svc.config.OnePacket && f.Proto == packet.UDP && !persistent
	if persistent {
		dest, control, refused = w.persistent(svc, p, decision)
	} else {
		dest = svc.schedule(w.request(f), decision.explain())
	}
	if dest != nil && !onePacket {
		svc.bind(dest)
	}
	svc.mu.Unlock()
	if decision != nil {
		decision.Pick = dest
		w.Decisions = append(w.Decisions, *decision)
	}
	if dest == nil && svc.dataOfFTP(f) {
		return NoService
	}
	if dest == nil {
		return refused
	}
	c := conntrack.Conn{
		Proto: f.Proto, Client: f.Src, ClientPort: f.SrcPort, Virtual: f.Dst, VirtualPort: f.DstPort,
		Dest: dest.Server.RIP, DestPort: f.DstPort, Method: dest.Method(), Tunnel: dest.Tunnel(), DestID: dest.ID, Control: control,
	}
	// A server of a service for every port, or of a mark, may keep the packet's.
	if dest.Server.Port != 0 && (!persistent || f.DstPort == svc.key.Port) {
		c.DestPort = dest.Server.Port
	}
	if c.Method != lvs.Masq {
		c.Flags |= conntrack.NoOutput
	}
	w.markLocal(&c)
	if onePacket {
		dest.Stats.Conns.Add(1)
		svc.stats.Conns.Add(1)
		w.count(dest, conntrack.Request, p)
		w.conn = c
		return pending
	}
	entered, err := slot.Insert(c)
	if err != nil {
		w.d.ended(&c)
		if err == conntrack.ErrTableFull {
			return TableFull // other workers were faster
		}
		return ReplyTaken
	}
	return w.touch(slot, entered, conntrack.Request, p)
}

// request is what a scheduler is told of a new connection.
func (w *Worker) request(f *packet.Flow) sched.Request {
	tune := w.d.tunables.Load()
	return sched.Request{
		Flow: *f, Now: w.now,
		LBLCExpiration:  time.Duration(tune.LblcExpiration) * time.Second,
		LBLCRExpiration: time.Duration(tune.LblcrExpiration) * time.Second,
	}
}

// throttled reports whether drop_packet takes this new connection's packet.
func (w *Worker) throttled() bool {
	tune := w.d.tunables.Load()
	return tune.DropPacket == always && tune.AmDropRate > 0 && w.d.drops.Add(1)%uint64(tune.AmDropRate) == 0
}

// unknown judges a packet that belongs to no connection and starts none. For
// an address of the director's own it answers as a host without a listener
// would; what the host itself owns is the host's to answer.
func (w *Worker) unknown(p *packet.Packet, r *rules, served bool) Verdict {
	if _, vip := r.vips[p.Flow.Dst]; !vip && !w.local(p.Flow.Dst) {
		return NotOurs
	}
	if !served && w.d.host.Load().owns(p.Flow.Dst) {
		return NotOurs
	}
	if p.ShortTransport() {
		return ShortHeader
	}
	switch p.Flow.Proto {
	case packet.TCP:
		w.reset(p)
	case packet.SCTP: // the host of the kernel's director speaks no SCTP
		w.refuseProtocol(p)
	default:
		w.refuse(p)
	}
	if served {
		return NoConnection
	}
	return NoService
}

// local reports whether the director answers for an address that is no VIP.
func (w *Worker) local(a packet.Addr) bool {
	prefixes := *w.d.local.Load()
	if len(prefixes) == 0 {
		return false
	}
	ip := a.Netip()
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(ip) })
}
