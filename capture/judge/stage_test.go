package judge_test

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	"pktdirector/capture"
	"pktdirector/capture/judge"
	"pktdirector/packet"
)

// stage is a director with its network, of which records are made as a capture
// would have them: both interfaces, unless a side is left out.
type stage struct {
	mode     string // nat, dr, tun, fullnat
	tunnel   string // ipip, gre, gue
	v6, udp  bool
	oneArm   bool  // clients' router, director and servers on one segment
	cooked   bool  // as -i any: no destination MAC, but a direction
	quiet    bool  // neighbours are known: no ARP
	onLink   bool  // clients on the director's segment
	snap     int   // bytes of a packet that are captured; 0: all
	noClient bool  // the clients' side is not captured
	noServer bool  // nor is the servers'
	retried  bool  // every SYN is sent twice, the first one gets lost
	cut      bool  // connections begin before the capture
	noise    bool  // health checks, a shell on the director, servers that ask the world
	skew     int64 // ns by which the clock of the servers' side is ahead; with two files
	services int
	servers  int
	hub      bool // what servers of direct routing answer is captured, too
	upTo     int  // packets; the capture ends with the last connection then, or before
	merged   bool // with skew: both sides were merged into one file
	// pick changes who connects, and which server that gets.
	pick func(l *link, i int)
	// broken plays a connection instead of a healthy one, if it reports true.
	broken func(l *link) bool
	// ordinary is called before each connection, for what else happens.
	ordinary func(i int)

	rand    *rand.Rand
	now     int64
	records []capture.Record
	ifaces  [2]*capture.Interface
	n       [2]uint64
	want    map[string]string // server by client
	ids     uint16
	asked   map[string]bool
	// fault changes what a connection does: see conversation.
	fault func(server int) string
}

const (
	front = 0
	back  = 1
)

var (
	routerMAC = packet.MAC{2, 0, 0, 0, 0xa, 0xfe}
	frontMAC  = packet.MAC{2, 0, 0, 0, 0xa, 2}
	backMAC   = packet.MAC{2, 0, 0, 0, 0xb, 0xfe}
)

func (s *stage) serverMAC(i int) packet.MAC { return packet.MAC{2, 0, 0, 0, 0xb, byte(0x10 + i)} }

func (s *stage) addr(v4, v6 string) netip.Addr {
	if s.v6 {
		return netip.MustParseAddr(v6)
	}
	return netip.MustParseAddr(v4)
}

func (s *stage) client(i int) netip.Addr {
	if s.onLink {
		return s.addr(fmt.Sprintf("192.0.2.%d", 100+i), fmt.Sprintf("2001:db8:a::%x", 0x100+i))
	}
	return s.addr(fmt.Sprintf("198.51.100.%d", 1+i), fmt.Sprintf("2001:db8:c::%x", 1+i))
}

func (s *stage) vip(i int) netip.Addr {
	return s.addr(fmt.Sprintf("192.0.2.%d", 80+i), fmt.Sprintf("2001:db8:a::8%x", i))
}

func (s *stage) rip(i int) netip.Addr {
	if s.oneArm || s.mode == "dr" {
		return s.addr(fmt.Sprintf("192.0.2.%d", 11+i), fmt.Sprintf("2001:db8:a::%x", 0x11+i))
	}
	return s.addr(fmt.Sprintf("10.2.0.%d", 11+i), fmt.Sprintf("2001:db8:b::%x", 0x11+i))
}

func (s *stage) dip(side int) netip.Addr {
	if side == front || s.oneArm || s.mode == "dr" {
		return s.addr("192.0.2.2", "2001:db8:a::2")
	}
	return s.addr("10.2.0.254", "2001:db8:b::fe")
}

func (s *stage) ports(service int) (vport, rport uint16) {
	vport = uint16(443 + service)
	if s.mode == "nat" || s.mode == "fullnat" {
		return vport, uint16(8080 + service)
	}
	return vport, vport
}

