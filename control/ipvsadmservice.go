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
	if s.Mark != 0 {
		s.V6 = c.v6
	}
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
	if s.OnePacket && s.Mark == 0 && s.Proto != packet.UDP {
		return refused(2, "One-Packet Scheduling is only for UDP virtual services")
	}
	var err error
	if s.Flags, err = flagsOf(s.Scheduler, c.flags); err != nil {
		return err
	}
	if c.mask != "" {
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
	return nil
}

func (c *commandLine) finishServer(s *lvs.VirtualService) error {
	proto := s.Proto
	if proto == 0 {
		proto = packet.TCP
	}
	addr, port, hasPort, err := endpointOf(c.server, proto)
	if err != nil {
		return refused(2, "illegal real server address[:port] specified")
	}
	rs := &c.Server
	rs.RIP, rs.Port = addr, port
	if !hasPort || rs.Method != lvs.Masq && c.Op != 'd' {
		rs.Port = s.Port // only masquerading rewrites ports
	}
	switch {
	case rs.RIP.Is4() != s.Is4() && rs.Method != lvs.Tunnel && c.Op != 'd':
		return refused(2, "Different address family is allowed only for tunneling servers")
	case c.given["tun-type"] && rs.Method != lvs.Tunnel:
		return refused(2, "Tunnel options conflict with forward method")
	case c.tunType == "gue" && c.tunPort == "":
		return refused(2, "You need to supply the 'tun-port' option for the 'gue' tunnel type")
	case c.tunType != "" && c.tunType != "ipip":
		return refused(255, "tunnel type %s is not supported: ipip is", c.tunType)
	}
	return nil
}

// endpointOf reads address[:port]; an IPv6 address with a port stands in
// brackets, one without a port may not.
func endpointOf(s string, proto packet.Proto) (a packet.Addr, port uint16, hasPort bool, err error) {
	if ip, err := netip.ParseAddr(s); err == nil {
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
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return a, 0, false, errNoEndpoint
	}
	if port, err = portOf(s[at+1:], proto); err != nil {
		return a, 0, false, errNoEndpoint
	}
	return packet.AddrFrom(ip), port, true, nil
}

// portOf reads a port's number or well-known name.
func portOf(s string, proto packet.Proto) (uint16, error) {
	if n, err := strconv.ParseUint(s, 10, 16); err == nil {
		return uint16(n), nil
	}
	if s == "" || s[0] < 'a' || s[0] > 'z' {
		return 0, errNoEndpoint
	}
	network := "tcp"
	if proto == packet.UDP {
		network = "udp"
	}
	n, err := net.LookupPort(network, s)
	return uint16(n), err
}

// maskOf reads a netmask, or an IPv6 prefix length. A netmask that is no
// prefix is returned as it is.
func maskOf(s string, v4 bool) (prefix int, netmask packet.Addr, err error) {
	if !v4 {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > 128 {
			return 0, packet.Addr{}, refused(2, "illegal ipv6 netmask specified")
		}
		return n, packet.Addr{}, nil
	}
	ip, err := netip.ParseAddr(s)
	if err != nil || !ip.Is4() {
		return 0, packet.Addr{}, refused(2, "illegal network mask specified")
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
