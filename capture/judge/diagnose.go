package judge

import (
	"time"

	"pktdirector/capture"
	"pktdirector/packet"
)

const (
	// patience is how long a single SYN is given to be answered before the capture
	// ends. A client sends it again after 1 s (RFC 6298 section 2).
	patience = 1500 * int64(time.Millisecond)
	// prompt is how long a handshake is given at least, and hops how many times the longest
	// of the others, before its server seems to refuse it.
	prompt = 200 * int64(time.Millisecond)
	hops   = 5
	// stuck is how often a segment is sent again until nobody can say that one was
	// lost by chance.
	stuck = 3
	// large is the least IPv4 packet in bytes that every host takes (RFC 791 section
	// 3.2): what is not larger does not vanish for its size.
	large = 576
)

// sight is a connection's two directions, as far as they were seen.
type sight struct {
	syns       uint32 // of the client, the most seen on one way
	synack     bool
	progress   bool // the client went on after its SYN
	reset      *half
	resetPath  *path
	clientRST  *half
	replies    uint32
	in, out    *path
	clientData bool
}

func (c *conn) sight() sight {
	var v sight
	if c.in != none {
		v.in = &c.paths[c.in]
	}
	if c.out != none {
		v.out = &c.paths[c.out]
	}
	for i := range c.paths {
		p := &c.paths[i]
		if i == c.direct {
			if p.req.rst {
				v.clientRST = &p.req
			}
			continue
		}
		v.syns = max(v.syns, p.req.syns)
		v.synack = v.synack || p.rep.syns > 0
		v.replies += p.rep.packets
		// A client that has a connection acknowledges the SYN-ACK.
		if p.req.payloads > 0 || p.req.fin || p.req.hasAck && !(p.req.rst && p.req.packets <= p.req.syns+1) {
			v.progress = true
		}
		v.clientData = v.clientData || p.req.payloads > 0
		if p.rep.rst && (v.reset == nil || i == c.out) {
			v.reset, v.resetPath = &p.rep, p
		}
		if p.req.rst && v.clientRST == nil {
			v.clientRST = &p.req
		}
	}
	return v
}

// diagnose says what is wrong with a connection, if anything, by its code.
func (f *inference) diagnose(c *conn) Code {
	if c.client.proto != packet.TCP {
		return f.diagnoseDatagrams(c)
	}
	v := c.sight()
	if c.hasISN && !v.progress {
		return f.noHandshake(c, &v)
	}
	if c.hasISN && f.masquerades(c) && v.replies == 0 && f.repliesSeen() {
		return ReplyBypass
	}
	return f.broken(c, &v)
}

// masquerades reports whether replies to c have to pass the director.
func (f *inference) masquerades(c *conn) bool {
	switch c.kind {
	case natMode, fullnatMode:
		return true
	case "", unknownMode:
		return f.mode == natMode || f.mode == fullnatMode
	}
	return false
}

// repliesSeen reports whether the capture shows replies at all: one taken with a
// filter on one direction does not.
func (f *inference) repliesSeen() bool { return f.replies > 0 }

// noHandshake is about a connection whose client got no further than its SYN.
func (f *inference) noHandshake(c *conn, v *sight) Code {
	refused := v.clientRST != nil && v.clientRST.rstSeq == c.isn+1
	switch {
	case v.reset != nil && !v.synack:
		if c.out == none && f.pairs > 0 {
			return NoService
		}
		return ServerReset
	case c.direct != none && !f.masquerades(c) || f.answeredElse(c, v):
		return WrongAddress
	case c.direct != none || refused && !v.synack && f.masquerades(c) && f.repliesSeen():
		return ReplyBypass
	case refused && !v.synack:
		return "" // a client that looks whether a port is open, and was answered past the capture
	}
	if e := c.unreachable(); e != nil && !v.synack {
		switch {
		case c.out == none && e.portUnreachable() && e.from == c.service.addr:
			return NoServer
		case c.out == none && f.unresolved(c) != nil:
			return ServerNoARP
		default:
			return ServerICMP
		}
	}
	waited := f.last - c.first
	if v.syns < 2 && waited < patience {
		if c.out != none && !f.masquerades(c) && !v.synack && f.handshake > 0 && waited > max(prompt, hops*f.handshake) {
			return ServerReset // the others were through long ago; see resetCounts
		}
		return "" // the capture ends too early to say
	}
	if v.synack {
		switch {
		case v.syns < 2 && refused:
			return "" // a client that looks whether a port is open
		case f.viaDirector(c):
			return ReplyViaDirector
		case v.in != nil && v.out != nil && f.masquerades(c) && v.out.rep.syns > 0 && v.in.rep.syns == 0:
			return ReplyNotForwarded
		case v.syns > 1 && f.latestReply(c).syns > 0:
			return SYNACKUnanswered
		}
		return "" // who asks once and wants no answer looks for open ports, or floods
	}
	if c.out == none {
		switch {
		case f.unresolved(c) != nil:
			return ServerNoARP
		case v.syns < 2:
			return "" // one that was not sent again: its client went away
		case f.pairs > 0:
			return NotForwarded
		}
		return Unanswered
	}
	return f.noReply(c, v)
}

