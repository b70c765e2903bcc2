package dataplane

import (
	"encoding/binary"
	"time"

	"pktdirector/conntrack"
	"pktdirector/packet"
)

// ICMP types and codes the engine uses (RFC 792, RFC 1191, RFC 4443).
const (
	icmpEchoReply    = 0
	icmpUnreachable  = 3
	icmpSourceQuench = 4
	icmpEcho         = 8
	icmpExceeded     = 11
	icmpHost         = 1 // code of icmpUnreachable
	icmpProtocol     = 2 // code of icmpUnreachable
	icmpPort         = 3 // code of icmpUnreachable
	icmpFragNeeded   = 4 // code of icmpUnreachable

	icmp6Unreachable = 1
	icmp6TooBig      = 2
	icmp6Exceeded    = 3
	icmp6Parameter   = 4
	icmp6NextHeader  = 1 // code of icmp6Parameter; its value is the header field's offset
	ipv6NextHeader   = 6
	icmp6Address     = 3 // code of icmp6Unreachable
	icmp6Port        = 4 // code of icmp6Unreachable
	icmp6Echo        = 128
	icmp6EchoReply   = 129

	icmpHeaderLen = 8

	// errorTOS is the precedence of ICMP errors (RFC 1812 section 4.3.2.5).
	errorTOS = 0xc0
	// errorTTL is the TTL of everything the engine sends itself.
	errorTTL = 64
	// maxError is the length of the longest IPv4 ICMP error (RFC 1812
	// section 4.3.2.3).
	maxError = 576
)

// icmpIn answers pings of VIPs and neighbour discovery, and passes errors about
// connections on.
func (w *Worker) icmpIn(p *packet.Packet) Verdict {
	if p.Frag != packet.Whole || p.End-p.L4 < icmpHeaderLen {
		return NotOurs
	}
	kind := p.Buf[p.L4]
	v6 := p.Flow.Proto == packet.ICMPv6
	// Neighbour discovery never comes in fragments (RFC 6980).
	if v6 && (kind == ndSolicitation || kind == ndAdvertisement) && p.Assembled == nil {
		return w.neighbourDiscovery(p)
	}
	own := p.Class == packet.ToUs && w.d.serves(p.Flow.Dst)
	if own && w.forged(p) {
		return ForgedSource
	}
	if isICMPError(kind, v6) && p.Class == packet.ToUs {
		if v := w.related(p); v != NotOurs {
			return v
		}
	}
	if !own {
		return NotOurs
	}
	switch {
	case !v6 && kind == icmpEcho:
		return w.echo(p, icmpEchoReply)
	case v6 && kind == icmp6Echo:
		return w.echo(p, icmp6EchoReply)
	}
	return ICMPIgnored
}

// echo turns an echo request into its reply, in place. As in a host, one with a
// wrong checksum is not answered.
func (w *Worker) echo(p *packet.Packet, replyType byte) Verdict {
	if !p.ICMPChecksumOK() {
		return BadChecksum
	}
	h, ok := w.nextHop(p.Flow.Src, p)
	if !ok {
		return NoRoute
	}
	b := p.Buf[p.L3:]
	if p.EtherType == packet.EtherIPv4 {
		p.Flow.Dst.Put4(b[12:])
		p.Flow.Src.Put4(b[16:])
		b[8] = errorTTL
		// A packet of the director's own: no don't-fragment, an id of its own.
		b[6] &^= 0x40
		binary.BigEndian.PutUint16(b[4:], uint16(w.d.ipID.Add(1)))
		packet.PutIPv4Checksum(p.Buf[p.L3:p.L4])
	} else {
		p.Flow.Dst.Put16(b[8:])
		p.Flow.Src.Put16(b[24:])
		b[7] = errorTTL
	}
	p.Flow = p.Flow.Reverse()
	p.Buf[p.L4] = replyType
	p.PutICMPChecksum()
	return w.answerInPieces(p, h, AnsweredEcho)
}

// refuse tells the sender of p that nobody serves the port.
func (w *Worker) refuse(p *packet.Packet) {
	w.icmpError(p, p.Flow.Dst, p.Flow.Src, icmpUnreachable, icmpPort, icmp6Unreachable, icmp6Port, 0)
}

