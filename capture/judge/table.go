package judge

import (
	"slices"
	"time"

	"pktdirector/capture"
	"pktdirector/packet"
)

// table holds the connections, found by their client's end.
type table struct {
	byClient map[client]*conn
	byISN    map[uint32]*conn // of the latest SYNs, for FullNAT
	ring     []uint32         // the initial sequence numbers in byISN, oldest first
	ringAt   int
	all      []*conn // in order of their beginning
	limit    int
	dropped  uint64 // connections for which there was no room
	servers  map[serviceEnd]uint32
}

// serviceEnd is an end that SYNs were sent to.
type serviceEnd struct {
	end
	proto packet.Proto
}

const (
	// maxOlder is how many earlier connections of a client's port packets may
	// still belong to.
	maxOlder    = 8
	maxISN      = 4096
	maxServices = 4096
	// udpIdle is how long datagrams of one port may pause and be one connection.
	udpIdle = 300 * int64(time.Second)
	// window is how far sequence numbers of one connection's packets are from each
	// other, when nothing else says that they belong together.
	window = 1 << 26
	// pairTime is how far apart the two sights of one packet may be: clocks of two
	// captures, and queries for neighbours in between.
	pairTime = 5 * int64(time.Second)
)

func newTable(limit int) *table {
	return &table{byClient: map[client]*conn{}, byISN: map[uint32]*conn{}, servers: map[serviceEnd]uint32{}, limit: limit}
}

// add files a packet that has ports, and returns its connection and path, and
// whether it is a reply. Without room it returns nil.
func (t *table) add(s *segment, rec *capture.Record) (c *conn, way int, reply bool) {
	src := client{end{s.flow.Src, s.flow.SrcPort}, s.flow.Proto}
	dst := client{end{s.flow.Dst, s.flow.DstPort}, s.flow.Proto}
	switch start := s.flags & (packet.SYN | packet.ACK); {
	case s.flow.Proto == packet.TCP && start == packet.SYN:
		c, way = t.syn(src, dst.end, s, rec)
	case s.flow.Proto == packet.TCP && start == packet.SYN|packet.ACK:
		c, way = t.reply(dst, src.end, s, rec)
		reply = true
	default:
		c, way, reply = t.either(src, dst, s, rec)
	}
	if c == nil {
		return nil, none, false
	}
	c.last = max(c.last, rec.Time)
	p := &c.paths[way]
	if reply {
		if p.rep.packets == 0 {
			p.repSrc, p.repDst, p.repLink, p.repDir = rec.SrcMAC, rec.DstMAC, rec.Interface, rec.Direction
		}
		p.rep.add(s, rec, true)
		return c, way, true
	}
	p.req.add(s, rec, false)
	if s.flow.Proto != packet.TCP {
		c.datagrams[c.sent%maxDatagrams] = datagram{s.print, s.id}
		c.sent++
	}
	if s.flow.Proto == packet.TCP && s.flags&packet.RST == 0 {
		if next := s.seq + uint32(s.payload); !c.hasSeq || int32(next-c.seq) > 0 {
			c.seq, c.hasSeq = next, true
		}
	}
	return c, way, false
}

// either files a packet that does not say which end is the client's.
func (t *table) either(src, dst client, s *segment, rec *capture.Record) (*conn, int, bool) {
	for c := t.byClient[src]; c != nil; c = c.older {
		if c.near(s.seq, s, rec.Time) {
			for i := range c.paths {
				if c.paths[i].takes(dst.end, s, rec) {
					return c, i, false
				}
			}
		}
	}
	asReply := t.byClient[dst]
	for c := asReply; c != nil; c = c.older {
		if s.flow.Proto != packet.TCP && rec.Time-c.last > udpIdle {
			continue
		}
		if i := c.replyPath(src.end, s, rec); i >= 0 {
			return c, i, true
		}
	}
	// Nobody knows the way yet: a known connection takes another one, or replies
	// come from another address.
	for c := t.byClient[src]; c != nil; c = c.older {
		if c.sameAs(s, rec.Time) {
			if i := c.newPath(dst.end, s, rec); i >= 0 {
				return c, i, false
			}
		}
	}
	for c := asReply; c != nil; c = c.older {
		if c.answeredBy(s, rec.Time) {
			if i := c.newReplyPath(src.end, s, rec); i >= 0 {
				return c, i, true
			}
		}
	}
	if t.fromServer(src, dst) {
		c := t.begin(dst, s, rec)
		if c == nil {
			return nil, none, true
		}
		return c, c.newReplyPath(src.end, s, rec), true
	}
	c := t.begin(src, s, rec)
	if c == nil {
		return nil, none, false
	}
	return c, c.newPath(dst.end, s, rec), false
}

