// Package packettest builds packets for tests with gopacket and checks packets
// from scratch: its checksums share no code with package packet.
package packettest

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"pktdirector/packet"
)

// Spec describes a TCP or UDP packet; zero values give a plain one.
type Spec struct {
	Src, Dst string // "198.51.100.10:40000"
	UDP      bool
	Flags    uint8 // packet.SYN and so on; TCP only
	Seq, Ack uint32
	Payload  []byte
	TTL      uint8 // 0: 64
	TOS      uint8
	ID       uint16
	NoDF     bool
	// Partial leaves the transport checksum as a sender with checksum
	// offload does: the folded pseudo-header sum.
	Partial bool
	// GSOSize makes the packet a super-frame.
	GSOSize uint16
	Window  uint16
}

// Build returns the packet, its link metadata as an Ethernet link would set it.
func Build(tb testing.TB, s Spec) *packet.Packet {
	tb.Helper()
	src, dst := netip.MustParseAddrPort(s.Src), netip.MustParseAddrPort(s.Dst)
	if s.TTL == 0 {
		s.TTL = 64
	}
	if s.Window == 0 {
		s.Window = 64240
	}
	proto := layers.IPProtocolTCP
	if s.UDP {
		proto = layers.IPProtocolUDP
	}
	var ip gopacket.NetworkLayer
	var ipLayer gopacket.SerializableLayer
	kind := packet.EtherIPv4
	if src.Addr().Is4() {
		l := &layers.IPv4{Version: 4, TTL: s.TTL, TOS: s.TOS, Id: s.ID, Protocol: proto, SrcIP: net.IP(src.Addr().AsSlice()), DstIP: net.IP(dst.Addr().AsSlice())}
		if !s.NoDF {
			l.Flags = layers.IPv4DontFragment
		}
		ip, ipLayer = l, l
	} else {
		l := &layers.IPv6{Version: 6, HopLimit: s.TTL, TrafficClass: s.TOS, NextHeader: proto, SrcIP: net.IP(src.Addr().AsSlice()), DstIP: net.IP(dst.Addr().AsSlice())}
		ip, ipLayer, kind = l, l, packet.EtherIPv6
	}
	var transport gopacket.SerializableLayer
	if s.UDP {
		u := &layers.UDP{SrcPort: layers.UDPPort(src.Port()), DstPort: layers.UDPPort(dst.Port())}
		must(tb, u.SetNetworkLayerForChecksum(ip))
		transport = u
	} else {
		t := &layers.TCP{SrcPort: layers.TCPPort(src.Port()), DstPort: layers.TCPPort(dst.Port()), Seq: s.Seq, Ack: s.Ack, Window: s.Window,
			FIN: s.Flags&packet.FIN != 0, SYN: s.Flags&packet.SYN != 0, RST: s.Flags&packet.RST != 0, PSH: s.Flags&packet.PSH != 0,
			ACK: s.Flags&packet.ACK != 0, URG: s.Flags&packet.URG != 0, ECE: s.Flags&packet.ECE != 0, CWR: s.Flags&packet.CWR != 0}
		must(tb, t.SetNetworkLayerForChecksum(ip))
		transport = t
	}
	buf := gopacket.NewSerializeBuffer()
	must(tb, gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ipLayer, transport, gopacket.Payload(s.Payload)))
	p := Packet(buf.Bytes(), kind)
	if s.Partial || s.GSOSize > 0 {
		makePartial(p)
	}
	if s.GSOSize > 0 {
		p.GSOSize = s.GSOSize
		switch {
		case s.UDP:
			p.GSO = packet.GSOUDP
		case kind == packet.EtherIPv4:
			p.GSO = packet.GSOTCPv4
		default:
			p.GSO = packet.GSOTCPv6
		}
	}
	return p
}

