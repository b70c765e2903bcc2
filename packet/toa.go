package packet

import (
	"encoding/binary"
)

// The TCP option by which a load balancer tells a server the address of the
// client ("TCP option address", TOA), in the layout that the toa modules for
// Linux read:
//
//	 0        1        2        4
//	+--------+--------+--------+--------+------...
//	| 254    | length | port            | address
//	+--------+--------+--------+--------+------...
//
// The length, all included, is 8 with an IPv4 address and 20 with an IPv6 one.
// Port and address are in network order. 254 is a number for experiments (RFC
// 6994), but the option has no experiment's identifier.
const (
	optionTOA = 254
	toaLen4   = 8
	toaLen6   = 20

	maxTCPHeaderLen = 60
)

// TOALen returns how many bytes the option for a client takes: 8 or 20.
func TOALen(client Addr) int {
	if client.Is4() {
		return toaLen4
	}
	return toaLen6
}

// PushTOA puts the option for a client in front of the other options of p, a
// parsed TCP segment, and keeps the checksum as right or wrong as it was. It
// reports false, and changes nothing, where the option does not fit into the TCP
// header, the packet's length field or the headroom. All segments of a super-frame
// get it.
func PushTOA(p *Packet, client Addr, port uint16) bool {
	size := TOALen(client)
	if p.Flow.Proto != TCP || p.Frag == LaterFragment || p.ShortTransport() || p.Start != p.L3 || p.Start < size {
		return false
	}
	header := int(p.Buf[p.L4+tcpDataOffset]>>4) * 4
	if header < TCPHeaderLen || header+size > maxTCPHeaderLen || p.L4+header > p.End || !p.growBy(size) {
		return false
	}
	at := p.L4 + TCPHeaderLen
	copy(p.Buf[p.Start-size:], p.Buf[p.Start:at])
	p.Start, p.L3, p.L4, p.CsumStart = p.Start-size, p.L3-size, p.L4-size, p.CsumStart-size
	option := p.Buf[at-size : at]
	option[0], option[1] = optionTOA, byte(size)
	binary.BigEndian.PutUint16(option[2:], port)
	if client.Is4() {
		client.Put4(option[4:])
	} else {
		client.Put16(option[4:])
	}
	was := binary.BigEndian.Uint16(p.Buf[p.L4+tcpDataOffset:])
	p.Buf[p.L4+tcpDataOffset] += byte(size / 4 << 4)
	length := Delta(0).Word(uint16(p.End-p.L4-size), uint16(p.End-p.L4))
	field := p.Buf[p.L4+tcpChecksum : p.L4+tcpChecksum+2]
	if p.CsumPartial && p.CsumStart == p.L4 {
		length.ApplyPartial(field)
		return true
	}
	length.Word(was, binary.BigEndian.Uint16(p.Buf[p.L4+tcpDataOffset:])).Apply(field)
	Delta(Sum(option, 0)).Apply(field)
	return true
}

// growBy changes the IP header's length for n bytes more; it reports false when
// the length would not fit.
func (p *Packet) growBy(n int) bool {
	at, length := p.L3+4, p.End-p.L3-IPv6HeaderLen
	if p.EtherType == EtherIPv4 {
		at, length = p.L3+2, p.End-p.L3
	}
	if length+n > 65535 {
		return false
	}
	was := binary.BigEndian.Uint16(p.Buf[at:])
	now := was + uint16(n)
	binary.BigEndian.PutUint16(p.Buf[at:], now)
	if p.EtherType == EtherIPv4 {
		Delta(0).Word(was, now).Apply(p.Buf[p.L3+10 : p.L3+12])
	}
	return true
}

// TOA reads from the options of a TCP header, the bytes behind its first 20, the
// client's address and port. Options are read as far as they make sense; of
// several the first counts. It never panics.
func TOA(options []byte) (client Addr, port uint16, ok bool) {
	for option, rest, more := CutOption(options); more; option, rest, more = CutOption(rest) {
		switch {
		case option[0] != optionTOA:
		case len(option) == toaLen4:
			return AddrFrom4(option[4:]), binary.BigEndian.Uint16(option[2:]), true
		case len(option) == toaLen6:
			return AddrFrom16(option[4:]), binary.BigEndian.Uint16(option[2:]), true
		}
	}
	return Addr{}, 0, false
}

// TOA reads the option from p, a parsed packet.
func (p *Packet) TOA() (client Addr, port uint16, ok bool) {
	if p.Flow.Proto != TCP || p.Frag == LaterFragment || p.ShortTransport() {
		return Addr{}, 0, false
	}
	end := min(p.L4+int(p.Buf[p.L4+tcpDataOffset]>>4)*4, p.End)
	if end < p.L4+TCPHeaderLen {
		return Addr{}, 0, false
	}
	return TOA(p.Buf[p.L4+TCPHeaderLen : end])
}