// fromServer guesses whether the first packet seen of a conversation is a reply.
func (t *table) fromServer(src, dst client) bool {
	_, from := t.servers[serviceEnd(src)]
	_, to := t.servers[serviceEnd(dst)]
	if from != to {
		return from
	}
	const wellKnown = 1024
	if src.proto != packet.TCP {
		return src.port < wellKnown && dst.port >= wellKnown
	}
	return src.port < dst.port
}

// near reports whether a sequence number may be of this connection.
func (c *conn) near(seq uint32, s *segment, now int64) bool {
	if s.flow.Proto != packet.TCP {
		return now-c.last <= udpIdle
	}
	d := int32(seq - c.seq)
	return !c.hasSeq || d > -window && d < window || s.flags&packet.RST != 0 && seq == 0
}

// sameAs reports whether a client's packet belongs to c, though it goes
// elsewhere: it continues c, or is a datagram seen before.
func (c *conn) sameAs(s *segment, now int64) bool {
	if abs(now-c.last) > pairTime && s.flow.Proto != packet.TCP {
		return false
	}
	if s.flow.Proto != packet.TCP {
		return slices.Contains(c.datagrams[:], datagram{s.print, s.id})
	}
	return c.hasSeq && c.near(s.seq, s, now)
}

// answeredBy reports whether a reply from an end that nothing was sent to
// belongs to c.
func (c *conn) answeredBy(s *segment, now int64) bool {
	if s.flow.Proto != packet.TCP {
		return abs(now-c.last) <= pairTime
	}
	if s.flags&packet.ACK == 0 {
		return abs(now-c.last) <= pairTime
	}
	d := int32(s.ack - c.seq)
	return c.hasSeq && d > -window && d < window
}

func abs(d int64) int64 { return max(d, -d) }

// replyPath finds the way whose replies come from r.
func (c *conn) replyPath(r end, s *segment, rec *capture.Record) int {
	best := none
	for i := range c.paths {
		p := &c.paths[i]
		if p.remote != r {
			continue
		}
		if s.flow.Proto == packet.TCP && s.flags&packet.ACK != 0 && c.hasSeq && len(c.paths) > 0 {
			if d := int32(s.ack - c.seq); d <= -window || d >= window {
				continue
			}
		}
		switch {
		case p.rep.packets > 0 && p.repSrc == rec.SrcMAC && p.repLink == rec.Interface:
			return i
		case !p.dst.IsZero() && p.dst == rec.SrcMAC: // from where the requests went
			best = i
		case best == none:
			best = i
		}
	}
	return best
}

// syn files a client's SYN: its initial sequence number says which connection it
// is, wherever it goes.
func (t *table) syn(from client, to end, s *segment, rec *capture.Record) (*conn, int) {
	if len(t.servers) < maxServices {
		t.servers[serviceEnd{to, from.proto}]++
	}
	for c := t.byClient[from]; c != nil; c = c.older {
		if !c.hasISN {
			if c.adopts(s, rec.Time) {
				c.isn, c.hasISN = s.seq, true
			} else {
				continue
			}
		}
		if c.isn != s.seq {
			continue
		}
		c.loop(to, rec)
		for i := range c.paths {
			if c.paths[i].takes(to, s, rec) {
				return c, i
			}
		}
		if i := c.newPath(to, s, rec); i >= 0 {
			return c, i
		}
	}
	c := t.begin(from, s, rec)
	if c == nil {
		return nil, none
	}
	c.isn, c.hasISN = s.seq, true
	c.seq, c.hasSeq = s.seq, true
	if other := t.byISN[s.seq]; other != nil && other.client != from && abs(rec.Time-other.first) <= pairTime && other.paths[0].remote != to {
		c.alias = other
	}
	t.remember(c)
	return c, c.newPath(to, s, rec)
}

