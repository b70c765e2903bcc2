package control

import (
	"fmt"
	"net/netip"

	"pktdirector/lvs"
	"pktdirector/packet"
)

// serverDecoder reads the real servers of one service.
type serverDecoder struct {
	links    []Link
	service  *lvs.VirtualService
	method   value                 // the service's own method key
	fallback lvs.Method            // what it says
	known    bool                  // whether it says something valid
	seen     map[lvs.ServerKey]int // the index of each server
}

func (d *serverDecoder) decode(v value, index int) lvs.RealServer {
	rs := lvs.RealServer{Method: d.fallback, Weight: 1}
	rs.Port = d.service.Port
	m := v.mapping(keys(serverFields())...)
	if a := m["address"]; !v.needs(a, "address is missing: the real server's") {
	} else if addr, ok := a.unicast(); ok {
		rs.RIP = packet.AddrFrom(addr)
		switch vip := d.service.VIP; {
		case addr.IsLoopback():
			a.wrong("%s is this host itself: the director forwards to other machines", addr)
		case vip.IsValid() && rs.RIP == vip:
			a.wrong("%s is the VIP: write the server's own address", addr)
		}
	}
	method := m["method"]
	switch {
	case !method.missing():
		if got, ok := d.methodOf(method); ok {
			rs.Method = got
		}
	case d.method.missing() && !d.method.faulty:
		v.needs(method, "method is missing: write nat, dr, tun or fullnat here, or for all servers at the service")
	}
	d.checkVersion(m["address"], &rs)
	if method.missing() {
		d.checkFullNAT(d.method, &rs)
	} else {
		d.checkFullNAT(method, &rs)
	}
	d.decodeTunnel(m["tunnel"], &rs, d.known || !method.missing())
	if w := m["weight"]; !w.missing() {
		n, _ := w.integer(0, lvs.MaxWeight)
		rs.Weight = int(n)
	}
	if p := m["port"]; !p.missing() {
		n, ok := p.integer(0, 65535)
		rs.Port = uint16(n)
		if service := d.service.Port; ok && !rs.Method.RewritesPorts() && (d.known || !method.missing()) && rs.Port != service {
			instead := fmt.Sprintf("write %d or leave it out", service)
			if service == 0 {
				instead = "leave it out, the server gets the packet's port"
			}
			p.wrong("%d differs from the service's port %d, and %s rewrites no ports: %s", rs.Port, service, rs.Method.Short(), instead)
		}
	}
	decodeThresholds(&rs, m["uthreshold"], m["lthreshold"])
	if rs.RIP.IsValid() {
		if first, there := d.seen[rs.ServerKey]; there {
			v.wrong("%s stands already as servers[%d] of this service: write it once, with the weight it shall have", rs.ServerKey, first)
		} else {
			d.seen[rs.ServerKey] = index
		}
	}
	return rs
}

// decodeThresholds reads the numbers of connections at which a server gets no
// new ones, and below which it gets them again.
func decodeThresholds(rs *lvs.RealServer, upper, lower value) {
	known := !upper.faulty
	if !upper.missing() {
		var n int64
		n, known = upper.integer(0, maxThreshold)
		rs.Upper = uint32(n)
	}
	if !lower.missing() {
		n, ok := lower.integer(0, maxThreshold)
		rs.Lower = uint32(n)
		if ok && known && rs.Lower > rs.Upper {
			lower.wrong("%d is above the upper threshold %d: write uthreshold %d or more, or less here", n, rs.Upper, n)
		}
	}
}

// methodOf reads a forwarding method and refuses direct routing when a link
// cannot do it.
func (d *serverDecoder) methodOf(v value) (lvs.Method, bool) {
	word, ok := v.text()
	if !ok {
		return 0, false
	}
	method, err := lvs.ParseMethod(word)
	if err != nil {
		v.wrong("%v", err)
		return 0, false
	}
	for _, l := range d.links {
		if method == lvs.Route && l.Type == Tundev {
			v.wrong("%s works by the frame's destination MAC, and the link %s is a tundev, which carries packets without frames: "+
				"write nat or tun, or make the link afpacket", word, l.Name)
		}
	}
	return method, true
}

// address reads an IP address without prefix, port or zone.
func (v value) address() (netip.Addr, bool) {
	s, ok := v.text()
	if !ok {
		return netip.Addr{}, false
	}
	a, err := netip.ParseAddr(s)
	switch {
	case err != nil:
		v.wrong("%q is no IP address: write one like 192.0.2.10 or 2001:db8::10, without brackets, prefix length or port", s)
	case a.Zone() != "":
		v.wrong("%q names a zone: write the address without %%%s", s, a.Zone())
	case a.Is4In6():
		v.wrong("%q is an IPv4 address written as IPv6: write %s", s, a.Unmap())
	default:
		return a, true
	}
	return netip.Addr{}, false
}

// unicast reads an address that one machine can have.
func (v value) unicast() (netip.Addr, bool) {
	a, ok := v.address()
	if ok && (a.IsUnspecified() || a.IsMulticast() || a.Is4() && (a.As4()[0] == 0 || a.As4()[0] >= 240)) {
		v.wrong("%s is no unicast address: write one that a single machine can have", a)
		return a, false
	}
	return a, ok
}

// prefix reads an address with a prefix length.
func (v value) prefix() (netip.Prefix, bool) {
	s, ok := v.text()
	if !ok {
		return netip.Prefix{}, false
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		v.wrong("%q is no address with a prefix length: write one like 192.0.2.1/24 or 2001:db8::1/64", s)
		return netip.Prefix{}, false
	}
	return p, true
}
