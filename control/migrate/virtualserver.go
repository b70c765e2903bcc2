package migrate

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"pktdirector/control"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// virtual is a virtual_server being read.
type virtual struct {
	*migration
	s       *statement
	service lvs.VirtualService // without a key
	method  forwarding         // of servers that name none
	named   bool               // a scheduler was
	family  string             // inet or inet6, of a firewall mark
	mask    string
	maskAt  *statement
	ops     *statement
	wrong   error // why there can be no service
	flags   []*statement
	servers []*statement
}

// forwarding is what lvs_method says.
type forwarding struct {
	method lvs.Method
	tunnel lvs.TunnelInfo
}

// virtualServer reads a virtual_server and adds the services that it means: one, or
// those of its group.
func (m *migration) virtualServer(s *statement, groups map[string]*statement, used map[*statement]bool) {
	v := &virtual{migration: m, s: s}
	v.service.Scheduler, v.service.Proto = control.DefaultScheduler, packet.TCP
	for _, one := range s.body {
		v.setting(one)
	}
	if !v.named {
		m.remark(s.at, s.String(), "names no lvs_sched: %s is written, which keepalived takes then", control.DefaultScheduler)
	}
	v.schedulerFlags()
	keys, err := v.keys(groups, used)
	if v.wrong != nil {
		err = v.wrong
	}
	if err != nil {
		m.block(s, "the service is left out: %v", err)
		return
	}
	for _, k := range keys {
		v.add(k)
	}
}

// keyed is a service's key, and where it stands.
type keyed struct {
	lvs.ServiceKey
	at   place
	what string
}

// keys reads what stands behind virtual_server.
func (v *virtual) keys(groups map[string]*statement, used map[*statement]bool) ([]keyed, error) {
	args := v.s.args()
	if len(args) > 0 && args[0] == "group" {
		g := groups[strings.Join(args[1:], " ")]
		if g == nil {
			return nil, fmt.Errorf("there is no virtual_server_group %q", strings.Join(args[1:], " "))
		}
		used[g] = true
		return v.group(g), nil
	}
	if len(args) > 0 && args[0] != "fwmark" {
		if _, err := address(args[0]); err != nil {
			return nil, err // a range, which only a group can have, too
		}
	}
	keys, err := v.endpoint(args)
	if err != nil {
		return nil, err
	}
	return []keyed{{keys[0], v.s.at, v.s.String()}}, nil
}

// add adds the service of one key with its servers.
func (v *virtual) add(k keyed) {
	service := v.service
	service.ServiceKey = k.ServiceKey
	if v.mask != "" {
		v.granularity(&service)
	}
	if service.OnePacket && service.Mark == 0 && service.Proto != packet.UDP {
		v.remark(v.ops.at, v.ops.String(), "is left out: one-packet scheduling is only for UDP services")
		service.OnePacket = false
	}
	t, err := v.migration.add(service, k.at, k.what)
	if err != nil {
		v.block(v.s, "the service %s is left out: %v", k.ServiceKey, err)
		return
	}
	for _, s := range v.servers {
		rs, err := v.server(s, service.Port)
		if err == nil && v.servedBy >= maxServers {
			err = fmt.Errorf("there are more than %d servers", maxServers)
		}
		if err == nil {
			v.servedBy++
			err = t.addServer(rs, s.at)
		}
		if err != nil {
			v.block(s, "the server is left out: %v", err)
		}
	}
}