// loop notes a SYN that comes from the machine that it was sent on to.
func (c *conn) loop(to end, rec *capture.Record) {
	if !rec.HasSrc || c.looped.Number > 0 {
		return
	}
	for i := range c.paths {
		p := &c.paths[i]
		if p.remote == to && p.ttl != 0 && p.tunnel == notTunnelled && p.dst == rec.SrcMAC && slices.ContainsFunc(c.paths, func(q path) bool { return q.dst == p.src && q.remote == to }) {
			c.looped = Ref{rec.File, rec.Number}
		}
	}
}

// adopts reports whether a connection that was seen by its replies first, as files
// of two clocks have it, began with this SYN.
func (c *conn) adopts(s *segment, now int64) bool {
	for i := range c.paths {
		h := &c.paths[i].rep
		if h.hasAck && h.syns > 0 && h.acked-1 == s.seq && abs(now-c.first) <= pairTime {
			return true
		}
	}
	return false
}

func (t *table) remember(c *conn) {
	if len(t.ring) < maxISN {
		t.ring = append(t.ring, c.isn)
	} else {
		delete(t.byISN, t.ring[t.ringAt])
		t.ring[t.ringAt] = c.isn
		t.ringAt = (t.ringAt + 1) % maxISN
	}
	if t.byISN[c.isn] == nil {
		t.byISN[c.isn] = c
	}
}

// reply files a SYN-ACK.
func (t *table) reply(to client, from end, s *segment, rec *capture.Record) (*conn, int) {
	if len(t.servers) < maxServices {
		t.servers[serviceEnd{from, to.proto}]++
	}
	for c := t.byClient[to]; c != nil; c = c.older {
		if c.hasISN && c.isn != s.ack-1 || !c.hasISN && c.hasSeq && int32(s.ack-c.seq) > window {
			continue
		}
		if i := c.replyPath(from, s, rec); i >= 0 {
			return c, i
		}
		if i := c.newReplyPath(from, s, rec); i >= 0 {
			return c, i
		}
	}
	c := t.begin(to, s, rec)
	if c == nil {
		return nil, none
	}
	return c, c.newReplyPath(from, s, rec)
}

// begin makes a connection, if there is room.
func (t *table) begin(from client, s *segment, rec *capture.Record) *conn {
	if len(t.all) >= t.limit {
		t.dropped++
		return nil
	}
	c := &conn{client: from, first: rec.Time, last: rec.Time, start: Ref{rec.File, rec.Number}, order: uint64(len(t.all)), in: none, out: none, direct: none}
	c.older = t.byClient[from]
	t.byClient[from] = c
	for n, o := 0, c; o != nil; n, o = n+1, o.older {
		if n == maxOlder {
			o.older = nil
		}
	}
	t.all = append(t.all, c)
	return c
}

func (c *conn) newPath(r end, s *segment, rec *capture.Record) int {
	// A way that only replies were seen on may turn out to be this one.
	for i := range c.paths {
		if p := &c.paths[i]; p.remote == r && p.ttl == 0 && s.tunnel == notTunnelled && (!rec.HasDst || p.repSrc.IsZero() || p.repSrc == rec.DstMAC) {
			p.meet(s, rec)
			return i
		}
	}
	if len(c.paths) == maxPaths {
		return none
	}
	p := path{remote: r}
	p.meet(s, rec)
	c.paths = append(c.paths, p)
	return len(c.paths) - 1
}

// meet notes how the client's first packet went this way.
func (p *path) meet(s *segment, rec *capture.Record) {
	p.tunnel, p.outerSrc, p.outerDst = s.tunnel, s.outerSrc, s.outerDst
	p.link, p.dir, p.ttl = rec.Interface, rec.Direction, max(1, s.ttl)
	if rec.HasSrc {
		p.src = rec.SrcMAC
	}
	if rec.HasDst {
		p.dst = rec.DstMAC
	}
}

func (c *conn) newReplyPath(r end, s *segment, rec *capture.Record) int {
	if len(c.paths) == maxPaths {
		return none
	}
	c.paths = append(c.paths, path{remote: r, link: rec.Interface, dir: rec.Direction})
	return len(c.paths) - 1
}
