package dataplane

import (
	"time"

	"pktdirector/conntrack"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/sched"
)

// connection finds the packet's connection, or starts one, moves its state on
// and copies it to w.conn. A verdict other than pending ends the packet's way.
func (w *Worker) connection(p *packet.Packet, known *preview) (conntrack.Direction, Verdict) {
	f := &p.Flow
	rules := w.d.rules.Load()
	if len(rules.services) == 0 {
		return conntrack.Request, w.unknown(p, false)
	}
	if w.d.localVIPs && !w.d.serves(f.Dst) {
		return conntrack.Reply, w.reply(p, known)
	}
	slot, c := w.findRequest(f, known)
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
		w.reopened(c)
		slot.Remove(c)
	}
	mark := rules.mark(p)
	svc := rules.match(p, mark)
	if svc != nil && w.mayStart(p) {
		if w.forged(p) {
			slot.Unlock()
			return conntrack.Request, ForgedSource
		}
		v := w.start(slot, svc, mark, p)
		slot.Unlock()
		switch v {
		case NoDestination, PortsExhausted:
			w.refuse(p)
		case NoService:
			v = w.unknown(p, false)
		}
		return conntrack.Request, v
	}
	slot.Unlock()
	v := w.reply(p, known)
	if v == NotOurs {
		v = w.unknown(p, svc != nil)
	}
	return conntrack.Reply, v
}

// findRequest locks the shard of a request's client, and finds the connection.
func (w *Worker) findRequest(f *packet.Flow, known *preview) (conntrack.Slot, *conntrack.Conn) {
	if known.keyed && known.dir == conntrack.Request {
		slot := w.d.table.LockKey(&known.key)
		return slot, slot.RequestAt(&known.key, f)
	}
	slot := w.d.table.Lock(f.Proto, f.Src, f.SrcPort)
	return slot, slot.Request(f)
}

// reply finds the connection that p is a real server's reply of.
func (w *Worker) reply(p *packet.Packet, known *preview) Verdict {
	f := &p.Flow
	slot, c := w.findReply(f, known)
	defer slot.Unlock()
	if c == nil {
		if v := w.onePacketReply(p); v != NotOurs {
			return v
		}
		return w.refuseServer(p)
	}
	// The kernel routes a reply before IPVS sees it: what does not pass the
	// router, and what the router refuses, changes no state.
	if v := w.replyOptions(p, c); v != pending {
		return v
	}
	if !w.replyPasses(p, c) {
		if w.observed != 0 {
			w.noteConnection(p, c, w.d.dests.Load().all[c.DestID], conntrack.Reply)
		}
		w.conn = *c
		return pending
	}
	return w.touch(slot, c, conntrack.Reply, p)
}

// replyPasses reports whether a router would send a reply on to the client, and the
// FTP helper read it.
func (w *Worker) replyPasses(p *packet.Packet, c *conntrack.Conn) bool {
	return p.TTL > 1 && !w.replyExceeds(p, c) && (!ftpControl(c) || !helpable(p) || p.TCPChecksumOK())
}