// setting reads one statement of the block.
func (v *virtual) setting(s *statement) {
	args := s.args()
	var err error
	switch key := s.key(); key {
	case "lvs_sched", "lb_algo":
		if err = needs(args, 1); err == nil {
			v.named = true
			if err = knownScheduler(args[0]); err == nil {
				v.service.Scheduler = args[0]
			} else {
				err = fmt.Errorf("%w; %s is written", err, control.DefaultScheduler)
			}
		}
	case "lvs_method", "lb_kind":
		if v.method, err = forwardingOf(args); err != nil {
			v.wrong = fmt.Errorf("%s: %w", shown(s.String()), err)
			return
		}
	case "protocol":
		if err = needs(args, 1); err == nil {
			v.service.Proto, err = protocol(args[0])
		}
		if err != nil {
			v.wrong = fmt.Errorf("%s: %w", shown(s.String()), err)
			return
		}
	case "persistence_timeout":
		err = v.persistence(args)
	case "persistence_granularity":
		if err = needs(args, 1); err == nil {
			v.mask, v.maskAt = args[0], s
		}
	case "persistence_engine":
		if err = needs(args, 1); err == nil && args[0] != "sip" {
			err = fmt.Errorf("%q is no persistence engine: sip is one", args[0])
		} else if err == nil {
			v.service.Engine = "sip"
			v.remark(s.at, s.String(), "is taken over and has no effect: clients stay by their addresses")
		}
	case "ops":
		v.service.OnePacket, v.ops = true, s
	case "ip_family":
		if err = needs(args, 1); err == nil {
			v.family = args[0]
		}
	case "flag-1", "flag-2", "flag-3", "sh-port", "sh-fallback", "mh-port", "mh-fallback":
		v.flags = append(v.flags, s)
	case "real_server":
		v.servers = append(v.servers, s)
	default:
		v.block(s, "%s", whyNot(key))
	}
	if err != nil {
		v.remark(s.at, s.String(), "is left out: %v", err)
	}
}

// needs refuses another number of words.
func needs(args []string, n int) error {
	if len(args) == n {
		return nil
	}
	return fmt.Errorf("%d words stand behind it: %d is right", len(args), n)
}

func protocol(word string) (packet.Proto, error) {
	for _, p := range []packet.Proto{packet.TCP, packet.UDP, packet.SCTP} {
		if strings.EqualFold(word, p.String()) {
			return p, nil
		}
	}
	return 0, fmt.Errorf("protocol %q cannot be balanced: TCP, UDP and SCTP can", word)
}

func (v *virtual) persistence(args []string) error {
	v.service.Persist = defaultPersist
	if len(args) == 0 {
		return nil
	}
	n, err := number(args[0], 0, int64(lvs.MaxPersist/time.Second))
	if err != nil {
		return fmt.Errorf("%w; %d is written, keepalived's default", err, int(defaultPersist/time.Second))
	}
	v.service.Persist = time.Duration(n) * time.Second // 0: not persistent
	return nil
}

// defaultPersist is that of persistence_timeout without a number.
const defaultPersist = 6 * time.Minute

// granularity reads the mask as the service's IP version has it.
func (v *virtual) granularity(s *lvs.VirtualService) {
	wrong := func(format string, args ...any) {
		v.remark(v.maskAt.at, v.maskAt.String(), "is left out of %s: %s", s.ServiceKey, fmt.Sprintf(format, args...))
	}
	if s.Persist == 0 {
		wrong("the service is not persistent: add persistence_timeout")
		return
	}
	if !s.Is4() {
		n, err := number(v.mask, 1, 128)
		if err != nil {
			wrong("%v", err)
			return
		}
		s.MaskBits = int(n)
		return
	}
	mask, err := netip.ParseAddr(v.mask)
	if err != nil || !mask.Is4() {
		wrong("%q is no netmask: one is like 255.255.255.0", v.mask)
		return
	}
	s.Netmask = packet.AddrFrom(mask)
	for bits := 1; bits <= 32; bits++ {
		if netip.PrefixFrom(netip.AddrFrom4([4]byte{255, 255, 255, 255}), bits).Masked().Addr() == mask {
			s.MaskBits, s.Netmask = bits, packet.Addr{}
		}
	}
}

// schedulerFlags reads the flags, whose meaning depends on the scheduler.
func (v *virtual) schedulerFlags() {
	names := map[string]lvs.SchedFlags{"flag-1": lvs.FlagFallback, "flag-2": lvs.FlagPort, "flag-3": lvs.Flag3,
		"sh-fallback": lvs.FlagFallback, "sh-port": lvs.FlagPort, "mh-fallback": lvs.FlagFallback, "mh-port": lvs.FlagPort}
	for _, s := range v.flags {
		of, _, own := strings.Cut(s.key(), "-")
		if own && of != "flag" && of != v.service.Scheduler {
			v.remark(s.at, s.String(), "is left out: it is a flag of the scheduler %s, and this is %s", of, v.service.Scheduler)
			continue
		}
		v.service.Flags |= names[s.key()]
	}
}

