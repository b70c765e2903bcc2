package migrate

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"pktdirector/lvs"
	"pktdirector/packet"
)

// number reads a whole number in plain decimal digits.
func number(s string, low, high int64) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) || err == nil && (n < low || n > high):
		return 0, fmt.Errorf("%s is out of range: %d to %d", s, low, high)
	case err != nil || strings.HasPrefix(s, "+"):
		return 0, fmt.Errorf("%q is not a whole number from %d to %d", s, low, high)
	}
	return n, nil
}

// address reads an IP address as keepalived has it: without brackets, prefix length,
// port and zone.
func address(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	switch {
	case err != nil && strings.Contains(s, "/"):
		return a, fmt.Errorf("%q has a prefix length: an address without one is right", s)
	case err != nil && strings.HasPrefix(s, "["):
		return a, fmt.Errorf("%q has brackets: an address and, behind a blank, the port are right", s)
	case err != nil:
		return a, fmt.Errorf("%q is no IP address", s)
	case a.Is4In6():
		return a, fmt.Errorf("%q is an IPv4 address written as IPv6: %s is right", s, a.Unmap())
	case a.Zone() != "":
		return a, fmt.Errorf("%q names a zone: an address without %%%s is right", s, a.Zone())
	}
	return a, nil
}

// port reads the port behind an address; 0 where there is none.
func port(args []string) (n uint16, there bool, err error) {
	if len(args) == 0 {
		return 0, false, nil
	}
	if len(args) > 1 {
		return 0, false, fmt.Errorf("%q stands behind the port %s: an address and a port are right", strings.Join(args[1:], " "), args[0])
	}
	p, err := number(args[0], 0, 65535)
	return uint16(p), true, err
}

// addressAndPort reads ADDRESS [PORT].
func addressAndPort(args []string) (a packet.Addr, p uint16, hasPort bool, err error) {
	if len(args) == 0 {
		return a, 0, false, errors.New("an address is missing behind it")
	}
	ip, err := address(args[0])
	if err != nil {
		return a, 0, false, err
	}
	p, hasPort, err = port(args[1:])
	return packet.AddrFrom(ip), p, hasPort, err
}

// endpoint reads what a virtual_server or a line of its group is for: fwmark NUMBER
// [inet|inet6], or an address or a range of them with a port.
func (v *virtual) endpoint(args []string) ([]lvs.ServiceKey, error) {
	if len(args) == 0 {
		return nil, errors.New("an address, fwmark or group is missing behind it")
	}
	if args[0] == "fwmark" {
		return v.fwmark(args[1:])
	}
	first, last, err := addressRange(args[0])
	if err != nil {
		return nil, err
	}
	p, _, err := port(args[1:])
	if err != nil {
		return nil, err
	}
	var keys []lvs.ServiceKey
	for a := first; ; a = a.Next() {
		if len(keys) == maxServices {
			return nil, fmt.Errorf("%q stands for more than %d addresses", args[0], maxServices)
		}
		keys = append(keys, lvs.ServiceKey{Proto: v.service.Proto, VIP: packet.AddrFrom(a), Port: p})
		if a == last {
			return keys, nil
		}
	}
}

func (v *virtual) fwmark(args []string) ([]lvs.ServiceKey, error) {
	if len(args) == 0 || len(args) > 2 {
		return nil, errors.New("one number is right behind fwmark, and inet or inet6 behind that")
	}
	n, err := number(args[0], 1, 1<<32-1)
	if err != nil {
		return nil, err
	}
	family := v.family
	if len(args) == 2 {
		family = args[1]
	}
	if family != "" && family != "inet" && family != "inet6" {
		return nil, fmt.Errorf("%q is no family of addresses: inet and inet6 are", family)
	}
	return []lvs.ServiceKey{{Mark: uint32(n), V6: family == "inet6" || family == "" && v.serversAre6()}}, nil
}

// serversAre6 reports whether there are servers, and all are for IPv6.
func (v *virtual) serversAre6() bool {
	for _, s := range v.servers {
		if a, _, _, err := addressAndPort(s.args()); err == nil && a.Is4() {
			return false
		}
	}
	return len(v.servers) > 0
}

// addressRange reads an address, or a range of them: 192.0.2.1-9 (IPv6: the last
// group, in hex), 192.0.2.250-192.0.3.9, or 192.0.2.8/29.
func addressRange(s string) (first, last netip.Addr, err error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		if p != p.Masked() {
			return first, last, fmt.Errorf("%q has bits set behind the prefix: %s is right for all of it, or the address alone", s, p.Masked())
		}
		first = p.Addr()
		bytes := first.AsSlice()
		for bit := p.Bits(); bit < first.BitLen(); bit++ {
			bytes[bit/8] |= 0x80 >> (bit % 8)
		}
		last, _ = netip.AddrFromSlice(bytes)
		return first, last, nil
	}
	from, to, isRange := strings.Cut(s, "-")
	if first, err = address(from); err != nil || !isRange {
		return first, first, err
	}
	if last, err = netip.ParseAddr(to); err != nil {
		at := strings.LastIndexAny(from, ".:")
		if last, err = netip.ParseAddr(from[:at+1] + to); err != nil {
			return first, last, fmt.Errorf("%q is no range of addresses: one is like 192.0.2.1-9", s)
		}
	}
	if last.Is4() != first.Is4() || last.Less(first) {
		return first, last, fmt.Errorf("the range %q ends before it begins", s)
	}
	return first, last, nil
}

// group reads the lines of a virtual_server_group.
func (v *virtual) group(g *statement) []keyed {
	var all []keyed
	for _, s := range g.body {
		keys, err := v.endpoint(append([]string{s.key()}, s.args()...))
		if err != nil {
			v.remark(s.at, s.String(), "is left out of the group: %v", err)
			continue
		}
		if strings.Contains(s.key(), "/") {
			v.remark(s.at, s.String(), "is taken for each of the prefix's %d addresses", len(keys))
		}
		for _, k := range keys {
			all = append(all, keyed{k, s.at, v.s.String() + ", " + s.String()})
		}
	}
	return all
}
