package judge

import (
	"fmt"
	"time"

	"pktdirector/capture"
	"pktdirector/packet"
)

// Ref names a packet of the capture: the file, counted from 0, and the packet's
// number there, counted from 1 as Wireshark does.
type Ref struct {
	File   int
	Number uint64
}

// end is an address with a port.
type end struct {
	addr packet.Addr
	port uint16
}

func (e end) String() string { return packet.Endpoint(e.addr, e.port) }

// client is one end of conversations, what the table is keyed by.
type client struct {
	end
	proto packet.Proto
}

// conn is one connection of a client: a TCP connection, or the datagrams of one
// port. Later connections of the port are others.
type conn struct {
	client      client
	isn         uint32 // of the client's SYN
	hasISN      bool
	seq         uint32 // the client's latest sequence number
	hasSeq      bool
	datagrams   [maxDatagrams]datagram // the client's latest ones
	sent        uint8                  // where the next of them goes
	first, last int64                  // ns
	start       Ref
	paths       []path
	older       *conn // of the same client port
	alias       *conn // FullNAT: the connection that this one is the other side of
	icmp        []icmpError
	order       uint64 // counts connections
	mine        int    // of the paths, how many are the connection's own; 0: all
	looped      Ref    // a SYN that came back from where it was sent on to
	routed      bool   // passed on, not balanced

	// What infer.go makes of the paths: indices, or none.
	in, out   int
	direct    int
	kind      mode
	service   end // as the client sees it
	server    end
	serverMAC packet.MAC
	listed    bool
}

const none = -1

// maxDatagrams is how many datagrams of a client may be under way: the two sights of
// one are so far apart at most.
const maxDatagrams = 4

// datagram is what tells a datagram from others.
type datagram struct {
	print uint32
	id    uint16 // IPv4
}

// maxPaths bounds the ways a connection is seen in. A one-packet service's
// datagrams may take as many as it has servers.
const maxPaths = 8

// path is one way in which a connection was seen: to one remote end, in one
// tunnel, to one MAC.
type path struct {
	remote             end
	tunnel             tunnelKind
	outerSrc, outerDst packet.Addr
	link               *capture.Interface
	dir                capture.Direction
	src, dst           packet.MAC // of the client's packets; zero: not known
	ttl                uint8      // of the client's first packet; 0: none was seen
	req, rep           half
	repSrc, repDst     packet.MAC // of replies
	repLink            *capture.Interface
	repDir             capture.Direction
}

// half is one direction of a path.
type half struct {
	packets, payloads uint32
	syns              uint32 // SYN, or SYN-ACK of replies, repeats included
	fin, rst          bool
	reset, syn        Ref // the first RST and SYN
	lastSyn           Ref
	synAt, lastSynAt  int64
	resetAt           int64
	finAt             int64
	firstData         Ref
	firstAt, lastAt   int64
	ackAt             int64 // of the first acknowledgement
	lastRef           Ref
	maxSeq            uint32 // end of the furthest payload
	hasSeq            bool
	acked             uint32 // highest acknowledgement
	hasAck            bool
	rstAck            bool
	rstSeq            uint32

	// The segment sent again and again, as far as there is one.
	again     uint32
	againSize int
	repeats   uint32
	repeated  int64 // when, the last time
	repeatRef Ref
	repeatAck uint32 // what the repetition acknowledged
}

// icmpError is an ICMP error about a connection.
type icmpError struct {
	ref        Ref
	at         int64
	from       packet.Addr
	kind, code uint8
	v6         bool
	mtu        int
	remote     end  // the quoted packet's other end
	ofReply    bool // the quoted packet was the server's
	count      uint32
}

const maxICMP = 4

// String describes the error in words.
func (e *icmpError) String() string {
	name := fmt.Sprintf("ICMP %d/%d", e.kind, e.code)
	if e.v6 {
		name = fmt.Sprintf("ICMPv6 %d/%d", e.kind, e.code)
	}
	if e.fragNeeded() {
		return fmt.Sprintf("%s (too big, MTU %d)", name, e.mtu)
	}
	if why := e.words(); why != "" {
		return name + " (" + why + ")"
	}
	return name
}

func (e *icmpError) words() string {
	if e.v6 {
		switch {
		case e.kind == 1 && e.code == 4:
			return "port unreachable"
		case e.kind == 1 && e.code == 3:
			return "address unreachable"
		case e.kind == 1:
			return "unreachable"
		case e.kind == 3:
			return "time exceeded"
		case e.noProtocol():
			return "unrecognized next header"
		}
		return ""
	}
	switch {
	case e.kind == 11:
		return "time exceeded"
	case e.kind != 3:
		return ""
	case e.code == 0:
		return "network unreachable"
	case e.code == 1:
		return "host unreachable"
	case e.code == 2:
		return "protocol unreachable"
	case e.code == 3:
		return "port unreachable"
	case e.code == 9 || e.code == 10 || e.code == 13:
		return "administratively prohibited"
	}
	return "unreachable"
}

