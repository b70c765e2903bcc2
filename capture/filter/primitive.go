package filter

import (
	"encoding/hex"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"pktdirector/packet"
)

// qualifiers say what an id is about: "tcp dst port".
type qualifiers struct {
	proto     string // "", ether, ip, ip6, arp, tcp, udp, sctp, icmp, ...
	direction string // "", src, dst, and: src and dst
	kind      string // "", host, net, port, portrange, proto
}

// primitive reads qualifiers and an id, an id alone, or a keyword that needs none.
func (p *parser) primitive() (node, error) {
	first := p.word
	if first.kind == wordEnd {
		return nil, p.wrong("something must stand here, such as: host 192.0.2.1, tcp port 80, tcp[tcpflags] & tcp-syn != 0")
	}
	if why := unsupported(first.text); why != "" {
		return nil, p.wrong("%s", why)
	}
	if first.kind == wordName && first.text[0] != '\\' {
		if n, err := p.keyword(); n != nil || err != nil {
			return n, err
		}
	}
	q, some, err := p.qualifiers()
	if err != nil {
		return nil, err
	}
	switch {
	case !some && p.any && (p.word.kind == wordNumber || p.word.kind == wordName):
		q = p.last // "port 80 or 443"
	case !some && p.word.kind != wordNumber:
		return nil, p.wrong("not a word of a filter, nor an address; names of hosts are not looked up")
	case some && (p.word.kind == wordEnd || p.word.kind == wordSign || p.is("and", "or")):
		if q.kind == "" && q.direction == "" {
			return protocolAlone(q.proto, first)
		}
		return nil, p.wrong("an address, net, port or number must stand here")
	}
	id := p.word
	p.advance()
	p.last, p.any = q, true
	return p.qualified(q, id)
}

// keyword reads what is complete by itself, or has its own kind of number; nil: it is
// none of these.
func (p *parser) keyword() (node, error) {
	switch w := p.word.text; w {
	case "inbound", "outbound":
		p.advance()
		return test(func(m *matcher) bool { return m.p.Outbound == (w == "outbound") }), nil
	case "less", "greater":
		p.advance()
		n, err := parseNumber(p.word.text)
		if err != nil {
			return nil, p.wrong("a number of bytes must stand here")
		}
		p.advance()
		if w == "less" {
			return test(func(m *matcher) bool { return uint64(m.p.Len) <= n }), nil
		}
		return test(func(m *matcher) bool { return uint64(m.p.Len) >= n }), nil
	case "vlan":
		p.advance()
		if p.word.kind != wordNumber {
			return test(func(m *matcher) bool { return m.p.Tagged }), nil
		}
		id, err := parseNumber(p.word.text)
		if err != nil || id > maxVLAN {
			return nil, p.wrong("no VLAN: 0 to %d", maxVLAN)
		}
		p.advance()
		return test(func(m *matcher) bool { return m.p.Tagged && uint64(m.p.VLAN)&maxVLAN == id }), nil
	case "broadcast", "multicast":
		return p.cast("ether")
	case "ether", "ip", "ip6":
		ahead := *p
		if ahead.advance(); ahead.is("broadcast", "multicast") {
			p.advance()
			return p.cast(w)
		}
	}
	return nil, nil
}

const maxVLAN = 4095

// cast reads "broadcast" or "multicast" of a protocol.
func (p *parser) cast(proto string) (node, error) {
	switch proto + " " + p.word.text {
	case "ether broadcast":
		p.advance()
		return test(func(m *matcher) bool {
			return m.p.HasMAC && m.p.DstMAC == packet.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
		}), nil
	case "ether multicast":
		p.advance()
		return test(func(m *matcher) bool { return m.p.HasMAC && m.p.DstMAC[0]&1 != 0 }), nil
	case "ip multicast":
		p.advance()
		return test(func(m *matcher) bool { return m.v4 && m.p.Data[16] >= 224 }), nil
	case "ip6 multicast":
		p.advance()
		return test(func(m *matcher) bool { return m.v6 && m.p.Data[24] == 0xff }), nil
	}
	return nil, p.wrong("not taken here: which addresses are a net's broadcast is not known; write ether broadcast")
}

// protocols above IP by name, and whether of IPv4 and of IPv6.
func protocols() map[string]struct {
	number packet.Proto
	v4, v6 bool
} {
	type of = struct {
		number packet.Proto
		v4, v6 bool
	}
	return map[string]of{
		"tcp": {packet.TCP, true, true}, "udp": {packet.UDP, true, true}, "sctp": {packet.SCTP, true, true},
		"icmp": {packet.ICMP, true, false}, "icmp6": {packet.ICMPv6, false, true}, "igmp": {igmp, true, false}, "igrp": {9, true, false},
		"pim": {103, true, true}, "vrrp": {112, true, false}, "carp": {112, true, false}, "esp": {50, true, true}, "ah": {51, true, true},
	}
}

