package control

import (
	"fmt"

	"pktdirector/lvs"
)

// checkVersion refuses a server of another IP version than its service, unless
// a tunnel leads to it.
func (d *serverDecoder) checkVersion(at value, rs *lvs.RealServer) {
	s := d.service
	if s.Mark == 0 && !s.VIP.IsValid() || !rs.RIP.IsValid() || rs.Method == lvs.Tunnel || rs.RIP.Is4() == s.Is4() {
		return
	}
	what := "VIP " + s.VIP.String()
	if s.Mark != 0 {
		what = "service " + s.ServiceKey.String()
	}
	at.wrong("%s is of another IP version than the %s, which only tun can bridge: give the server an address of the same, or write method: tun",
		rs.RIP, what)
}

// decodeTunnel reads the kind of tunnel to a server. methodKnown says that the
// server's method has been read.
func (d *serverDecoder) decodeTunnel(v value, rs *lvs.RealServer, methodKnown bool) {
	if v.missing() {
		return
	}
	if methodKnown && rs.Method != lvs.Tunnel {
		v.wrong("the server's method is %s, and only tun has tunnels: leave it out, or write method: tun", rs.Method.Short())
	}
	m := v.mapping(keys(tunnelFields())...)
	t := &rs.Tunnel
	if kind := m["type"]; v.needs(kind, "type is missing: ipip, gue or gre") {
		word, ok := kind.text()
		if !ok {
			return
		}
		var err error
		if t.Type, err = lvs.ParseTunnelType(word); err != nil {
			kind.wrong("%v", err)
			return
		}
	} else {
		return
	}
	port := m["port"]
	switch {
	case t.Type != lvs.GUE && !port.missing():
		port.wrong("only gue has a port, %s has none: leave it out", t.Type)
	case t.Type == lvs.GUE && v.needs(port, "port is missing: the UDP port at which the server takes gue, like 6080"):
		n, _ := port.integer(1, 65535)
		t.Port = uint16(n)
	}
	sum := m["checksum"]
	if sum.missing() {
		return
	}
	word, ok := sum.text()
	if !ok {
		return
	}
	got, err := lvs.ParseTunnelChecksum(word)
	switch {
	case err != nil:
		sum.wrong("%v", err)
	case t.Type == lvs.IPIP:
		sum.wrong("an ipip tunnel has no checksum: leave it out")
	case t.Type == lvs.GRE && got == lvs.RemoteChecksum:
		sum.wrong("only gue can have remcsum: write csum or nocsum")
	default:
		t.Checksum = got
	}
}

// tunnelKeys writes a server's tunnel as decodeTunnel reads it, with a comma in
// front; nothing where it is IPIP, the default.
func tunnelKeys(rs *lvs.RealServer) string {
	t := rs.Tunnel
	if t.Type == lvs.IPIP {
		return ""
	}
	port := ""
	if t.Type == lvs.GUE {
		port = fmt.Sprintf("port: %d, ", t.Port)
	}
	return fmt.Sprintf(", tunnel: {type: %s, %schecksum: %s}", t.Type, port, t.Checksum)
}
