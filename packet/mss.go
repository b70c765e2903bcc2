package packet

import "encoding/binary"

// TCP options (RFC 9293 section 3.2).
const (
	optionMSS     = 2
	optionMSSLen  = 4
	tcpDataOffset = 12
)

// ClampMSS lowers the maximum segment size that p, a parsed TCP segment with
// SYN, announces to mss, and keeps the checksum as right or wrong as it was. A
// smaller one stays, and where none is announced none is added: the other end then
// takes 536, or 1,220 over IPv6. Options are read as far as they make sense; every
// maximum segment size among them is lowered. It reports whether p changed.
func ClampMSS(p *Packet, mss uint16) bool {
	if p.Flow.Proto != TCP || p.Frag == LaterFragment || p.ShortTransport() || p.TCPFlags&SYN == 0 {
		return false
	}
	end := p.L4 + int(p.Buf[p.L4+tcpDataOffset]>>4)*4
	if end > p.End {
		return false // the options are not all there, nor is the checksum's meaning
	}
	changed := false
	for option, rest, ok := CutOption(p.Buf[min(p.L4+TCPHeaderLen, end):end]); ok; option, rest, ok = CutOption(rest) {
		if option[0] == optionMSS && len(option) == optionMSSLen && binary.BigEndian.Uint16(option[2:]) > mss {
			p.setMSS(end-len(rest)-2, mss)
			changed = true
		}
	}
	return changed
}

// setMSS writes the value of an option at Buf[at] and updates the checksum,
// which sums words from L4 on: at an odd place the value lies in two of them.
func (p *Packet) setMSS(at int, mss uint16) {
	was := binary.BigEndian.Uint16(p.Buf[at:])
	binary.BigEndian.PutUint16(p.Buf[at:], mss)
	if p.CsumPartial && p.CsumStart == p.L4 {
		return // covers the pseudo-header only so far
	}
	if (at-p.L4)%2 != 0 {
		was, mss = was<<8|was>>8, mss<<8|mss>>8
	}
	Delta(0).Word(was, mss).Apply(p.Buf[p.L4+tcpChecksum : p.L4+tcpChecksum+2])
}