func etherTypes() map[string]packet.EtherType {
	return map[string]packet.EtherType{"ip": packet.EtherIPv4, "ip6": packet.EtherIPv6, "arp": packet.EtherARP}
}

// qualifiers reads those in front of an id, and reports whether there are some.
func (p *parser) qualifiers() (q qualifiers, some bool, err error) {
	if p.word.kind == wordName {
		_, above := protocols()[p.word.text]
		_, network := etherTypes()[p.word.text]
		if above || network || p.word.text == "ether" {
			q.proto, some = p.word.text, true
			p.advance()
		}
	}
	if p.is("src", "dst") {
		q.direction, some = p.word.text, true
		p.advance()
		ahead := *p
		if p.is("and", "or") {
			if ahead.advance(); ahead.is("src", "dst") && ahead.word.text != q.direction {
				q.direction = map[bool]string{true: "and"}[p.word.text == "and"]
				ahead.advance()
				*p = ahead
			}
		}
	}
	if why := unsupported(p.word.text); why != "" && p.word.kind == wordName {
		return q, some, p.wrong("%s", why)
	}
	if p.is("host", "net", "port", "portrange", "proto") {
		q.kind, some = p.word.text, true
		p.advance()
	}
	return q, some, nil
}

// protocolAlone is a protocol's name without more.
func protocolAlone(name string, at word) (node, error) {
	if t, is := etherTypes()[name]; is {
		return test(func(m *matcher) bool { return m.p.EtherType == t }), nil
	}
	if of, is := protocols()[name]; is {
		return test(func(m *matcher) bool { return (m.v4 && of.v4 || m.v6 && of.v6) && m.is(of.number) }), nil
	}
	return nil, wordError(at, "ether host, ether proto, ether multicast or ether[...] may stand here")
}

// qualified is an id with its qualifiers.
func (p *parser) qualified(q qualifiers, id word) (node, error) {
	switch {
	case id.kind == wordSign || id.kind == wordEnd:
		return nil, wordError(id, "an address, net, port or number must stand here")
	case q.kind == "proto":
		return protocolNumber(q, id)
	case q.kind == "port" || q.kind == "portrange":
		return portRange(q, id)
	case q.proto == "ether":
		return hardwareHost(q, id)
	case q.proto != "" && q.proto != "ip" && q.proto != "ip6" && q.proto != "arp":
		return nil, wordError(id, "%s has ports and no addresses: write %s port, or %s and host", q.proto, q.proto, q.proto)
	}
	net, err := p.network(q, id)
	if err != nil {
		return nil, err
	}
	if v6 := net.Addr().Is6(); v6 && (q.proto == "ip" || q.proto == "arp") || !v6 && q.proto == "ip6" {
		return nil, wordError(id, "is no address of %s", q.proto)
	}
	return hostTest{newRange(net), q}, nil
}

