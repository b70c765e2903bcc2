package control

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/sched"
)

// serviceDecoder reads the virtual services.
type serviceDecoder struct {
	config *Config
	seen   map[lvs.ServiceKey]int // the index of each
	// sources are, for each service, the place that says what sources it has.
	sources []value
}

func (sd *serviceDecoder) decode(v value, index int) {
	s := lvs.VirtualService{Scheduler: DefaultScheduler}
	m := v.mapping(keys(serviceFields())...)
	sd.key(&s, v, m)
	decodeScheduler(&s, m["scheduler"], m["flags"])
	decodePersistence(&s, m["persistence_timeout"], m["persistence_granularity"])
	decodeEngine(&s, m["persistence_engine"])
	if o := m["ops"]; !o.missing() {
		on, ok := o.boolean()
		if ok && on && s.Mark == 0 && s.Proto != 0 && s.Proto != packet.UDP {
			o.wrong("one-packet scheduling is only for UDP services: leave it out")
		}
		s.OnePacket = on
	}
	if clamp := m["clamp_mss"]; !clamp.missing() {
		s.ClampMSS, _ = clamp.boolean()
	}
	decodeSources(&s, m["sources"], m["source_ports"], m["toa"])
	sources := v // of the service as a whole
	for _, name := range []string{"source_ports", "sources"} {
		if !m[name].missing() {
			sources = m[name]
		}
	}
	sd.sources = append(sd.sources, sources)
	port, timeout := m["port"], m["persistence_timeout"]
	if s.Mark == 0 && s.Port == 0 && port.isZero() && timeout.missing() && !timeout.faulty {
		port.wrong("0 stands for every port, which only a persistent service can have: add persistence_timeout")
	}
	if s.Mark != 0 || s.VIP.IsValid() && s.Proto != 0 && (s.Port != 0 || port.isZero()) {
		if first, there := sd.seen[s.ServiceKey]; there {
			v.wrong("%s stands already in services[%d]: join their servers in one", s.ServiceKey, first)
		} else {
			sd.seen[s.ServiceKey] = index
		}
	}
	c := sd.config
	d := serverDecoder{links: c.Links, service: &s, method: m["method"], seen: map[lvs.ServerKey]int{}}
	if !d.method.missing() {
		d.fallback, d.known = d.methodOf(d.method)
	}
	servers, _ := m["servers"].list()
	for i, sv := range servers {
		s.Servers = append(s.Servers, d.decode(sv, i))
	}
	c.Ruleset.Services = append(c.Ruleset.Services, s)
}

// key reads what identifies the service: VIP, protocol and port, or a firewall
// mark.
func (sd *serviceDecoder) key(s *lvs.VirtualService, v value, m map[string]value) {
	if f := m["fwmark"]; !f.missing() {
		for _, name := range []string{"vip", "protocol", "port"} {
			if !m[name].missing() {
				m[name].wrong("a service by fwmark has none: leave it out, marks say which packets belong to it")
			}
		}
		mark, _ := f.integer(1, maxMark)
		s.Mark = uint32(mark)
		if six := m["ipv6"]; !six.missing() {
			s.V6, _ = six.boolean()
		}
		return
	}
	if six := m["ipv6"]; !six.missing() {
		six.wrong("belongs to a service by fwmark; the VIP says the IP version: leave it out")
	}
	if a := m["vip"]; !v.needs(a, "vip is missing: the address that clients connect to (or fwmark, for a service by firewall mark)") {
	} else if addr, ok := a.unicast(); ok {
		s.VIP = packet.AddrFrom(addr)
		if addr.IsLoopback() {
			a.wrong("%s is reached by no other machine: write an address that clients can connect to", addr)
		}
	}
	if p := m["protocol"]; v.needs(p, "protocol is missing: tcp, udp or sctp") {
		s.Proto = p.protocol()
	}
	if p := m["port"]; v.needs(p, "port is missing: a number from 1 to 65535, or 0 for every port") {
		n, _ := p.integer(0, 65535)
		s.Port = uint16(n)
	}
}

// protocol reads a protocol that can be balanced; it is 0 for any other.
func (v value) protocol() packet.Proto {
	word, ok := v.text()
	if !ok {
		return 0
	}
	for _, p := range []packet.Proto{packet.TCP, packet.UDP, packet.SCTP} {
		if word == strings.ToLower(p.String()) {
			return p
		}
	}
	v.wrong("%q cannot be balanced: write tcp, udp or sctp", word)
	return 0
}

// decodeScheduler reads the scheduler's name and its flags.
func decodeScheduler(s *lvs.VirtualService, name, flags value) {
	if !name.missing() {
		word, ok := name.text()
		if ok && !sched.Known(word) {
			name.wrong("scheduler %q is not known: one of %s", word, strings.Join(sched.Names(), ", "))
			ok = false
		}
		if !ok {
			return // whose flags, nobody knows
		}
		s.Scheduler = word
	}
	items, _ := flags.list()
	known := schedulerFlags(s.Scheduler)
	for _, f := range items {
		word, ok := f.text()
		if !ok {
			continue
		}
		i := slices.Index(known, word)
		if i < 0 {
			f.wrong("%q is no flag of the scheduler %s: one of %s", word, s.Scheduler, strings.Join(known, ", "))
			continue
		}
		s.Flags |= 1 << i
	}
}

// decodePersistence reads how long a client stays with its server, and which
// clients count as one.
func decodePersistence(s *lvs.VirtualService, timeout, granularity value) {
	if !timeout.missing() {
		n, _ := timeout.integer(1, maxTimeout)
		s.Persist = time.Duration(n) * time.Second
	}
	if granularity.missing() {
		return
	}
	if timeout.missing() && !timeout.faulty {
		granularity.wrong("the service is not persistent: add persistence_timeout, or leave this out")
	}
	if s.Mark == 0 && !s.VIP.IsValid() {
		return // of which IP version, nobody knows
	}
	if !s.Is4() {
		n, _ := granularity.integer(1, 128)
		s.MaskBits = int(n)
		return
	}
	word, ok := granularity.text()
	if !ok {
		return
	}
	if ip, err := netip.ParseAddr(word); err == nil && ip.Is4() {
		mask := ip.As4()
		if ones, bits := net.IPMask(mask[:]).Size(); bits != 0 && ones != 0 {
			s.MaskBits = ones
		} else { // with holes, or of nothing: ipvsadm takes those, too
			s.Netmask = packet.AddrFrom(ip)
		}
		return
	}
	granularity.wrong("%q is no netmask: write one like 255.255.255.0 (with an IPv6 VIP, a prefix length)", word)
}

// decodeEngine reads the persistence engine's name.
func decodeEngine(s *lvs.VirtualService, engine value) {
	if engine.missing() {
		return
	}
	word, ok := engine.text()
	if s.Engine = word; ok && (word == "" || !knownEngine(s)) {
		engine.wrong("%q is no persistence engine: write sip, or leave it out", word)
	}
}
