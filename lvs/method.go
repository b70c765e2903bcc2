package lvs

import "fmt"

// Method is a forwarding method.
type Method uint8

// The kernel's three forwarding methods that reach another machine.
const (
	Masq   Method = iota // NAT: rewrite addresses and ports (ipvsadm -m)
	Route                // direct routing: rewrite the frame's MAC only (-g)
	Tunnel               // encapsulation (-i), of the kind that TunnelInfo says
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
	}
	return fmt.Sprintf("method-%d", uint8(m))
}

// ParseMethod reads a method as configuration files write it: nat, dr or tun,
// or LVS's longer words for them.
func ParseMethod(s string) (Method, error) {
	switch s {
	case "nat", "masq", "masquerading":
		return Masq, nil
	case "dr", "route", "gatewaying":
		return Route, nil
	case "tun", "tunnel", "tunnelling", "tunneling":
		return Tunnel, nil
	}
	return 0, fmt.Errorf("forwarding method %q is not known: write nat (masquerading), dr (gatewaying) or tun (tunnelling)", s)
}

// Short returns the word configuration files use: nat, dr or tun.
func (m Method) Short() string {
	switch m {
	case Masq:
		return "nat"
	case Route:
		return "dr"
	case Tunnel:
		return "tun"
	}
	return m.String()
}