// Packet puts a copy of raw network-layer bytes behind headroom, as a link
// hands them over.
func Packet(raw []byte, kind packet.EtherType) *packet.Packet {
	buf := make([]byte, packet.Headroom+len(raw))
	copy(buf[packet.Headroom:], raw)
	p := new(packet.Packet)
	p.Reset(buf, packet.Headroom, len(raw))
	p.EtherType = kind
	return p
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func makePartial(p *packet.Packet) {
	b := p.Bytes()
	at, proto := transportStart(b)
	field := 16
	if proto == 17 {
		field = 6
	}
	binary.BigEndian.PutUint16(b[at+field:], fold(pseudoSum(b, proto, len(b)-at)))
	p.CsumPartial, p.CsumStart, p.CsumOffset = true, p.Start+at, uint16(field)
}

// transportStart finds the transport header of an IP packet without IPv6
// extension headers.
func transportStart(b []byte) (at int, proto byte) {
	if b[0]>>4 == 4 {
		return int(b[0]&15) * 4, b[9]
	}
	return 40, b[6]
}

// sum is the checksum of RFC 1071, byte by byte.
func sum(b []byte) uint32 {
	var s uint32
	for i, x := range b {
		if i%2 == 0 {
			s += uint32(x) << 8
		} else {
			s += uint32(x)
		}
		s = s&0xffff + s>>16
	}
	return s
}

func fold(s uint32) uint16 {
	for s>>16 != 0 {
		s = s&0xffff + s>>16
	}
	return uint16(s)
}

func pseudoSum(b []byte, proto byte, length int) uint32 {
	addrs := b[12:20]
	if b[0]>>4 == 6 {
		addrs = b[8:40]
	}
	return uint32(fold(sum(addrs))) + uint32(proto) + uint32(length)
}

// Verify checks an IP packet from scratch: lengths, IPv4 header checksum and
// the TCP or UDP checksum, inside the header of a tunnel (IPIP, GRE, GUE) too,
// and that of GRE. A UDP checksum of 0 passes over IPv4, and over IPv6 in front of
// GUE (RFC 6935).
// A packet whose headers are longer than itself is an error, too.
func Verify(b []byte) (err error) {
	defer func() {
		if cut := recover(); cut != nil {
			err = fmt.Errorf("%d bytes are cut short: %v", len(b), cut)
		}
	}()
	return verify(b)
}

func verify(b []byte) error {
	at, proto := 0, byte(0)
	switch {
	case len(b) < 20:
		return fmt.Errorf("%d bytes are no IP packet", len(b))
	case b[0]>>4 == 4:
		at, proto = transportStart(b)
		if n := int(binary.BigEndian.Uint16(b[2:])); n != len(b) {
			return fmt.Errorf("total length %d, but %d bytes", n, len(b))
		}
		if got := fold(sum(b[:at])); got != 0xffff {
			return fmt.Errorf("IP header checksum is wrong: sum %#04x", got)
		}
	case b[0]>>4 == 6:
		at, proto = transportStart(b)
		if n := 40 + int(binary.BigEndian.Uint16(b[4:])); n != len(b) {
			return fmt.Errorf("payload length says %d, but %d bytes", n, len(b))
		}
	default:
		return fmt.Errorf("IP version %d", b[0]>>4)
	}
	t := b[at:]
	switch proto {
	case 4, 41:
		return verify(t)
	case 47:
		n := 4
		if t[0]&0x80 != 0 {
			n = 8
			if got := fold(sum(t)); got != 0xffff {
				return fmt.Errorf("GRE checksum is wrong: sum %#04x", got)
			}
		}
		return verify(t[n:])
	case 17:
		gue := isGUE(t[8:])
		if gue {
			if err := verify(t[12:]); err != nil {
				return fmt.Errorf("inside GUE: %w", err)
			}
		}
		if binary.BigEndian.Uint16(t[6:]) == 0 && (b[0]>>4 == 4 || gue) {
			return nil
		}
		if n := int(binary.BigEndian.Uint16(t[4:])); n != len(t) {
			return fmt.Errorf("UDP length %d, but %d bytes", n, len(t))
		}
	case 1:
		if got := fold(sum(t)); got != 0xffff {
			return fmt.Errorf("ICMP checksum is wrong: sum %#04x", got)
		}
		return nil
	case 6, 58:
	default:
		return nil
	}
	if got := fold(pseudoSum(b, proto, len(t)) + uint32(fold(sum(t)))); got != 0xffff {
		return fmt.Errorf("transport checksum is wrong: sum %#04x", got)
	}
	return nil
}

// isGUE reports whether the payload of a UDP packet begins with a GUE header as
// the director writes it, and an IP packet.
func isGUE(b []byte) bool {
	return len(b) > 4 && b[0] == 0 && b[2] == 0 && b[3] == 0 && (b[1] == 4 && b[4]>>4 == 4 || b[1] == 41 && b[4]>>4 == 6)
}

// TransportChecksum computes the TCP or UDP checksum of an IP packet from
// scratch, whatever stands in its field.
func TransportChecksum(b []byte) uint16 {
	b = append([]byte(nil), b...)
	at, proto := transportStart(b)
	field := 16
	if proto == 17 {
		field = 6
	}
	copy(b[at+field:], []byte{0, 0})
	t := b[at:]
	return ^fold(pseudoSum(b, proto, len(t)) + uint32(fold(sum(t))))
}

// Decode returns gopacket's layers of a packet's bytes.
func Decode(p *packet.Packet) gopacket.Packet {
	first := gopacket.LayerType(layers.LayerTypeIPv4)
	if p.EtherType == packet.EtherIPv6 {
		first = layers.LayerTypeIPv6
	}
	return gopacket.NewPacket(append([]byte(nil), p.Bytes()...), first, gopacket.Default)
}
