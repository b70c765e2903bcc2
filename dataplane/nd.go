package dataplane

import (
	"encoding/binary"

	"pktdirector/packet"
)

// Neighbour discovery (RFC 4861 sections 4.3 and 4.4), offsets from the ICMPv6
// header.
const (
	ndSolicitation  = 135
	ndAdvertisement = 136
	ndTarget        = 8
	ndLen           = 24 // without options
	ndOptionLen     = 8  // source or target link-layer address

	ndOptSource = 1
	ndOptTarget = 2

	ndSolicited = 0x40
	ndOverride  = 0x20
)

func allNodes() packet.Addr { return packet.MustParseAddr("ff02::1") }

func allNodesMAC() packet.MAC { return packet.MAC{0x33, 0x33, 0, 0, 0, 1} }

// solicitedNode returns the multicast address a neighbour listens on and its
// Ethernet address (RFC 4291 section 2.7.1, RFC 2464 section 7).
func solicitedNode(a packet.Addr) (packet.Addr, packet.MAC) {
	var b [16]byte
	a.Put16(b[:])
	m := [16]byte{0xff, 0x02, 11: 1, 12: 0xff, 13: b[13], 14: b[14], 15: b[15]}
	return packet.AddrFrom16(m[:]), packet.MAC{0x33, 0x33, 0xff, b[13], b[14], b[15]}
}

// neighbourDiscovery answers solicitations for VIPs and learns from
// advertisements. Hop limit 255 proves that the packet was not routed.
func (w *Worker) neighbourDiscovery(p *packet.Packet) Verdict {
	b := p.Buf[p.L4:p.End]
	if p.TTL != 255 || len(b) < ndLen || !p.CsumPartial && packet.Fold(icmpv6Sum(p)) != 0xffff {
		return Malformed
	}
	links := *w.d.links.Load()
	if p.Link >= len(links) || links[p.Link].Layer3 {
		return NotOurs
	}
	target := packet.AddrFrom16(b[ndTarget:])
	vip := w.answersFor(target)
	if b[0] == ndAdvertisement {
		mac, ok := ndOption(b[ndLen:], ndOptTarget)
		switch {
		case !ok:
			mac = p.SrcMAC
		case vip && mac != links[p.Link].MAC:
			return VIPConflict
		}
		if usable(mac) && w.confirm(w.neighbourOf(p, target), mac, false) {
			return Learned
		}
		return NotOurs
	}
	from := p.Flow.Src
	mac, ok := ndOption(b[ndLen:], ndOptSource)
	v := NotOurs
	if ok && usable(mac) && w.confirm(w.neighbourOf(p, from), mac, vip) {
		v = Learned
	}
	if !vip {
		return v
	}
	if hi, lo := from.Words(); hi == 0 && lo == 0 { // duplicate address detection
		w.advertise(p, links[p.Link].MAC, target, allNodes(), allNodesMAC(), false)
		return AnsweredND
	}
	if !ok {
		mac = p.SrcMAC
	}
	w.advertise(p, links[p.Link].MAC, target, from, mac, true)
	return AnsweredND
}

// ndOption finds a link-layer address option.
func ndOption(b []byte, kind byte) (packet.MAC, bool) {
	for len(b) >= ndOptionLen {
		n := int(b[1]) * 8
		if n == 0 || n > len(b) {
			break
		}
		if b[0] == kind {
			return packet.MAC(b[2:8]), true
		}
		b = b[n:]
	}
	return packet.MAC{}, false
}

func (w *Worker) advertise(like *packet.Packet, own packet.MAC, vip, to packet.Addr, toMAC packet.MAC, solicited bool) {
	p := w.makeND(like, ndAdvertisement, vip, to, vip, ndOptTarget, own)
	b := p.Buf[p.L4:p.End]
	b[4] = ndOverride
	if solicited {
		b[4] |= ndSolicited
	}
	p.DstMAC = toMAC
	w.finishICMPv6(p)
}

func (w *Worker) neighbourSolicitation(like *packet.Packet, own packet.MAC, from, target packet.Addr) {
	to, toMAC := solicitedNode(target)
	p := w.makeND(like, ndSolicitation, from, to, target, ndOptSource, own)
	if !from.IsValid() { // the unspecified address sends no option
		p.End -= ndOptionLen
		binary.BigEndian.PutUint16(p.Buf[p.L3+4:], ndLen)
	}
	p.DstMAC = toMAC
	w.finishICMPv6(p)
}

func (w *Worker) makeND(like *packet.Packet, kind byte, src, dst, target packet.Addr, option byte, own packet.MAC) *packet.Packet {
	p := w.makeIPv6(src, dst, packet.ICMPv6, ndLen+ndOptionLen, 255)
	p.Link, p.Tagged, p.VLAN, p.VLANType = like.Link, like.Tagged, like.VLAN, like.VLANType
	b := p.Buf[p.L4:p.End]
	b[0] = kind
	target.Put16(b[ndTarget:])
	b[ndLen], b[ndLen+1] = option, 1
	copy(b[ndLen+2:], own[:])
	return p
}

// finishICMPv6 sums an ICMPv6 packet of the engine's own and sends it to the
// MAC it already has.
func (w *Worker) finishICMPv6(p *packet.Packet) {
	sumICMPv6(p)
	w.out = append(w.out, p)
}

func sumICMPv6(p *packet.Packet) {
	b := p.Buf[p.L4:p.End]
	b[2], b[3] = 0, 0
	binary.BigEndian.PutUint16(b[2:], ^packet.Fold(icmpv6Sum(p)))
}

// icmpv6Sum sums an ICMPv6 packet with its pseudo-header, the checksum field
// included.
func icmpv6Sum(p *packet.Packet) uint64 {
	b := p.Buf[p.L4:p.End]
	return packet.Sum(b, packet.PseudoSum(p.Flow.Src, p.Flow.Dst, packet.ICMPv6, len(b)))
}
