package control

import (
	"fmt"
	"io"

	"pktdirector/lvs"
)

// tunnelOptions are ipvsadm's options about a real server's tunnel, besides
// --ipip.
func tunnelOptions() []string {
	return []string{"tun-type", "tun-port", "tun-nocsum", "tun-csum", "tun-remcsum"}
}

// addTunnelOptions adds what they do to an option table.
func (c *commandLine) addTunnelOptions(table map[string]option) {
	t := &c.Server.Tunnel
	table["tun-type"] = option{"tun-type", needsValue, func(v string, _ bool) (err error) {
		if t.Type, err = lvs.ParseTunnelType(v); err != nil {
			return refused(2, "illegal tunnel type specified")
		}
		return nil
	}}
	table["tun-port"] = numberOption("tun-port", "tunnel port", 1, 65535, func(n int64) { t.Port = uint16(n) })
	for sum := lvs.NoChecksum; sum <= lvs.RemoteChecksum; sum++ {
		name := "tun-" + sum.String()
		table[name] = option{name, noValue, func(string, bool) error { t.Checksum = sum; return nil }}
	}
}

// checkTunnel holds a server's tunnel options against its method and against
// each other.
func (c *commandLine) checkTunnel() error {
	t := c.Server.Tunnel
	for _, name := range tunnelOptions() {
		if c.given[name] && c.Server.Method != lvs.Tunnel {
			return refused(2, "Tunnel options conflict with forward method")
		}
	}
	if t.Type == lvs.GUE && t.Port == 0 {
		return refused(2, "You need to supply the '%s' option for the '%s' tunnel type", "tun-port", t.Type)
	}
	illegal := map[lvs.TunnelType][]string{
		lvs.IPIP: {"tun-port", "tun-nocsum", "tun-csum", "tun-remcsum"},
		lvs.GRE:  {"tun-port", "tun-remcsum"},
	}
	for _, name := range illegal[t.Type] {
		if c.given[name] {
			return refused(2, "Illegal '%s' option with the '%s' tunnel type", name, t.Type)
		}
	}
	sums := []string{"tun-nocsum", "tun-csum", "tun-remcsum"}
	for i, name := range sums {
		for _, before := range sums[:i] {
			if c.given[name] && c.given[before] {
				return refused(2, "The option '%s' conflicts with the '%s' option in the '%s' tunnel type", name, before, t.Type)
			}
		}
	}
	return nil
}

// tunnelOf reads back what a listing says of a destination's tunnel.
func tunnelOf(d *Destination) lvs.TunnelInfo {
	var t lvs.TunnelInfo
	if d.Tunnel != nil {
		// What a director wrote can be read; else IPIP is as good as any.
		t.Type, _ = lvs.ParseTunnelType(d.Tunnel.Type)
		t.Checksum, _ = lvs.ParseTunnelChecksum(d.Tunnel.Checksum)
		t.Port = d.Tunnel.Port
	}
	return t
}

// tunnelInfoList is the listing of -L --tun-info.
func tunnelInfoList() *listing {
	return &listing{heading: tunnelInfoHeading, service: serviceWords, server: func(d *Destination) string {
		return fmt.Sprintf(" %-7s %-13s %-6d %-10d %-10d", d.Method, tunnelWord(d), d.Weight, d.Active, d.InAct)
	}}
}

// tunnelWord writes a tunnel as --tun-info shows it: gre:-c, gue:6080:+c.
func tunnelWord(d *Destination) string {
	if d.Method != lvs.Tunnel.String() {
		return "n/a"
	}
	t := tunnelOf(d)
	sum := map[lvs.TunnelChecksum]string{lvs.NoChecksum: "-c", lvs.Checksum: "+c", lvs.RemoteChecksum: "r+c"}[t.Checksum]
	switch t.Type {
	case lvs.GUE:
		return fmt.Sprintf("%s:%d:%s", t.Type, t.Port, sum)
	case lvs.GRE:
		return fmt.Sprintf("%s:%s", t.Type, sum)
	}
	return t.Type.String()
}

// tunnelOption writes a destination's tunnel as -S does, with a blank in front.
func tunnelOption(d *Destination) string {
	if d.Method != lvs.Tunnel.String() {
		return ""
	}
	t := tunnelOf(d)
	words := " --tun-type " + t.Type.String()
	if t.Type == lvs.GUE {
		words += fmt.Sprintf(" --tun-port %d", t.Port)
	}
	if t.Type != lvs.IPIP {
		words += " --tun-" + t.Checksum.String()
	}
	return words
}

// WriteTunnelInfo writes s as "ipvsadm -Ln --tun-info" prints it.
func WriteTunnelInfo(w io.Writer, s *Status) error {
	return writeServices(w, s, tunnelInfoList())
}