func (e *icmpError) fragNeeded() bool {
	return e.v6 && e.kind == 2 || !e.v6 && e.kind == 3 && e.code == 4
}

func (e *icmpError) unreachable() bool {
	return e.v6 && e.kind == 1 || !e.v6 && e.kind == 3 && e.code != 4 || e.noProtocol()
}

// noProtocol reports whether nobody takes the protocol: IPv6 has a parameter problem
// then (RFC 4443 section 3.4).
func (e *icmpError) noProtocol() bool {
	return e.v6 && e.kind == 4 && e.code == 1 || !e.v6 && e.kind == 3 && e.code == 2
}

func (e *icmpError) portUnreachable() bool {
	return e.v6 && e.kind == 1 && e.code == 4 || !e.v6 && e.kind == 3 && e.code == 3
}

// takes reports whether a packet of the client's goes this way.
func (p *path) takes(r end, s *segment, rec *capture.Record) bool {
	if p.remote != r || p.tunnel != s.tunnel || p.outerDst != s.outerDst || p.ttl == 0 {
		return false
	}
	if rec.HasDst != !p.dst.IsZero() {
		return false
	}
	if rec.HasDst {
		return p.dst == rec.DstMAC
	}
	return p.dir == rec.Direction && (p.dir != capture.DirectionUnknown || p.link == rec.Interface)
}

// again is how much later a segment is one sent again, and not the same one
// captured twice.
const resend = 100 * int64(time.Millisecond)

// synGap is how much later a SYN is one sent again.
const synGap = 300 * int64(time.Millisecond)

// add files one packet of this direction.
func (h *half) add(s *segment, rec *capture.Record, reply bool) {
	ref := Ref{rec.File, rec.Number}
	if h.packets == 0 {
		h.firstAt = rec.Time
	}
	h.packets++
	h.lastAt, h.lastRef = rec.Time, ref
	if s.payload > 0 {
		if h.payloads == 0 {
			h.firstData = ref
		}
		h.payloads++
	}
	if s.flow.Proto != packet.TCP {
		return
	}
	if s.flags&packet.SYN != 0 && (s.flags&packet.ACK != 0) == reply {
		switch {
		case h.syns == 0:
			h.syn, h.synAt, h.syns = ref, rec.Time, 1
			h.lastSyn, h.lastSynAt = ref, rec.Time
		case rec.Time-h.lastSynAt >= synGap:
			h.syns++
			h.lastSyn, h.lastSynAt = ref, rec.Time
		}
	}
	if s.flags&packet.FIN != 0 {
		if !h.fin {
			h.fin, h.finAt = true, rec.Time
		}
	}
	if s.flags&packet.RST != 0 && !h.rst {
		h.rst, h.reset, h.resetAt = true, ref, rec.Time
		h.rstSeq, h.rstAck = s.seq, s.flags&packet.ACK != 0
	}
	if s.flags&packet.ACK != 0 && (!h.hasAck || int32(s.ack-h.acked) > 0) {
		if !h.hasAck {
			h.ackAt = rec.Time
		}
		h.acked, h.hasAck = s.ack, true
	}
	// A single byte looks for room in a closed window, or whether the other end is
	// there still (RFC 9293 sections 3.8.4 and 3.8.6.1).
	if s.payload > 1 {
		h.resent(s, rec.Time, ref)
	}
}

// resent follows which segment is sent again. Progress ends it: another one sent
// again, or a new segment beyond all that was sent before. Of those a window leaves at
// once, but no more once one was sent again a few times (RFC 5681 section 3.1).
func (h *half) resent(s *segment, now int64, ref Ref) {
	next := s.seq + uint32(s.payload)
	if !h.hasSeq || int32(next-h.maxSeq) > 0 {
		if !h.hasSeq || int32(s.seq-h.maxSeq) >= 0 {
			h.maxSeq, h.hasSeq = next, true
			if h.repeats >= stuck {
				h.repeats = 0
			}
			if h.repeats == 0 {
				h.repeated = now
			}
			return
		}
		h.maxSeq = next
	}
	switch {
	case h.repeats == 0 || s.seq != h.again:
		h.again, h.againSize, h.repeats, h.repeated, h.repeatRef, h.repeatAck = s.seq, s.length, 1, now, ref, s.ack
	case now-h.repeated >= resend:
		h.repeats++
		h.againSize, h.repeated, h.repeatRef, h.repeatAck = max(h.againSize, s.length), now, ref, s.ack
	}
}