// put records a frame.
func (s *stage) put(side int, src, dst packet.MAC, kind packet.EtherType, b []byte) {
	s.now += 50_000
	if s.oneArm || s.mode == "dr" {
		side = front
	}
	if s.cooked {
		side = front
	}
	own := src == frontMAC || src == backMAC
	rec := capture.Record{Time: s.now, File: 0, Interface: s.ifaces[side], OrigLen: len(b)}
	rec.SrcMAC, rec.HasSrc, rec.EtherType = src, true, kind
	if s.cooked {
		rec.Direction = capture.Incoming
		if own {
			rec.Direction = capture.Outgoing
		}
		if dst == packet.Broadcast || dst.IsMulticast() {
			rec.Kind = capture.Broadcast
		}
	} else {
		rec.DstMAC, rec.HasDst = dst, true
	}
	if s.snap > 0 && len(b) > s.snap {
		b, rec.Truncated = b[:s.snap], true
	}
	rec.Data = append([]byte{}, b...)
	if s.skew != 0 && side == back {
		rec.Time += s.skew
		if !s.merged {
			rec.File = 1
		}
	}
	s.n[rec.File]++
	rec.Number = s.n[rec.File]
	s.records = append(s.records, rec)
}

func mac4(a netip.Addr) []byte { b := a.As4(); return b[:] }

// resolve has one machine ask for another's MAC.
func (s *stage) resolve(side int, asker packet.MAC, from netip.Addr, target netip.Addr, mac packet.MAC) {
	key := fmt.Sprint(asker, target)
	if s.quiet || s.asked[key] {
		return
	}
	s.asked[key] = true
	s.ask(side, asker, from, target)
	s.answer(side, asker, from, target, mac)
}

func (s *stage) ask(side int, asker packet.MAC, from, target netip.Addr) {
	if s.v6 {
		s.put(side, asker, packet.MAC{0x33, 0x33, 0xff, 0, 0, 1}, packet.EtherIPv6, s.nd(135, from, netip.MustParseAddr("ff02::1:ff00:1"), target, asker))
		return
	}
	s.put(side, asker, packet.Broadcast, packet.EtherARP, s.arp(1, asker, from, packet.MAC{}, target))
}

func (s *stage) answer(side int, asker packet.MAC, from, target netip.Addr, mac packet.MAC) {
	if s.v6 {
		s.put(side, mac, asker, packet.EtherIPv6, s.nd(136, target, from, target, mac))
		return
	}
	s.put(side, mac, asker, packet.EtherARP, s.arp(2, mac, target, asker, from))
}

func (s *stage) arp(op byte, mac packet.MAC, a netip.Addr, tmac packet.MAC, t netip.Addr) []byte {
	b := []byte{0, 1, 8, 0, 6, 4, 0, op}
	b = append(append(b, mac[:]...), mac4(a)...)
	return append(append(b, tmac[:]...), mac4(t)...)
}

func (s *stage) nd(kind byte, from, to, target netip.Addr, mac packet.MAC) []byte {
	t := target.As16()
	b := append([]byte{kind, 0, 0, 0, 0, 0, 0, 0}, t[:]...)
	b = append(append(b, 1+kind-135, 1), mac[:]...)
	return s.ip(from, to, packet.ICMPv6, 255, b)
}

// ip makes an IP packet.
func (s *stage) ip(from, to netip.Addr, proto packet.Proto, ttl byte, payload []byte) []byte {
	if from.Is4() {
		b := make([]byte, 20, 20+len(payload))
		b[0], b[8], b[9] = 0x45, ttl, byte(proto)
		binary.BigEndian.PutUint16(b[2:], uint16(20+len(payload)))
		binary.BigEndian.PutUint16(b[4:], s.ids)
		b[6] = 0x40
		copy(b[12:], mac4(from))
		copy(b[16:], mac4(to))
		packet.PutIPv4Checksum(b)
		return append(b, payload...)
	}
	b := make([]byte, 40, 40+len(payload))
	b[0], b[6], b[7] = 0x60, byte(proto), ttl
	binary.BigEndian.PutUint16(b[4:], uint16(len(payload)))
	f, t := from.As16(), to.As16()
	copy(b[8:], f[:])
	copy(b[24:], t[:])
	return append(b, payload...)
}

