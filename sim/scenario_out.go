package sim

import (
	"fmt"

	"pktdirector/packet"
)

// seen is a copy of a packet that left the director.
type seen struct {
	link int
	mac  packet.MAC
	kind packet.EtherType
	raw  []byte
}

// neighbourDiscovery reports whether the packet is ARP or ND: the network takes
// those for granted.
func (s *seen) neighbourDiscovery() bool {
	if s.kind == packet.EtherARP {
		return true
	}
	const firstND, lastND = 133, 137 // RFC 4861
	p, ok := s.parse()
	return ok && p.Flow.Proto == packet.ICMPv6 && p.Frag == packet.Whole && p.End > p.L4 &&
		p.Buf[p.L4] >= firstND && p.Buf[p.L4] <= lastND
}

func (s *seen) parse() (*packet.Packet, bool) {
	p := newPacket(s.raw, s.kind == packet.EtherIPv4)
	return p, packet.Parse(p) == packet.ParseOK
}

// out describes the packet in the words of scenario files.
func (s *seen) out() Out {
	o := Out{To: "client"}
	if s.link == serverLink {
		o.To, o.RS = "rs", serverName(s.mac)
	}
	p, ok := s.parse()
	if !ok {
		o.Proto = "unreadable"
		return o
	}
	if inner := tunnelled(p); inner != nil {
		o.Tunnel, o.Outer = tunnelName(p.Flow.Proto), p.Flow.Src.String()+" > "+p.Flow.Dst.String()
		p = inner
	}
	describe(&o, p)
	return o
}

// tunnelled returns the packet inside the header of a tunnel, or nil. UDP of the
// director's own is GUE.
func tunnelled(p *packet.Packet) *packet.Packet {
	at := p.L4
	switch p.Flow.Proto {
	case packet.IPIP, packet.IPv6P:
	case packet.GRE:
		at += 4 // RFC 2784, no checksum
		if at > p.End || p.Buf[p.L4]&0x80 != 0 {
			at += 4
		}
	case packet.UDP:
		if src := p.Flow.Src.Netip(); !fromDirector(src.AsSlice()) {
			return nil
		}
		at += packet.UDPHeaderLen + packet.GUEHeaderLen
	default:
		return nil
	}
	if at >= p.End {
		return nil
	}
	inner := newPacket(p.Buf[at:p.End], p.Buf[at]>>4 == 4)
	if packet.Parse(inner) != packet.ParseOK {
		return nil
	}
	return inner
}

func tunnelName(outer packet.Proto) string {
	switch outer {
	case packet.GRE:
		return "gre"
	case packet.UDP:
		return "gue"
	}
	return "ipip"
}

func describe(o *Out, p *packet.Packet) {
	f := &p.Flow
	o.Src, o.Dst = packet.Endpoint(f.Src, f.SrcPort), packet.Endpoint(f.Dst, f.DstPort)
	switch f.Proto {
	case packet.TCP:
		flags := flagNames(p.TCPFlags)
		o.Proto, o.Flags = "tcp", &flags
	case packet.UDP:
		o.Proto = "udp"
	case packet.SCTP:
		chunk := p.Chunk
		o.Proto, o.Chunk = "sctp", &chunk
	case packet.ICMP, packet.ICMPv6:
		o.Src, o.Dst = f.Src.String(), f.Dst.String()
		if p.End-p.L4 < 2 {
			return
		}
		what := fmt.Sprintf("%d/%d", p.Buf[p.L4], p.Buf[p.L4+1])
		if f.Proto == packet.ICMP {
			o.ICMP = what
		} else {
			o.ICMP6 = what
		}
	default:
		o.Proto = f.Proto.String()
	}
}

// outcome describes what became of one packet of a bulk.
func outcome(left []Out) string {
	if len(left) == 0 {
		return "silence"
	}
	switch o := left[0]; {
	case o.RS != "":
		return o.RS
	case o.ICMP != "":
		return "icmp " + o.ICMP
	case o.ICMP6 != "":
		return "icmp6 " + o.ICMP6
	case o.Flags != nil:
		return "tcp " + *o.Flags
	default:
		return o.Proto
	}
}
