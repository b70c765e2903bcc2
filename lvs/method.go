package lvs

import "fmt"

// Method is a forwarding method.
type Method uint8

// The kernel's three forwarding methods that reach another machine, and FullNAT,
// which is not the kernel's.
const (
	Masq    Method = iota // NAT: rewrite addresses and ports (ipvsadm -m)
	Route                 // direct routing: rewrite the frame's MAC only (-g)
	Tunnel                // encapsulation (-i), of the kind that TunnelInfo says
	FullNAT               // NAT of both ends: the client's address is replaced, too
)

// String returns the word ipvsadm prints in its Forward column.
func (m Method) String() string {
	switch m {
	case Masq:
		return "Masq"
	case Route:
		return "Route"
	case Tunnel:
		return "Tunnel"
	case FullNAT:
		return "FullNat"
	}
	return fmt.Sprintf("method-%d", uint8(m))
}

// ParseMethod reads a method as configuration files write it: nat, dr, tun or
// fullnat, or LVS's longer words for the first three.
func ParseMethod(s string) (Method, error) {
	switch s {
	case "nat", "masq", "masquerading":
		return Masq, nil
	case "dr", "route", "gatewaying":
		return Route, nil
	case "tun", "tunnel", "tunnelling", "tunneling":
		return Tunnel, nil
	case "fullnat":
		return FullNAT, nil
	}
	return 0, fmt.Errorf("forwarding method %q is not known: write nat (masquerading), dr (gatewaying), tun (tunnelling) or fullnat", s)
}

// RewritesPorts reports whether the real server may have another port than the
// service, and its replies pass the director.
func (m Method) RewritesPorts() bool { return m == Masq || m == FullNAT }

// Short returns the word configuration files use: nat, dr, tun or fullnat.
func (m Method) Short() string {
	switch m {
	case Masq:
		return "nat"
	case Route:
		return "dr"
	case Tunnel:
		return "tun"
	case FullNAT:
		return "fullnat"
	}
	return m.String()
}