// network reads an address or net.
func (p *parser) network(q qualifiers, id word) (netip.Prefix, error) {
	none := netip.Prefix{}
	if a, err := netip.ParseAddr(id.text); err == nil {
		if a.Zone() != "" {
			return none, wordError(id, "an address with a zone cannot be looked for")
		}
		a = a.Unmap()
		if q.kind == "net" && p.is("mask") {
			p.advance()
			return p.mask(a, id)
		}
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	if n, err := netip.ParsePrefix(id.text); err == nil && q.kind != "host" {
		if n != n.Masked() {
			return none, wordError(id, "bits behind the net's length are set: write %s", n.Masked())
		}
		return n, nil
	}
	if parts := strings.Split(id.text, "."); q.kind == "net" && len(parts) < 4 {
		n, err := netip.ParsePrefix(id.text + strings.Repeat(".0", 4-len(parts)) + "/" + strconv.Itoa(8*len(parts)))
		if err == nil {
			return n, nil
		}
	}
	if id.kind == wordName {
		return none, wordError(id, "not an address; names of hosts and nets are not looked up")
	}
	return none, wordError(id, "not an address or net; a port is written: port %s", id.text)
}

// mask reads the netmask behind "net 10.0.0.0 mask".
func (p *parser) mask(a netip.Addr, id word) (netip.Prefix, error) {
	m, err := netip.ParseAddr(p.word.text)
	if err != nil || !m.Is4() || !a.Is4() {
		return netip.Prefix{}, p.wrong("a netmask of IPv4 must stand here")
	}
	bits := packet.AddrFrom(m).V4()
	ones := 0
	for bits<<ones&(1<<31) != 0 {
		ones++
	}
	if ones < 32 && bits<<ones != 0 {
		return netip.Prefix{}, p.wrong("a netmask with gaps")
	}
	p.advance()
	n := netip.PrefixFrom(a, ones)
	if n != n.Masked() {
		return n, wordError(id, "bits behind the netmask are set: write %s", n.Masked().Addr())
	}
	return n, nil
}

// addrRange is a net as its first and last address.
type addrRange struct {
	first, last packet.Addr
	v4          bool
}

func newRange(n netip.Prefix) addrRange {
	b := n.Addr().As16()
	bits := n.Bits()
	if n.Addr().Is4() {
		bits += 96
	}
	for i := bits; i < 128; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return addrRange{packet.AddrFrom(n.Addr()), packet.AddrFrom16(b[:]), n.Addr().Is4()}
}

func (r addrRange) has(a packet.Addr) bool { return !a.Less(r.first) && !r.last.Less(a) }

// hostTest asks for an address of the packet.
type hostTest struct {
	addrRange
	q qualifiers
}

func (h hostTest) match(m *matcher) bool {
	src, dst, there := m.addrs()
	switch arp := m.p.EtherType == packet.EtherARP; {
	case !there || m.v6 == h.v4:
		return false
	case h.q.proto == "ip" && arp, h.q.proto == "arp" && !arp:
		return false
	}
	return h.q.ends(h.has(src), h.has(dst))
}

// ends joins what is so of source and destination.
func (q qualifiers) ends(src, dst bool) bool {
	switch q.direction {
	case "src":
		return src
	case "dst":
		return dst
	case "and":
		return src && dst
	}
	return src || dst
}

func hardwareHost(q qualifiers, id word) (node, error) {
	b, err := hex.DecodeString(strings.NewReplacer(":", "", "-", "").Replace(id.text))
	if err != nil || len(b) != 6 || len(id.text) != 17 || q.kind == "net" {
		return nil, wordError(id, "not a MAC address like 02:00:00:00:00:01")
	}
	mac := packet.MAC(b)
	return test(func(m *matcher) bool {
		return m.p.HasMAC && q.ends(m.p.SrcMAC == mac, m.p.DstMAC == mac)
	}), nil
}

func portRange(q qualifiers, id word) (node, error) {
	if !slices.Contains([]string{"", "tcp", "udp", "sctp"}, q.proto) {
		return nil, wordError(id, "%s has no ports: tcp, udp and sctp have", q.proto)
	}
	from, to, two := strings.Cut(id.text, "-")
	if !two || q.kind == "port" {
		from, to = id.text, id.text
	}
	a, err1 := strconv.ParseUint(from, 10, 16)
	b, err2 := strconv.ParseUint(to, 10, 16)
	if err1 != nil || err2 != nil {
		return nil, wordError(id, "no port, or range of ports like 8000-8010; names are not looked up")
	}
	low, high := uint16(min(a, b)), uint16(max(a, b))
	proto := protocols()[q.proto].number
	return test(func(m *matcher) bool {
		if proto != 0 && m.proto != proto {
			return false
		}
		src, dst, there := m.ports()
		return there && q.ends(src >= low && src <= high, dst >= low && dst <= high)
	}), nil
}

func protocolNumber(q qualifiers, id word) (node, error) {
	name := strings.TrimPrefix(id.text, "\\")
	n, err := parseNumber(name)
	if q.proto == "ether" {
		if t, is := etherTypes()[name]; is {
			n, err = uint64(t), nil
		}
		if err != nil || n > 0xffff || n < minEtherType || q.direction != "" {
			return nil, wordError(id, "no EtherType: write a number from 0x600 to 0xffff, or ip, ip6 or arp")
		}
		return test(func(m *matcher) bool { return m.p.EtherType == packet.EtherType(n) }), nil
	}
	if of, is := protocols()[name]; is {
		n, err = uint64(of.number), nil
	}
	switch {
	case err != nil || n > 255 || q.direction != "":
		return nil, wordError(id, "no protocol above IP: write a number to 255, or a name like \\tcp")
	case q.proto != "" && q.proto != "ip" && q.proto != "ip6":
		return nil, wordError(id, "%s carries no protocol: write ip proto, ip6 proto, or proto", q.proto)
	}
	return test(func(m *matcher) bool {
		return (m.v4 && q.proto != "ip6" || m.v6 && q.proto != "ip") && m.is(packet.Proto(n))
	}), nil
}

// minEtherType is the least EtherType: what is below is a length (IEEE 802.3).
const minEtherType = 0x600
