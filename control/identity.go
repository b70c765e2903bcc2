package control

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"pktdirector/lvs"
	"pktdirector/packet"
)

// ServiceID names a service in the API's paths: "tcp-192.0.2.10-80",
// "udp-2001:db8::10-53", "fwm-1", "fwm-1-ipv6".
func ServiceID(k lvs.ServiceKey) string {
	switch {
	case k.Mark != 0 && k.V6:
		return fmt.Sprintf("fwm-%d-ipv6", k.Mark)
	case k.Mark != 0:
		return fmt.Sprintf("fwm-%d", k.Mark)
	}
	return strings.ToLower(k.Proto.String()) + "-" + endpointID(k.VIP, k.Port)
}

// ServerID names a real server in the API's paths: "10.2.0.1-8080".
func ServerID(k lvs.ServerKey) string { return endpointID(k.RIP, k.Port) }

func endpointID(a packet.Addr, port uint16) string { return fmt.Sprintf("%s-%d", a, port) }

// ParseServiceID reads what ServiceID writes.
func ParseServiceID(id string) (lvs.ServiceKey, error) {
	wrong := fmt.Errorf("%q names no service: write protocol, VIP and port like tcp-192.0.2.10-80, or a firewall mark like fwm-1 or fwm-1-ipv6", id)
	proto, rest, _ := strings.Cut(id, "-")
	if proto == "fwm" {
		number, v6 := strings.CutSuffix(rest, "-ipv6")
		mark, err := strconv.ParseUint(number, 10, 32)
		k := lvs.ServiceKey{Mark: uint32(mark), V6: v6}
		if err != nil || ServiceID(k) != id {
			return lvs.ServiceKey{}, wrong
		}
		return k, nil
	}
	k := lvs.ServiceKey{Proto: protoNumber(strings.ToUpper(proto))}
	var ok bool
	if k.VIP, k.Port, ok = parseEndpointID(rest); !ok || k.Proto == 0 || strings.ToLower(proto) != proto {
		return lvs.ServiceKey{}, wrong
	}
	return k, nil
}

// ParseServerID reads what ServerID writes.
func ParseServerID(id string) (lvs.ServerKey, error) {
	var k lvs.ServerKey
	var ok bool
	if k.RIP, k.Port, ok = parseEndpointID(id); !ok {
		return lvs.ServerKey{}, fmt.Errorf("%q names no real server: write its address and port like 10.2.0.1-8080", id)
	}
	return k, nil
}

func parseEndpointID(id string) (packet.Addr, uint16, bool) {
	address, number, _ := strings.Cut(id, "-")
	a, err := netip.ParseAddr(address)
	if err != nil || a.Zone() != "" || a.Is4In6() {
		return packet.Addr{}, 0, false
	}
	port, err := strconv.ParseUint(number, 10, 16)
	if err != nil || strconv.FormatUint(port, 10) != number {
		return packet.Addr{}, 0, false
	}
	return packet.AddrFrom(a), uint16(port), true
}
