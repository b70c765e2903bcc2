package packet

import (
	"fmt"
	"net/netip"
)

// Proto is an IP protocol number (IANA "Assigned Internet Protocol Numbers").
type Proto uint8

// Protocols the director knows by name.
const (
	ICMP   Proto = 1
	IPIP   Proto = 4
	TCP    Proto = 6
	UDP    Proto = 17
	IPv6P  Proto = 41 // IPv6 encapsulated in IP
	GRE    Proto = 47
	ICMPv6 Proto = 58
	SCTP   Proto = 132
)

// String returns the name ipvsadm prints ("TCP"), or the number.
func (p Proto) String() string {
	switch p {
	case ICMP:
		return "ICMP"
	case IPIP:
		return "IPIP"
	case TCP:
		return "TCP"
	case UDP:
		return "UDP"
	case IPv6P:
		return "IPV6"
	case GRE:
		return "GRE"
	case ICMPv6:
		return "ICMPv6"
	case SCTP:
		return "SCTP"
	}
	return fmt.Sprintf("proto-%d", uint8(p))
}

// Flow is a protocol with source and destination address and port: one
// direction of a conversation. It is comparable and holds no pointers, so it
// serves as a map key. Ports are 0 where the protocol has none.
type Flow struct {
	Src, Dst         Addr
	SrcPort, DstPort uint16
	Proto            Proto
}

// Reverse returns the flow of the answers.
func (f Flow) Reverse() Flow {
	return Flow{Src: f.Dst, Dst: f.Src, SrcPort: f.DstPort, DstPort: f.SrcPort, Proto: f.Proto}
}

// String formats f as "TCP 198.51.100.7:1000 -> 192.0.2.10:80".
func (f Flow) String() string {
	return f.Proto.String() + " " + Endpoint(f.Src, f.SrcPort) + " -> " + Endpoint(f.Dst, f.DstPort)
}

// Endpoint formats an address with a port, IPv6 in brackets.
func Endpoint(a Addr, port uint16) string {
	if !a.IsValid() {
		return fmt.Sprintf("-:%d", port)
	}
	return netip.AddrPortFrom(a.Netip(), port).String()
}