// say is one packet of a conversation, to be wrapped in addresses.
type say struct {
	flags    byte
	seq, ack uint32
	payload  int
	text     byte
}

func (s *stage) transport(from, to uint16, m say) (packet.Proto, []byte) {
	if s.udp {
		b := make([]byte, 8+m.payload)
		binary.BigEndian.PutUint16(b, from)
		binary.BigEndian.PutUint16(b[2:], to)
		binary.BigEndian.PutUint16(b[4:], uint16(len(b)))
		for i := range b[8:] {
			b[8+i] = m.text
		}
		return packet.UDP, b
	}
	b := make([]byte, 20+m.payload)
	binary.BigEndian.PutUint16(b, from)
	binary.BigEndian.PutUint16(b[2:], to)
	binary.BigEndian.PutUint32(b[4:], m.seq)
	binary.BigEndian.PutUint32(b[8:], m.ack)
	b[12], b[13] = 0x50, m.flags
	return packet.TCP, b
}

func (s *stage) kind() packet.EtherType {
	if s.v6 {
		return packet.EtherIPv6
	}
	return packet.EtherIPv4
}

// link is one connection's ends.
type link struct {
	client          netip.Addr
	cport           uint16
	service, server int
	lport           uint16 // FullNAT's
	lost            bool   // replies go past the director
}

// request is a client's packet, as it comes in and as it goes on.
func (s *stage) request(l *link, m say, forwarded bool) {
	s.ids++
	vport, rport := s.ports(l.service)
	ttl := byte(63)
	src := routerMAC
	if s.onLink {
		ttl, src = 64, packet.MAC{2, 0, 0, 0, 0xc, byte(l.cport)}
	}
	if !s.noClient {
		if s.onLink {
			s.resolve(front, src, l.client, s.vip(l.service), frontMAC)
		} else {
			s.resolve(front, src, s.addr("192.0.2.1", "2001:db8:a::1"), s.vip(l.service), frontMAC)
		}
		proto, t := s.transport(l.cport, vport, m)
		s.put(front, src, frontMAC, s.kind(), s.ip(l.client, s.vip(l.service), proto, ttl, t))
	}
	if !forwarded || s.noServer {
		return
	}
	out := backMAC
	if s.oneArm || s.mode == "dr" {
		out = frontMAC
	}
	s.resolve(back, out, s.dip(back), s.rip(l.server), s.serverMAC(l.server))
	proto, t := s.transport(l.cport, vport, m)
	inner := s.ip(l.client, s.vip(l.service), proto, ttl-1, t)
	switch s.mode {
	case "nat":
		proto, t = s.transport(l.cport, rport, m)
		inner = s.ip(l.client, s.rip(l.server), proto, ttl-1, t)
	case "fullnat":
		proto, t = s.transport(l.lport, rport, m)
		inner = s.ip(s.dip(back), s.rip(l.server), proto, ttl-1, t)
	case "tun":
		p := packet.IPIP
		if s.v6 {
			p = packet.IPv6P
		}
		switch s.tunnel {
		case "gre":
			inner = append([]byte{0, 0, byte(s.kind() >> 8), byte(s.kind())}, inner...)
			p = packet.GRE
		case "gue":
			h := make([]byte, 12)
			binary.BigEndian.PutUint16(h, 40000+l.cport%1000)
			binary.BigEndian.PutUint16(h[2:], 6080)
			binary.BigEndian.PutUint16(h[4:], uint16(12+len(inner)))
			h[9] = byte(p)
			inner = append(h, inner...)
			p = packet.UDP
		}
		inner = s.ip(s.dip(back), s.rip(l.server), p, ttl-1, inner)
	}
	s.put(back, out, s.serverMAC(l.server), s.kind(), inner)
}