// noReply is about a SYN that was sent on and that nothing answers.
func (f *inference) noReply(c *conn, v *sight) Code {
	if f.masquerades(c) {
		switch {
		case v.syns < 2 && f.last-c.first < 2*patience:
			return ""
		case f.otherGateway(c) != nil:
			return ReplyBypass
		case f.unresolved(c) != nil:
			return ServerNoARP
		case v.syns < 2:
			return "" // a client that hears nothing asks again: it went away, or SYNs alone are not all
		}
		return ServerSilent
	}
	// A machine that is gone would not be found by ARP any more, or a router would
	// tell: who hears a SYN and keeps silent does not take it for its own.
	switch {
	case f.loops(c):
		return VIPMissing
	case v.syns < 2:
		return ServerReset // beside the director: a client that hears nothing asks again
	case f.unresolved(c) != nil:
		return ServerNoARP
	case f.good[c.server] > 0:
		return ServerSilent
	}
	return VIPMissing
}

// unreachable returns an ICMP error that tells the client's packets are not taken.
func (c *conn) unreachable() *icmpError {
	for i := range c.icmp {
		if e := &c.icmp[i]; !e.ofReply && e.unreachable() {
			return e
		}
	}
	return nil
}

// answeredElse reports whether a connection was answered by an end that it was not
// sent to, and by no other.
func (f *inference) answeredElse(c *conn, v *sight) bool {
	return c.stranger() != nil && (v.in == nil || v.in.rep.packets == 0) && (v.out == nil || v.out.rep.packets == 0)
}

// stranger returns the way of replies from an end that no request of a connection
// went to.
func (c *conn) stranger() *path {
	for i := range c.paths[:c.own()] {
		p := &c.paths[i]
		if i != c.in && i != c.out && i != c.direct && p.ttl == 0 && p.rep.packets > 0 &&
			p.remote.addr != c.service.addr && p.remote.addr != c.server.addr {
			return p
		}
	}
	return nil
}

func (f *inference) latestReply(c *conn) *half {
	best := &half{}
	for i := range c.paths {
		if h := &c.paths[i].rep; h.syns > best.syns {
			best = h
		}
	}
	return best
}

// viaDirector reports whether a server that should answer the client itself sends
// its replies to the director.
func (f *inference) viaDirector(c *conn) bool {
	if c.out == none || c.kind != drMode && c.kind != tunMode {
		return false
	}
	for i := range c.paths {
		if p := &c.paths[i]; p.rep.packets > 0 && p.repDir == capture.Incoming && p.repDst.IsZero() {
			return true
		}
	}
	p := &c.paths[c.out]
	return p.rep.packets > 0 && p.repSrc != p.src && f.own[p.repDst]
}

// loops reports whether a server sends the client's packets back to the director.
func (f *inference) loops(c *conn) bool {
	if c.out == none {
		return false
	}
	if c.looped.Number > 0 {
		return true
	}
	out := &c.paths[c.out]
	for i := range c.paths {
		if p := &c.paths[i]; i != c.in && i != c.out && p.ttl != 0 && p.ttl < out.ttl && !p.src.IsZero() && p.src == out.dst {
			return true
		}
	}
	return false
}

// unresolved returns the director's unanswered questions for the address of the
// server that a connection was, or would have been, sent to.
func (f *inference) unresolved(c *conn) *asked {
	var best *asked
	for _, q := range f.unheard {
		if c.out != none && q.target != c.server.addr {
			continue
		}
		if q.target == c.client.addr || q.lastAt < c.first-pairTime || q.firstAt > c.last+pairTime || f.vipAddr[q.target] > 0 {
			continue
		}
		if best == nil || q.n > best.n || q.n == best.n && q.target.Less(best.target) {
			best = q
		}
	}
	return best
}