// mayStart reports whether a packet without a connection may start one: any
// UDP packet, an SCTP packet with INIT, and a TCP segment with SYN but without RST;
// with sloppy_tcp any segment but RST. Nothing from port 20 starts one, whatever its
// protocol: there, real servers call clients of active FTP.
func (w *Worker) mayStart(p *packet.Packet) bool {
	if p.ShortTransport() || p.Flow.SrcPort == ftpDataPort {
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
	if tune.ConnReuseMode == 0 || !c.Control.IsZero() || c.Parent() != 0 {
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
	if w.observed != 0 {
		w.noteConnection(p, c, dest, dir)
	}
	if dir == conntrack.Request && !dest.Available() {
		return DestinationGone
	}
	if c.Method == lvs.Tunnel && dest.Method() == lvs.Tunnel {
		c.SetTunnel(dest.Tunnel())
	}
	n, bytes := onWire(p)
	c.Count(dir, n, bytes)
	was := c.State
	what := p.TCPFlags
	if p.Flow.Proto == packet.SCTP {
		what = p.DecisiveChunk()
	}
	// A header cut short may be forwarded, but says nothing about the state.
	if !p.ShortTransport() && slot.Step(c, dir, what, w.now) {
		dest.Move(c.Active())
	}
	if was == conntrack.Listen && c.State != was && c.Parent() != 0 {
		w.d.ftp.began(c)
	}
	if !c.Control.IsZero() && assures(c, was, dir, n) {
		w.d.templates.Assure(c.Control)
	}
	if c.State != was {
		w.observeState(c, dest, was, dir)
	}
	if c.Flags&conntrack.TOA != 0 && dir == conntrack.Reply {
		noteFirstAck(p, c)
	}
	if dest.Available() { // what a removed server still answers counts nowhere
		w.tally.count(dest, dir, n, bytes)
	}
	if w.observed&ObservePackets != 0 {
		w.noteState(c)
	}
	w.conn = *c
	return pending
}

// onWire returns how many packets p is on the wire, and their bytes together: more
// than one of a super-frame.
func onWire(p *packet.Packet) (n, bytes uint64) {
	n, bytes = 1, uint64(p.Len())
	if p.GSO != packet.GSONone {
		header := uint64(p.HeaderLen())
		n = max(1, (bytes-header+uint64(p.GSOSize)-1)/uint64(p.GSOSize))
		bytes += (n - 1) * header
	}
	return n, bytes
}

// assures reports whether what just happened to a connection proves that its client
// is real, which its template notes: TCP and SCTP were established, a UDP server
// answered for the first time, by the n packets that were counted last.
func assures(c *conntrack.Conn, was conntrack.State, dir conntrack.Direction, n uint64) bool {
	if c.Proto == packet.UDP {
		answers, _ := c.Counted(conntrack.Reply)
		return dir == conntrack.Reply && answers == n
	}
	return c.State != was && (c.State == conntrack.Established || c.State == conntrack.SCTPEstablished)
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
	decision := w.beginDecision(p)
	if decision != nil {
		decision.Service, decision.Mark, decision.Flow, decision.Found = svc.key, mark, *f, foundBy(svc.key, f)
	}
	var control conntrack.TemplateRef
	var dest *lvs.Destination
	refused := NoDestination
	svc.mu.Lock()
	persistent, clamp := svc.config.Persist > 0, svc.config.ClampMSS
	if svc.dataOfFTP(f) && !persistent {
		svc.mu.Unlock()
		return NoService
	}
	sources := svc.config.Sources
	onePacket := svc.config.OnePacket && f.Proto == packet.UDP
	if persistent {
		dest, control, refused = w.persistent(svc, p, decision)
	} else {
		dest = w.choose(svc, f, w.explained(svc, decision))
	}
	// The answers of a FullNAT server are found by an entry only.
	onePacket = onePacket && dest != nil && dest.Method() != lvs.FullNAT
	if dest != nil && !onePacket {
		svc.bind(dest)
	}
	svc.mu.Unlock()
	if decision != nil {
		decision.Pick = dest
		w.endDecision(decision)
	}
	if dest == nil && svc.dataOfFTP(f) {
		return NoService
	}
	if dest == nil {
		return refused
	}
	c := w.entryFor(svc.key, persistent, dest, f)
	c.Control = control
	if clamp {
		c.Flags |= conntrack.ClampMSS
	}
	if onePacket {
		if !control.IsZero() {
			w.d.templates.Release(control)
			c.Control = conntrack.TemplateRef{}
		}
		dest.Stats.Conns.Add(1)
		svc.stats.Conns.Add(1)
		n, bytes := onWire(p)
		w.tally.count(dest, conntrack.Request, n, bytes)
		w.conn = c
		return pending
	}
	if c.Method == lvs.FullNAT && !w.fullNAT(slot, &c, &sources, p) {
		w.d.ended(&c)
		return PortsExhausted
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

// entryFor returns the entry of a new connection that goes to dest.
func (w *Worker) entryFor(key lvs.ServiceKey, persistent bool, dest *lvs.Destination, f *packet.Flow) conntrack.Conn {
	c := conntrack.Conn{
		Proto: f.Proto, Client: f.Src, ClientPort: f.SrcPort, Virtual: f.Dst, VirtualPort: f.DstPort,
		Dest: dest.Server.RIP, DestPort: f.DstPort, Method: dest.Method(), DestID: dest.ID,
	}
	if c.Method == lvs.Tunnel {
		c.SetTunnel(dest.Tunnel())
	}
	// A server of a service for every port, or of a mark, may keep the packet's.
	if dest.Server.Port != 0 && (!persistent || f.DstPort == key.Port) {
		c.DestPort = dest.Server.Port
	}
	if !c.Method.RewritesPorts() {
		c.Flags |= conntrack.NoOutput
	}
	w.markLocal(&c)
	return c
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

// unknown judges a packet that belongs to no connection and starts none. For
// an address of the director's own it answers as a host without a listener
// would; what the host itself owns is the host's to answer.
func (w *Worker) unknown(p *packet.Packet, served bool) Verdict {
	if !w.d.serves(p.Flow.Dst) {
		return NotOurs
	}
	if !served && w.d.host.Load().owns(p.Flow.Dst) {
		return NotOurs
	}
	if p.ShortTransport() {
		return ShortHeader
	}
	if w.forged(p) {
		return ForgedSource
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