// refuseProtocol tells the sender of p that nobody here speaks its protocol.
func (w *Worker) refuseProtocol(p *packet.Packet) {
	var pointer uint32 // only IPv6 says where the protocol stands
	if !p.Flow.Dst.Is4() {
		pointer = ipv6NextHeader
	}
	w.icmpError(p, p.Flow.Dst, p.Flow.Src, icmpUnreachable, icmpProtocol, icmp6Parameter, icmp6NextHeader, pointer)
}

// timeExceeded tells the sender of a connection's packet that its TTL is used
// up. The VIP speaks, to the client; to a real server the director itself.
func (w *Worker) timeExceeded(p *packet.Packet, c *conntrack.Conn, dir conntrack.Direction) {
	w.icmpError(p, w.speaker(p, c, dir), p.Flow.Src, icmpExceeded, 0, icmp6Exceeded, 0, 0)
}

// tooBig tells the sender the largest packet that passes.
func (w *Worker) tooBig(p *packet.Packet, c *conntrack.Conn, dir conntrack.Direction, mtu int) {
	if !p.Flow.Src.Is4() {
		mtu = max(mtu, 1280) // RFC 8200 section 5
	}
	w.icmpError(p, w.speaker(p, c, dir), p.Flow.Src, icmpUnreachable, icmpFragNeeded, icmp6TooBig, 0, uint32(max(mtu, 68)))
}

// speaker is the address an error about a connection's packet comes from.
func (w *Worker) speaker(p *packet.Packet, c *conntrack.Conn, dir conntrack.Direction) packet.Addr {
	if dir == conntrack.Request {
		return c.Virtual
	}
	if h, ok := w.nextHop(p.Flow.Src, p); ok {
		if own := w.source(&h); own.IsValid() {
			return own
		}
	}
	return c.Virtual
}

// icmpError sends an ICMP error that quotes p as it stands. Errors are rate
// limited together with resets. There is never one about ICMP: what the director
// forwards of that are errors themselves (RFC 1122 section 3.2.2).
func (w *Worker) icmpError(p *packet.Packet, from, to packet.Addr, kind, code, kind6, code6 byte, value uint32) {
	if isICMP(p) {
		return
	}
	h, ok := w.nextHop(to, p)
	if !ok || !w.icmp.take(w.now) {
		return
	}
	v6 := p.EtherType == packet.EtherIPv6
	room := maxError - packet.IPv4HeaderLen - icmpHeaderLen
	if v6 {
		room = maxMade - packet.IPv6HeaderLen - icmpHeaderLen
	}
	quote := p.Buf[p.L3:min(p.End, p.L3+room)]
	var e *packet.Packet
	if v6 {
		e = w.makeIPv6(from, to, packet.ICMPv6, icmpHeaderLen+len(quote), errorTTL)
		kind, code = kind6, code6
	} else {
		e = w.makeIPv4(from, to, packet.ICMP, icmpHeaderLen+len(quote))
		e.Buf[e.L3+1] = errorTOS
		binary.BigEndian.PutUint16(e.Buf[e.L3+4:], uint16(w.d.ipID.Add(1)))
		packet.PutIPv4Checksum(e.Buf[e.L3:e.L4])
	}
	b := e.Buf[e.L4:e.End]
	b[0], b[1] = kind, code
	binary.BigEndian.PutUint32(b[4:], value)
	copy(b[icmpHeaderLen:], quote)
	if v6 {
		sumICMPv6(e)
	} else {
		binary.BigEndian.PutUint16(b[2:], ^packet.Fold(packet.Sum(b, 0)))
	}
	e.Tagged, e.VLAN, e.VLANType = p.Tagged, p.VLAN, p.VLANType
	w.send(e, h, pending)
}

// makeIPv4 returns a packet of the engine's own with an IPv4 header and n zero
// bytes behind it.
func (w *Worker) makeIPv4(src, dst packet.Addr, proto packet.Proto, n int) *packet.Packet {
	p := w.make(packet.IPv4HeaderLen+n, packet.EtherIPv4)
	p.L4 = p.L3 + packet.IPv4HeaderLen
	p.Flow = packet.Flow{Src: src, Dst: dst, Proto: proto}
	b := p.Bytes()
	b[0] = 4<<4 | packet.IPv4HeaderLen/4
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	b[8], b[9] = errorTTL, byte(proto)
	src.Put4(b[12:])
	dst.Put4(b[16:])
	packet.PutIPv4Checksum(b[:packet.IPv4HeaderLen])
	return p
}