// reply is a server's packet, as it comes to the director and as it goes on; with DR
// and TUN it goes past it.
func (s *stage) reply(l *link, m say) {
	if s.mode == "dr" && s.hub && !l.lost {
		s.ids++
		vport, _ := s.ports(l.service)
		proto, t := s.transport(vport, l.cport, m)
		s.put(front, s.serverMAC(l.server), routerMAC, s.kind(), s.ip(s.vip(l.service), l.client, proto, 64, t))
		return
	}
	if s.mode == "dr" || s.mode == "tun" || l.lost {
		s.now += 300_000
		return
	}
	s.ids++
	vport, rport := s.ports(l.service)
	if !s.noServer {
		to, port, dst := l.client, l.cport, backMAC
		if s.mode == "fullnat" {
			to, port = s.dip(back), l.lport
		}
		if s.oneArm {
			dst = frontMAC
		}
		proto, t := s.transport(rport, port, m)
		s.put(back, s.serverMAC(l.server), dst, s.kind(), s.ip(s.rip(l.server), to, proto, 64, t))
	}
	if !s.noClient {
		dst := routerMAC
		if s.onLink {
			dst = packet.MAC{2, 0, 0, 0, 0xc, byte(l.cport)}
		}
		proto, t := s.transport(vport, l.cport, m)
		s.put(front, frontMAC, dst, s.kind(), s.ip(s.vip(l.service), l.client, proto, 63, t))
	}
}

// conversation is one whole connection.
func (s *stage) conversation(l *link) {
	const (
		syn, ack, psh, fin, rst = 2, 16, 8, 1, 4
	)
	if s.udp {
		for i := range 2 {
			s.request(l, say{payload: 20 + i, text: byte(s.rand.Uint32())}, true)
			s.reply(l, say{payload: 30, text: 'r'})
		}
		return
	}
	c, v := s.rand.Uint32(), s.rand.Uint32()
	fault := ""
	if s.fault != nil {
		fault = s.fault(l.server)
	}
	if !s.cut {
		if s.retried {
			s.request(l, say{flags: syn, seq: c}, fault == "" && s.rand.IntN(2) == 0)
			s.now += 1_000_000_000
		}
		switch fault {
		case "silent":
			for range 3 {
				s.request(l, say{flags: syn, seq: c}, true)
				s.now += 1_000_000_000
			}
			return
		case "refuses":
			s.request(l, say{flags: syn, seq: c}, true)
			s.reply(l, say{flags: rst | ack, ack: c + 1})
			return
		case "gone":
			for range 3 {
				s.request(l, say{flags: syn, seq: c}, false)
				if !s.noServer {
					out := backMAC
					if s.oneArm || s.mode == "dr" {
						out = frontMAC
					}
					s.ask(back, out, s.dip(back), s.rip(l.server))
				}
				s.now += 1_000_000_000
			}
			return
		case "beside":
			l.lost = true // the client completes, though no reply is seen
		}
		s.request(l, say{flags: syn, seq: c}, true)
		s.reply(l, say{flags: syn | ack, seq: v, ack: c + 1})
		s.request(l, say{flags: ack, seq: c + 1, ack: v + 1}, true)
	}
	s.request(l, say{flags: psh | ack, seq: c + 1, ack: v + 1, payload: 100}, true)
	if fault == "blackhole" {
		for range 4 {
			s.request(l, say{flags: psh | ack, seq: c + 101, ack: v + 1, payload: 1400}, true)
			s.now += 400_000_000
		}
		return
	}
	s.reply(l, say{flags: ack | psh, seq: v + 1, ack: c + 101, payload: 200})
	s.request(l, say{flags: ack, seq: c + 101, ack: v + 201}, true)
	s.request(l, say{flags: ack | fin, seq: c + 101, ack: v + 201}, true)
	s.reply(l, say{flags: ack | fin, seq: v + 201, ack: c + 102})
	s.request(l, say{flags: ack, seq: c + 102, ack: v + 202}, true)
}

