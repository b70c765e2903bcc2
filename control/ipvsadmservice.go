package control

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"pktdirector/lvs"
	"pktdirector/packet"
)

// finish reads what only makes sense together: the server's address beside its
// service, the mask beside the family, the flags beside the scheduler.
func (c *commandLine) finish() error {
	s := &c.Service
	s.Scheduler = c.scheduler
	switch c.Op {
	case 'A', 'E':
		return c.finishService(s)
	case 'a', 'e', 'd':
		return c.finishServer(s)
	}
	return nil
}

func (c *commandLine) finishService(s *lvs.VirtualService) error {
	if c.mask != "" {
		var err error
		if s.MaskBits, s.Netmask, err = maskOf(c.mask, s.Is4()); err != nil {
			return err
		}
	}
	if s.Persist == 0 {
		s.MaskBits, s.Netmask = 0, packet.Addr{}
		if s.Mark == 0 && s.Port == 0 {
			return refused(2, "Zero port specified for non-persistent service")
		}
	}
	if s.OnePacket && s.Mark == 0 && s.Proto != packet.UDP {
		return refused(2, "One-Packet Scheduling is only for UDP virtual services")
	}
	return nil
}

// setFlags reads the scheduler's flags, which may stand before its name.
func (c *commandLine) setFlags() (err error) {
	c.Service.Flags, err = flagsOf(c.scheduler, c.flags)
	return err
}

func (c *commandLine) finishServer(s *lvs.VirtualService) error {
	rs := &c.Server
	if !c.hasPort || !rs.Method.RewritesPorts() && c.Op != 'd' {
		rs.Port = s.Port // only masquerading rewrites ports
	}
	if rs.RIP.Is4() != s.Is4() && rs.Method != lvs.Tunnel && c.Op != 'd' {
		return refused(2, "Different address family is allowed only for tunneling servers")
	}
	return c.checkTunnel()
}

// endpointOf reads host[:port]; an IPv6 address with a port stands in
// brackets, one without a port may not.
func (c *commandLine) endpointOf(s string, proto packet.Proto) (a packet.Addr, port uint16, hasPort bool, err error) {
	if ip, found := c.names.host(s); found {
		return packet.AddrFrom(ip), 0, false, nil
	}
	at := strings.LastIndexByte(s, ':')
	if at < 0 {
		return a, 0, false, errNoEndpoint
	}
	host := s[:at]
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = host[1 : len(host)-1]
	}
	ip, found := c.names.host(host)
	if !found {
		return a, 0, false, errNoEndpoint
	}
	if n, ok := integer(s[at+1:], 0, 65535); ok {
		return packet.AddrFrom(ip), uint16(n), true, nil
	}
	if port, found = c.names.port(s[at+1:], proto); !found {
		return a, 0, false, errNoEndpoint
	}
	return packet.AddrFrom(ip), port, true, nil
}

// inetAton reads an IPv4 address as the C library does: in one to four parts,
// the last of which fills what is left, each decimal, octal (010) or in hex (0x10).
func inetAton(s string) (netip.Addr, bool) {
	parts := strings.Split(s, ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var addr uint64
	for i, part := range parts {
		if strings.ContainsAny(part, "_oObB") && !strings.HasPrefix(part, "0x") && !strings.HasPrefix(part, "0X") || strings.ContainsAny(part, "_+-") {
			return netip.Addr{}, false // what Go reads and C does not
		}
		bits := 8
		if i == len(parts)-1 {
			bits = 8 * (4 - i)
		}
		n, err := strconv.ParseUint(part, 0, 64)
		if err != nil || n >= 1<<bits {
			return netip.Addr{}, false
		}
		addr = addr<<bits | n
	}
	return netip.AddrFrom4([4]byte{byte(addr >> 24), byte(addr >> 16), byte(addr >> 8), byte(addr)}), true
}

// maskOf reads a netmask, or an IPv6 prefix length. A netmask that is no
// prefix is returned as it is.
func maskOf(s string, v4 bool) (prefix int, netmask packet.Addr, err error) {
	if !v4 {
		n, ok := integer(s, 1, 128)
		if !ok {
			return 0, packet.Addr{}, refused(2, "illegal ipv6 netmask specified")
		}
		return int(n), packet.Addr{}, nil
	}
	ip, ok := inetAton(s)
	if !ok {
		return 0, packet.Addr{}, refused(2, "illegal virtual server persistent mask specified")
	}
	mask := ip.As4()
	if ones, _ := net.IPMask(mask[:]).Size(); ones > 0 {
		return ones, packet.Addr{}, nil
	}
	return 0, packet.AddrFrom(ip), nil
}

// schedulerFlags gives the names of a scheduler's flags, from the first bit.
func schedulerFlags(scheduler string) []string {
	names := []string{"flag-1", "flag-2", "flag-3"}
	if scheduler == "sh" || scheduler == "mh" {
		names[0], names[1] = scheduler+"-fallback", scheduler+"-port"
	}
	return names
}

// flagsOf reads the value of -b.
func flagsOf(scheduler, list string) (lvs.SchedFlags, error) {
	var flags lvs.SchedFlags
	if list == "" {
		return 0, nil
	}
	for _, name := range strings.Split(list, ",") {
		i := slices.Index(schedulerFlags(scheduler), name)
		if i < 0 {
			i = slices.Index(schedulerFlags(""), name)
		}
		if i < 0 {
			if slices.Contains(schedulerFlags("sh"), name) || slices.Contains(schedulerFlags("mh"), name) {
				return 0, refused(2, "incompatible scheduler flag `%s'", name)
			}
			return 0, refused(2, "invalid scheduler flag `%s'", name)
		}
		flags |= 1 << i
	}
	return flags, nil
}

// flagNames writes flags as -b takes them.
func flagNames(scheduler string, flags lvs.SchedFlags) string {
	var names []string
	for i, name := range schedulerFlags(scheduler) {
		if flags&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}