// makeIPv6 is makeIPv4 for IPv6.
func (w *Worker) makeIPv6(src, dst packet.Addr, proto packet.Proto, n int, hopLimit byte) *packet.Packet {
	p := w.make(packet.IPv6HeaderLen+n, packet.EtherIPv6)
	p.L4 = p.L3 + packet.IPv6HeaderLen
	p.Flow = packet.Flow{Src: src, Dst: dst, Proto: proto}
	b := p.Bytes()
	b[0] = 6 << 4
	binary.BigEndian.PutUint16(b[4:], uint16(n))
	b[6], b[7] = byte(proto), hopLimit
	src.Put16(b[8:])
	dst.Put16(b[24:])
	return p
}

// reset answers a TCP segment that belongs to no connection as a host without
// a listener does (RFC 9293 section 3.10.7.1). A reset is never answered.
func (w *Worker) reset(p *packet.Packet) {
	if p.TCPFlags&packet.RST != 0 {
		return
	}
	h, ok := w.nextHop(p.Flow.Src, p)
	if !ok || !w.resets.take(w.now) {
		return
	}
	var r *packet.Packet
	if p.EtherType == packet.EtherIPv6 {
		r = w.makeIPv6(p.Flow.Dst, p.Flow.Src, packet.TCP, packet.TCPHeaderLen, errorTTL)
	} else {
		r = w.makeIPv4(p.Flow.Dst, p.Flow.Src, packet.TCP, packet.TCPHeaderLen)
		r.Buf[r.L3+6] = 0x40 // don't fragment, id 0
		packet.PutIPv4Checksum(r.Buf[r.L3:r.L4])
	}
	in, b := p.Buf[p.L4:p.End], r.Buf[r.L4:r.End]
	binary.BigEndian.PutUint16(b, p.Flow.DstPort)
	binary.BigEndian.PutUint16(b[2:], p.Flow.SrcPort)
	b[12] = packet.TCPHeaderLen / 4 << 4
	if p.TCPFlags&packet.ACK != 0 {
		copy(b[4:8], in[8:12])
		b[13] = packet.RST
	} else {
		length := uint32(max(0, len(in)-int(in[12]>>4)*4))
		if p.TCPFlags&packet.SYN != 0 {
			length++
		}
		if p.TCPFlags&packet.FIN != 0 {
			length++
		}
		binary.BigEndian.PutUint32(b[8:], binary.BigEndian.Uint32(in[4:])+length)
		b[13] = packet.RST | packet.ACK
	}
	sum := packet.Sum(b, packet.PseudoSum(r.Flow.Src, r.Flow.Dst, packet.TCP, len(b)))
	binary.BigEndian.PutUint16(b[16:], ^packet.Fold(sum))
	r.Flow = p.Flow.Reverse()
	r.Tagged, r.VLAN, r.VLANType = p.Tagged, p.VLAN, p.VLANType
	w.send(r, h, pending)
}

// bucket limits what the engine sends on its own account.
type bucket struct {
	rate, burst int // a second, and at once
	tokens      int
	filled      time.Duration
}

// The kernel's net.ipv4.icmp_msgs_per_sec and icmp_msgs_burst. It does not limit resets,
// of which thousands may be due at one moment, when a server's connections have ended and
// their clients' timers run out together; a reset is no longer than what it answers.
const (
	errorRate  = 1000
	errorBurst = 50
	resetRate  = 10_000
	resetBurst = 10_000
)

func newBucket(rate, burst int) bucket { return bucket{rate: rate, burst: burst, tokens: burst} }

func (b *bucket) take(now time.Duration) bool {
	// Longer than it takes to fill is as long; years must not overflow.
	passed := min(now-b.filled, time.Minute)
	if more := int(passed * time.Duration(b.rate) / time.Second); more > 0 {
		b.tokens = min(b.burst, b.tokens+more)
		b.filled = now
	}
	if b.tokens == 0 {
		return false
	}
	b.tokens--
	return true
}
