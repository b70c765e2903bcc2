package control

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"pktdirector/lvs"
	"pktdirector/packet"
)

// Running is what a director does of all that a reload can change: what it
// balances, and every setting with its value.
type Running struct {
	Ruleset  lvs.Ruleset
	Sysctl   map[string]string // by name, without net.ipv4.vs
	Timeouts Timeouts
}

// Asked returns what the file asks for. Settings and timeouts that it does not
// name are those of defaults.
func (c *Config) Asked(defaults Running) Running {
	asked := Running{Ruleset: c.Ruleset, Sysctl: map[string]string{}, Timeouts: defaults.Timeouts}
	for name, value := range defaults.Sysctl {
		asked.Sysctl[name] = value
	}
	for _, s := range c.Sysctl {
		asked.Sysctl[s.Name] = s.Value
	}
	for _, f := range timeoutValues() {
		if *f.of(&c.Timeouts) != 0 {
			*f.of(&asked.Timeouts) = *f.of(&c.Timeouts)
		}
	}
	return asked
}

// DefaultTimeouts are those of a director that is told of none.
func DefaultTimeouts() Timeouts {
	return Timeouts{TCP: DefaultTCP, TCPFin: DefaultTCPFin, UDP: DefaultUDP}
}

// timeoutValue is one of the timeouts by its name in the file.
type timeoutValue struct {
	name string
	of   func(*Timeouts) *time.Duration
}

func timeoutValues() []timeoutValue {
	return []timeoutValue{
		{"tcp", func(t *Timeouts) *time.Duration { return &t.TCP }},
		{"tcpfin", func(t *Timeouts) *time.Duration { return &t.TCPFin }},
		{"udp", func(t *Timeouts) *time.Duration { return &t.UDP }},
	}
}

// serviceValue is what a plan shows of a service, and changes as one: values of
// one field only make sense together. The text is all that counts of a value.
type serviceValue struct {
	name string
	text func(*lvs.VirtualService) string
	copy func(to, from *lvs.VirtualService)
}

func serviceValues() []serviceValue {
	return []serviceValue{
		{"scheduler", func(s *lvs.VirtualService) string {
			if flags := flagNames(s.Scheduler, s.Flags); flags != "" {
				return s.Scheduler + " " + flags
			}
			return s.Scheduler
		}, func(to, from *lvs.VirtualService) { to.Scheduler, to.Flags = from.Scheduler, from.Flags }},
		{"persistence", persistenceText, func(to, from *lvs.VirtualService) {
			to.Persist, to.MaskBits, to.Netmask, to.Engine = from.Persist, from.MaskBits, from.Netmask, from.Engine
		}},
		{"ops", func(s *lvs.VirtualService) string { return strconv.FormatBool(s.OnePacket) },
			func(to, from *lvs.VirtualService) { to.OnePacket = from.OnePacket }},
		{"clamp_mss", func(s *lvs.VirtualService) string { return strconv.FormatBool(s.ClampMSS) },
			func(to, from *lvs.VirtualService) { to.ClampMSS = from.ClampMSS }},
		{"sources", func(s *lvs.VirtualService) string { return join(s.Sources.Addrs) },
			func(to, from *lvs.VirtualService) { to.Sources.Addrs = from.Sources.Addrs }},
		{"source_ports", func(s *lvs.VirtualService) string {
			if s.Sources.Ports == (lvs.PortRange{}) {
				return "default"
			}
			return s.Sources.Ports.String()
		}, func(to, from *lvs.VirtualService) { to.Sources.Ports = from.Sources.Ports }},
		{"toa", func(s *lvs.VirtualService) string { return strconv.FormatBool(s.Sources.TOA) },
			func(to, from *lvs.VirtualService) { to.Sources.TOA = from.Sources.TOA }},
	}
}

func persistenceText(s *lvs.VirtualService) string {
	if s.Persist == 0 {
		return "none"
	}
	text := strconv.FormatInt(int64(s.Persist/time.Second), 10)
	switch full := 128; {
	case s.Netmask.IsValid():
		text += " mask " + s.Netmask.String()
	case s.Is4() && s.MaskBits == 32, s.MaskBits == full, s.MaskBits == 0: // each client alone
	default:
		text += " mask " + granularity(s)
	}
	if s.Engine != "" {
		text += " engine " + s.Engine
	}
	return text
}

// serverValue is what a plan shows of a real server, and changes as one.
type serverValue struct {
	name string
	text func(*lvs.RealServer) string
	copy func(to, from *lvs.RealServer)
}

func serverValues() []serverValue {
	return []serverValue{
		{"weight", func(rs *lvs.RealServer) string { return strconv.Itoa(rs.Weight) },
			func(to, from *lvs.RealServer) { to.Weight = from.Weight }},
		{"method", methodText, func(to, from *lvs.RealServer) { to.Method, to.Tunnel = from.Method, from.Tunnel }},
		{"thresholds", func(rs *lvs.RealServer) string { return fmt.Sprintf("%d/%d", rs.Upper, rs.Lower) },
			func(to, from *lvs.RealServer) { to.Upper, to.Lower = from.Upper, from.Lower }},
	}
}

func methodText(rs *lvs.RealServer) string {
	text := rs.Method.Short()
	if rs.Method != lvs.Tunnel || rs.Tunnel == (lvs.TunnelInfo{}) {
		return text
	}
	text += " " + rs.Tunnel.Type.String()
	if rs.Tunnel.Port != 0 {
		text += " port " + strconv.Itoa(int(rs.Tunnel.Port))
	}
	if rs.Tunnel.Checksum != lvs.NoChecksum {
		text += " " + rs.Tunnel.Checksum.String()
	}
	return text
}

// serviceName names a service as plans do: tcp 192.0.2.10:80, or fwmark 1.
func serviceName(k lvs.ServiceKey) string {
	switch {
	case k.Mark != 0 && k.V6:
		return fmt.Sprintf("fwmark %d ipv6", k.Mark)
	case k.Mark != 0:
		return fmt.Sprintf("fwmark %d", k.Mark)
	}
	return strings.ToLower(k.Proto.String()) + " " + packet.Endpoint(k.VIP, k.Port)
}

// marksText writes the rules that give marks, in their order, as one text that
// differs where they do.
func marksText(rules []lvs.MarkRule) string {
	var all []string
	for _, r := range rules {
		text := fmt.Sprintf("%d", r.Mark)
		if len(r.Src) > 0 {
			text += " src " + join(r.Src)
		}
		if len(r.Dst) > 0 {
			text += " dst " + join(r.Dst)
		}
		if r.Proto != 0 {
			text += " " + strings.ToLower(r.Proto.String())
		}
		if len(r.Ports) > 0 {
			text += " port " + join(r.Ports)
		}
		if r.Link >= 0 {
			text += fmt.Sprintf(" link %d", r.Link)
		}
		if r.VLAN != 0 {
			text += fmt.Sprintf(" vlan %d", r.VLAN)
		}
		all = append(all, text)
	}
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, "; ")
}

// join writes a list with commas, and "none" for an empty one.
func join[T fmt.Stringer](items []T) string {
	if len(items) == 0 {
		return "none"
	}
	var all []string
	for _, i := range items {
		all = append(all, i.String())
	}
	return strings.Join(all, ",")
}