// forwardingOf reads NAT, DR, or TUN [type {ipip|gue port NUM|gre} [nocsum|csum|remcsum]].
func forwardingOf(args []string) (forwarding, error) {
	var f forwarding
	if len(args) == 0 {
		return f, fmt.Errorf("NAT, DR or TUN is missing behind it")
	}
	methods := map[string]lvs.Method{"NAT": lvs.Masq, "DR": lvs.Route, "TUN": lvs.Tunnel}
	method, known := methods[args[0]]
	if !known {
		return f, fmt.Errorf("method %q is not known: NAT, DR and TUN are", args[0])
	}
	f.method = method
	rest := args[1:]
	if len(rest) > 0 && method != lvs.Tunnel {
		return f, fmt.Errorf("%q behind %s has no meaning", strings.Join(rest, " "), args[0])
	}
	for len(rest) > 0 {
		word := rest[0]
		rest = rest[1:]
		var err error
		switch {
		case (word == "type" || word == "port") && len(rest) == 0:
			err = fmt.Errorf("a value is missing behind %s", word)
		case word == "type":
			f.tunnel.Type, err = lvs.ParseTunnelType(rest[0])
			rest = rest[1:]
		case word == "port":
			var n int64
			n, err = number(rest[0], 1, 65535)
			f.tunnel.Port, rest = uint16(n), rest[1:]
		default:
			f.tunnel.Checksum, err = lvs.ParseTunnelChecksum(word)
		}
		if err != nil {
			return f, err
		}
	}
	return f, f.tunnel.Validate()
}

// server reads a real_server of a service with that port.
func (v *virtual) server(s *statement, port uint16) (lvs.RealServer, error) {
	rs := lvs.RealServer{Weight: 1, Method: v.method.method, Tunnel: v.method.tunnel}
	addr, own, hasPort, err := addressAndPort(s.args())
	if err != nil {
		return rs, err
	}
	rs.RIP, rs.Port = addr, port
	for _, one := range s.body {
		if err := v.ofServer(&rs, one); err != nil {
			return rs, fmt.Errorf("%s: %w", shown(one.String()), err)
		}
	}
	switch {
	case !hasPort:
	case rs.Method.RewritesPorts():
		rs.Port = own
	case own != port:
		v.remark(s.at, s.String(), "port %d is left out: %s rewrites no ports, so the server gets the service's %d", own, rs.Method.Short(), port)
	}
	if rs.Lower > rs.Upper {
		v.remark(s.at, s.String(), "lthreshold %d is left out: it is above uthreshold %d", rs.Lower, rs.Upper)
		rs.Lower = 0
	}
	return rs, nil
}

// ofServer reads one statement of a real_server's block. With an error the server
// would be another than keepalived's.
func (v *virtual) ofServer(rs *lvs.RealServer, s *statement) error {
	args := s.args()
	set := func(to *uint32) error {
		if err := needs(args, 1); err != nil {
			return err
		}
		n, err := number(args[0], 0, 1<<32-1)
		*to = uint32(n)
		return err
	}
	switch key := s.key(); key {
	case "weight":
		if err := needs(args, 1); err != nil {
			return err
		}
		n, err := number(args[0], 0, lvs.MaxWeight)
		rs.Weight = int(n)
		return err
	case "uthreshold":
		return set(&rs.Upper)
	case "lthreshold":
		return set(&rs.Lower)
	case "lvs_method", "lb_kind":
		f, err := forwardingOf(args)
		rs.Method, rs.Tunnel = f.method, f.tunnel
		return err
	default:
		v.block(s, "%s", whyNot(key))
	}
	return nil
}

// whyNot says why a word of a virtual_server has no counterpart.
func whyNot(key string) string {
	switch {
	case strings.HasSuffix(key, "_CHECK") || key == "HTTP_GET" || key == "SSL_GET":
		return noChecks
	case slices.Contains([]string{"delay_loop", "delay_before_retry", "retry", "connect_timeout", "warmup", "alpha", "omega", "ha_suspend", "inhibit_on_failure",
		"quorum", "quorum_up", "quorum_down", "hysteresis", "notify_up", "notify_down", "smtp_alert", "virtualhost"}, key):
		return noChecks
	case strings.HasPrefix(key, "sorry_server"):
		return noChecks + ", so nothing would put the sorry server in"
	case key == "snmp_name":
		return "is left out: there is no SNMP"
	case key == "hashed":
		return "is left out: it is a flag that the kernel keeps for itself"
	case key == "nat_mask":
		return "is left out: it has no meaning to keepalived either"
	}
	return "is left out: the word is not known here"
}

const noChecks = "pktdirector has no health checks yet: real servers are not probed"
