package dataplane

import (
	"encoding/binary"

	"pktdirector/conntrack"
	"pktdirector/ftp"
	"pktdirector/packet"
)

// Offsets in a TCP header (RFC 9293 section 3.1), and its option that carries
// sequence numbers (RFC 2018 section 3).
const (
	tcpSeqAt      = 4
	tcpAckAt      = 8
	tcpOffsetAt   = 12
	tcpChecksumAt = 16

	tcpOptSACK = 5
)

// maxIPv4 is the largest total length of an IPv4 packet.
const maxIPv4 = 65535

func tcpSeq(p *packet.Packet) uint32 { return binary.BigEndian.Uint32(p.Buf[p.L4+tcpSeqAt:]) }

func tcpAck(p *packet.Packet) uint32 { return binary.BigEndian.Uint32(p.Buf[p.L4+tcpAckAt:]) }

// tcpHeaderLen returns a TCP header's length in bytes as far as it is there.
// The packet must have a whole header without options.
func tcpHeaderLen(p *packet.Packet) int {
	n := int(p.Buf[p.L4+tcpOffsetAt]>>4) * 4
	return min(max(n, packet.TCPHeaderLen), p.End-p.L4)
}

func tcpPayload(p *packet.Packet) []byte { return p.Buf[p.L4+tcpHeaderLen(p) : p.End] }

// moveAcks changes what a segment acknowledges, SACK blocks included, from the
// edited stream to the original.
func moveAcks(p *packet.Packet, e *ftp.Edits) {
	header := p.Buf[p.L4 : p.L4+tcpHeaderLen(p)]
	delta := packet.Delta(0)
	if p.TCPFlags&packet.ACK != 0 {
		delta = moveNumber(delta, header[tcpAckAt:], 0, e.Ack)
	}
	for option, rest, ok := packet.CutOption(header[packet.TCPHeaderLen:]); ok; option, rest, ok = packet.CutOption(rest) {
		if option[0] != tcpOptSACK {
			continue
		}
		at := len(header) - len(rest) - len(option)
		for edge := 2; edge+4 <= len(option); edge += 4 {
			delta = moveNumber(delta, option[edge:], at+edge, e.Ack)
		}
	}
	applyTCP(p, delta, 0)
}

// moveNumber maps the 4 bytes that stand at an offset of a TCP header, which may
// be odd, and returns delta extended by the change.
func moveNumber(delta packet.Delta, b []byte, offset int, mapping func(uint32) uint32) packet.Delta {
	from := binary.BigEndian.Uint32(b)
	to := mapping(from)
	binary.BigEndian.PutUint32(b, to)
	if offset&1 != 0 {
		// In an odd place, each byte stands in the other half of a word: a
		// byte swapped sum (RFC 1071 section 2).
		from, to = from<<8|from>>24, to<<8|to>>24
	}
	return delta.Word(uint16(from>>16), uint16(to>>16)).Word(uint16(from), uint16(to))
}

// applyTCP applies a change of the segment's own bytes, and one of its length,
// to the checksum. An unfinished one covers only the pseudo-header so far.
func applyTCP(p *packet.Packet, bytes, length packet.Delta) {
	field := p.Buf[p.L4+tcpChecksumAt : p.L4+tcpChecksumAt+2]
	if p.CsumPartial && p.CsumStart == p.L4 {
		length.ApplyPartial(field)
		return
	}
	bytes.Apply(field)
	length.Apply(field)
}

// ftpRewrite puts the VIP where a server's segment names its own address, and
// moves its sequence number. The headers move in front of the payload as far as
// it grows. It reports false when there is no room.
func (w *Worker) ftpRewrite(p *packet.Packet, c *conntrack.Conn) bool {
	h := &w.d.ftp
	h.mu.Lock()
	defer h.mu.Unlock()
	id := h.byFlow[requestFlow(c)]
	if id == 0 || !h.record(id).edits.Any() {
		return true
	}
	edits, seq := &h.record(id).edits, tcpSeq(p)
	payload := tcpPayload(p)
	growth := edits.Growth(seq, len(payload))
	if p.Len()+growth > maxIPv4 || p.Start < growth {
		return false
	}
	segment := p.Buf[p.L4:p.End]
	before := packet.Fold(packet.Sum(segment, 0))
	var text [maxAddrText]byte
	w.scratch = append(w.scratch[:0], payload...)
	headers := p.End - len(payload) - p.Start
	if growth != 0 {
		copy(p.Buf[p.Start-growth:], p.Buf[p.Start:p.Start+headers])
		p.Start -= growth
		p.L3 -= growth
		p.L4 -= growth
		p.CsumStart -= growth
		ip := p.Buf[p.L3:]
		length := binary.BigEndian.Uint16(ip[2:])
		binary.BigEndian.PutUint16(ip[2:], length+uint16(growth))
		packet.Delta(0).Word(length, length+uint16(growth)).Apply(ip[10:12])
	}
	edits.Rewrite(p.Buf[p.Start+headers:p.End], w.scratch, seq, ftp.AppendAddr(text[:0], c.Virtual))
	binary.BigEndian.PutUint32(p.Buf[p.L4+tcpSeqAt:], edits.Seq(seq))
	after := packet.Fold(packet.Sum(p.Buf[p.L4:p.End], 0))
	was := uint16(len(segment))
	applyTCP(p, packet.Delta(0).Word(before, after), packet.Delta(0).Word(was, was+uint16(growth)))
	return true
}