// otherGateway returns the question of a masqueraded server for another machine
// than the director, when it should have answered: for its gateway, or for the
// client itself.
func (f *inference) otherGateway(c *conn) *asked {
	for _, q := range f.bySender[c.server.addr] {
		if q.lastAt < c.first {
			continue
		}
		mine := false
		for _, cl := range f.neigh.claims[q.target] {
			mine = mine || f.own[cl.mac]
		}
		if !mine {
			return q
		}
	}
	return nil
}

// broken is about a connection that began, or was there before the capture.
func (f *inference) broken(c *conn, v *sight) Code {
	if code := f.stalled(c, v); code != "" {
		return code
	}
	if f.viaDirector(c) {
		return ReplyViaDirector
	}
	if v.reset == nil {
		return ""
	}
	fin, data := false, false
	for i := range c.paths {
		p := &c.paths[i]
		fin = fin || p.req.fin || p.rep.fin
		data = data || p.rep.payloads > 0
	}
	switch {
	case fin:
	case v.in != nil && v.resetPath == v.in && f.pairs > 0 && (v.out == nil || !v.out.rep.rst) && (v.in.repSrc == v.in.dst || f.own[v.in.repSrc] || v.in.repDir == capture.Outgoing):
		return DirectorReset
	case v.in != nil && v.resetPath == v.in && c.kind != natMode && c.kind != fullnatMode && f.mode != natMode && f.mode != fullnatMode && v.in.rep.payloads == 0 && v.in.rep.syns == 0:
		return DirectorReset // where servers answer past the director, who answers is the director
	case v.in != nil && v.out == nil && f.pairs > 0 && v.resetPath == v.in:
		return DirectorReset
	case c.hasISN && v.clientData && !data && !fin:
		return ServerMidReset
	}
	return ""
}

// stalled tells data that is sent again and again and never acknowledged.
func (f *inference) stalled(c *conn, v *sight) Code {
	h, _ := c.stalled()
	if h == nil {
		return ""
	}
	if h.againSize <= large {
		return DataUnanswered
	}
	for i := range c.icmp {
		if e := &c.icmp[i]; e.fragNeeded() {
			return MTUIgnored
		}
	}
	return MTUBlackHole
}

// stalled returns the direction in which a segment is sent again until the end,
// and whether it is the server's.
func (c *conn) stalled() (*half, bool) {
	for _, i := range []int{c.in, c.out} {
		if i == none {
			continue
		}
		p := &c.paths[i]
		if p.req.isStuck(&p.rep) {
			return &p.req, false
		}
		if p.rep.isStuck(&p.req) {
			return &p.rep, true
		}
	}
	return nil, false
}

// isStuck reports whether h sent one segment again until it gave up, and the other
// direction, as far as it was seen, never acknowledged it.
func (h *half) isStuck(back *half) bool {
	if h.repeats < stuck {
		return false
	}
	if back.hasAck && int32(back.acked-h.again) > 0 {
		return false
	}
	// Where answers go past the capture, they are known by who acknowledges them.
	if back.packets == 0 && h.hasAck && int32(h.acked-h.repeatAck) > 0 {
		return false
	}
	// Whoever sends new data afterwards was heard.
	return h.lastAt-h.repeated < 2*int64(time.Second) || h.rst || h.fin
}

// diagnoseDatagrams is about UDP and SCTP: whether somebody answers is known only
// by comparison.
func (f *inference) diagnoseDatagrams(c *conn) Code {
	if e := c.unreachable(); e != nil {
		switch {
		case c.out == none && f.pairs > 0 && e.from == c.service.addr:
			return NoServer
		case c.out == none && f.unresolved(c) != nil:
			return ServerNoARP
		}
		return ServerICMP
	}
	v := c.sight()
	if f.answeredElse(c, &v) {
		return WrongAddress
	}
	if v.replies == 0 && c.out != none && f.masquerades(c) {
		if f.otherGateway(c) != nil && f.last-c.first > patience {
			return ReplyBypass
		}
		if f.answersUDP[c.service] > f.servers[c.service][c.server] && f.silentUDP[c.server] >= stuck && f.goodUDP[c.server] == 0 {
			return ServerSilent
		}
	}
	if c.out == none && v.replies == 0 && f.unresolved(c) != nil {
		return ServerNoARP
	}
	return ""
}