// noisy adds what is none of the balancing: a health check, a shell on the director,
// a server that asks the world, a multicast.
func (s *stage) noisy() {
	exchange := func(side int, a, b packet.MAC, from, to netip.Addr, fp, tp uint16, ttl byte) {
		was := s.udp
		s.udp = false
		c := s.rand.Uint32()
		for i, m := range []say{{flags: 2, seq: c}, {flags: 18, seq: 9, ack: c + 1}, {flags: 16, seq: c + 1, ack: 10}, {flags: 17, seq: c + 1, ack: 10}, {flags: 17, seq: 10, ack: c + 2}, {flags: 16, seq: c + 2, ack: 11}} {
			s.ids++
			if i == 1 || i == 4 {
				proto, t := s.transport(tp, fp, m)
				s.put(side, b, a, s.kind(), s.ip(to, from, proto, 64, t))
			} else {
				proto, t := s.transport(fp, tp, m)
				s.put(side, a, b, s.kind(), s.ip(from, to, proto, ttl, t))
			}
		}
		s.udp = was
	}
	_, rport := s.ports(0)
	if !s.noServer {
		out := backMAC
		if s.oneArm || s.mode == "dr" {
			out = frontMAC
		}
		for i := range s.servers {
			s.resolve(back, out, s.dip(back), s.rip(i), s.serverMAC(i))
			exchange(back, out, s.serverMAC(i), s.dip(back), s.rip(i), uint16(50000+s.rand.IntN(9000)), rport, 64)
		}
	}
	if !s.noClient && !s.noServer {
		exchange(front, routerMAC, frontMAC, s.addr("198.51.100.200", "2001:db8:c::200"), s.dip(front), 51515, 22, 60)
		if s.mode == "nat" && !s.oneArm {
			from, to := s.rip(0), s.addr("203.0.113.53", "2001:db8:dddd::53")
			for _, hop := range []struct {
				side     int
				src, dst packet.MAC
				ttl      byte
			}{{back, s.serverMAC(0), backMAC, 64}, {front, frontMAC, routerMAC, 63}} {
				was := s.udp
				s.udp = true
				proto, t := s.transport(45454, 53, say{payload: 33, text: 'q'})
				s.put(hop.side, hop.src, hop.dst, s.kind(), s.ip(from, to, proto, hop.ttl, t))
				s.udp = was
			}
		}
	}
	s.put(front, routerMAC, packet.MAC{1, 0, 0x5e, 0, 0, 0xfb}, packet.EtherIPv4, s.ip(netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("224.0.0.251"), packet.UDP, 255, make([]byte, 40)))
}

// play makes n connections, round robin.
func (s *stage) play(n int, seed uint64) *judge.Report {
	s.rand = rand.New(rand.NewPCG(seed, 1))
	s.want, s.asked = map[string]string{}, map[string]bool{}
	s.now = 1_700_000_000_000_000_000
	s.ifaces = [2]*capture.Interface{{Index: 0, Name: "f0"}, {Index: 1, Name: "b0"}}
	if s.servers == 0 {
		s.servers = 3
	}
	s.services = max(1, s.services)
	for i := range n {
		if s.noise && i%5 == 2 {
			s.noisy()
		}
		if s.ordinary != nil {
			s.ordinary(i)
		}
		l := &link{client: s.client(s.rand.IntN(8)), cport: uint16(32768 + i), service: i % s.services, server: (i / s.services) % s.servers, lport: uint16(2000 + i)}
		if s.pick != nil {
			s.pick(l, i)
		}
		_, rport := s.ports(l.service)
		s.want[netip.AddrPortFrom(l.client, l.cport).String()] = netip.AddrPortFrom(s.rip(l.server), rport).String()
		if s.broken == nil || !s.broken(l) {
			s.conversation(l)
		}
		s.now += 20_000_000
	}
	if s.upTo > 0 {
		s.records = s.records[:min(s.upTo, len(s.records))]
		return s.judged()
	}
	s.now += 5_000_000_000
	s.put(front, routerMAC, packet.MAC{1, 0, 0x5e, 0, 0, 0xfb}, packet.EtherIPv4, s.ip(netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("224.0.0.251"), packet.UDP, 255, make([]byte, 40)))
	return s.judged()
}

// judged judges what was recorded.
func (s *stage) judged() *judge.Report {
	slices.SortStableFunc(s.records, func(a, b capture.Record) int { return cmp.Compare(a.Time, b.Time) })
	j := judge.New(judge.Options{Files: []string{"a", "b"}[:1+min(1, s.skew*s.skew)]})
	for i := range s.records {
		j.Add(&s.records[i])
	}
	return j.Report()
}
