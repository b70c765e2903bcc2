package judge_test

import (
	"fmt"
	"net/netip"
	"testing"

	"pktdirector/packet"
)

const (
	finFlag, synFlag, rstFlag, pshFlag, ackFlag = 1, 2, 4, 8, 16
)

// ordinary is what happens on networks all day, by name, and is nobody's fault. Each
// is called before every connection of a stage, which is healthy.
func ordinary() map[string]func(s *stage, i int) {
	extra := func(s *stage, i int) *link {
		l := &link{client: s.addr("198.51.100.77", "2001:db8:c::77"), cport: uint16(20000 + i), server: i % s.servers, lport: uint16(9000 + i)}
		if s.onLink {
			l.client = s.client(50)
		}
		return l
	}
	opened := func(s *stage, l *link) (c, v uint32) {
		c, v = s.rand.Uint32(), s.rand.Uint32()
		s.request(l, say{flags: synFlag, seq: c}, true)
		s.reply(l, say{flags: synFlag | ackFlag, seq: v, ack: c + 1})
		s.request(l, say{flags: ackFlag, seq: c + 1, ack: v + 1}, true)
		return c + 1, v + 1
	}
	ended := func(s *stage, l *link, c, v uint32) {
		s.request(l, say{flags: ackFlag | finFlag, seq: c, ack: v}, true)
		s.reply(l, say{flags: ackFlag | finFlag, seq: v, ack: c + 1})
		s.request(l, say{flags: ackFlag, seq: c + 1, ack: v + 1}, true)
	}
	return map[string]func(s *stage, i int){
		"client resets after the answer": func(s *stage, i int) {
			l := extra(s, i)
			c, v := opened(s, l)
			s.request(l, say{flags: pshFlag | ackFlag, seq: c, ack: v, payload: 80}, true)
			s.reply(l, say{flags: pshFlag | ackFlag, seq: v, ack: c + 80, payload: 500})
			s.request(l, say{flags: rstFlag | ackFlag, seq: c + 80, ack: v + 500}, true)
		},
		"client resets in the middle": func(s *stage, i int) {
			l := extra(s, i)
			c, v := opened(s, l)
			s.request(l, say{flags: rstFlag | ackFlag, seq: c, ack: v}, true)
		},
		"half-open scan": func(s *stage, i int) {
			l := extra(s, i)
			c, v := s.rand.Uint32(), s.rand.Uint32()
			s.request(l, say{flags: synFlag, seq: c}, true)
			s.reply(l, say{flags: synFlag | ackFlag, seq: v, ack: c + 1})
			s.request(l, say{flags: rstFlag, seq: c + 1}, true)
		},
		"half-open scan that never resets": func(s *stage, i int) {
			if i%6 != 1 {
				return
			}
			l := extra(s, i)
			c, v := s.rand.Uint32(), s.rand.Uint32()
			s.request(l, say{flags: synFlag, seq: c}, true)
			for range 4 {
				s.reply(l, say{flags: synFlag | ackFlag, seq: v, ack: c + 1})
				s.now += 1_000_000_000
			}
		},
		"closed port of the VIP": func(s *stage, i int) {
			if i%12 != 3 {
				return
			}
			l := extra(s, i)
			s.closed(l, 8888)
		},
		"port scan of the VIP": func(s *stage, i int) { s.closed(extra(s, i), uint16(100+i)) },
		"filtered port of the VIP": func(s *stage, i int) {
			if i%12 != 3 {
				return
			}
			l := extra(s, i)
			c := s.rand.Uint32()
			for range 3 {
				s.toPort(l, 8889, say{flags: synFlag, seq: c})
				s.now += 1_000_000_000
			}
		},
		"slow server": func(s *stage, i int) {
			l := extra(s, i)
			c, v := s.rand.Uint32(), s.rand.Uint32()
			s.request(l, say{flags: synFlag, seq: c}, true)
			s.now += 900_000_000
			s.request(l, say{flags: synFlag, seq: c}, true)
			s.now += 300_000_000
			s.reply(l, say{flags: synFlag | ackFlag, seq: v, ack: c + 1})
			s.request(l, say{flags: ackFlag, seq: c + 1, ack: v + 1}, true)
			s.request(l, say{flags: pshFlag | ackFlag, seq: c + 1, ack: v + 1, payload: 80}, true)
			s.reply(l, say{flags: ackFlag, seq: v + 1, ack: c + 81})
			s.now += 9_000_000_000
			s.reply(l, say{flags: pshFlag | ackFlag, seq: v + 1, ack: c + 81, payload: 900})
			ended(s, l, c+81, v+901)
		},
		"lost segments": func(s *stage, i int) {
			l := extra(s, i)
			c, v := opened(s, l)
			for n := range 4 { // one is lost three times
				s.request(l, say{flags: pshFlag | ackFlag, seq: c, ack: v, payload: 1400}, true)
				s.now += 210_000_000 << n
			}
			s.reply(l, say{flags: ackFlag, seq: v, ack: c + 1400})
			s.request(l, say{flags: pshFlag | ackFlag, seq: c + 1400, ack: v, payload: 1400}, true)
			s.reply(l, say{flags: ackFlag, seq: v, ack: c + 2800})
			for n := range 4 {
				s.reply(l, say{flags: pshFlag | ackFlag, seq: v, ack: c + 2800, payload: 1400})
				s.now += 210_000_000 << n
			}
			s.request(l, say{flags: ackFlag, seq: c + 2800, ack: v + 1400}, true)
			ended(s, l, c+2800, v+1400)
		},
		"keepalives": func(s *stage, i int) {
			if i%8 != 2 {
				return
			}
			l := extra(s, i)
			c, v := opened(s, l)
			s.request(l, say{flags: pshFlag | ackFlag, seq: c, ack: v, payload: 80}, true)
			s.reply(l, say{flags: ackFlag, seq: v, ack: c + 80})
			for n := range 5 {
				s.now += 15_000_000_000
				s.request(l, say{flags: ackFlag, seq: c + 79, ack: v, payload: n % 2}, true)
				s.reply(l, say{flags: ackFlag, seq: v, ack: c + 80})
			}
		},
		"closed window": func(s *stage, i int) {
			if i%8 != 2 {
				return
			}
			l := extra(s, i)
			c, v := opened(s, l)
			s.request(l, say{flags: pshFlag | ackFlag, seq: c, ack: v, payload: 1400}, true)
			s.reply(l, say{flags: ackFlag, seq: v, ack: c + 1400})
			for n := range 5 { // a byte of new data probes for room
				s.request(l, say{flags: ackFlag, seq: c + 1400, ack: v, payload: 1}, true)
				s.reply(l, say{flags: ackFlag, seq: v, ack: c + 1400})
				s.now += 210_000_000 << n
			}
		},
		"server resets after the end": func(s *stage, i int) {
			l := extra(s, i)
			c, v := opened(s, l)
			s.request(l, say{flags: pshFlag | ackFlag, seq: c, ack: v, payload: 80}, true)
			s.reply(l, say{flags: pshFlag | ackFlag, seq: v, ack: c + 80, payload: 500})
			s.reply(l, say{flags: finFlag | ackFlag, seq: v + 500, ack: c + 80})
			s.request(l, say{flags: pshFlag | ackFlag, seq: c + 80, ack: v + 501, payload: 10}, true)
			s.reply(l, say{flags: rstFlag, seq: v + 501})
		},
		"one request that the server resets": func(s *stage, i int) {
			if i != 9 {
				return
			}
			l := extra(s, i)
			c, v := opened(s, l)
			s.request(l, say{flags: pshFlag | ackFlag, seq: c, ack: v, payload: 80}, true)
			s.reply(l, say{flags: rstFlag, seq: v})
		},
		"path MTU discovery": func(s *stage, i int) {
			l := extra(s, i)
			c, v := opened(s, l)
			s.request(l, say{flags: pshFlag | ackFlag, seq: c, ack: v, payload: 1460}, false)
			s.tooBig(l, c, 1400)
			s.now += 3_000_000
			s.request(l, say{flags: pshFlag | ackFlag, seq: c, ack: v, payload: 1360}, true)
			s.request(l, say{flags: pshFlag | ackFlag, seq: c + 1360, ack: v, payload: 100}, true)
			s.reply(l, say{flags: ackFlag, seq: v, ack: c + 1460})
			ended(s, l, c+1460, v)
		},
		"echo": func(s *stage, i int) {
			kind := packet.ICMP
			request, reply := byte(8), byte(0)
			if s.v6 {
				kind, request, reply = packet.ICMPv6, 128, 129
			}
			l := extra(s, i)
			if !s.noClient {
				s.put(front, routerMAC, frontMAC, s.kind(), s.ip(l.client, s.vip(0), kind, 60, []byte{request, 0, 0, 0, 1, byte(i), 0, 1, 'p'}))
				s.put(front, frontMAC, routerMAC, s.kind(), s.ip(s.vip(0), l.client, kind, 64, []byte{reply, 0, 0, 0, 1, byte(i), 0, 1, 'p'}))
			}
		},
		"arping": func(s *stage, i int) {
			// Somebody else looks whether the VIP is there, and wants nothing of it.
			other := packet.MAC{2, 0, 0, 0, 0xa, 0x99}
			if s.noClient {
				return
			}
			s.ask(front, other, s.addr("192.0.2.99", "2001:db8:a::99"), s.vip(0))
			s.answer(front, other, s.addr("192.0.2.99", "2001:db8:a::99"), s.vip(0), frontMAC)
			s.now += 1_000_000_000
		},
		"router probes the VIP": func(s *stage, i int) {
			// A neighbour that was used is asked whether it is there still, by unicast.
			if s.noClient || s.v6 {
				return
			}
			s.now += 5_000_000_000
			from := s.addr("192.0.2.1", "2001:db8:a::1")
			s.put(front, routerMAC, frontMAC, packet.EtherARP, s.arp(1, routerMAC, from, packet.MAC{}, s.vip(0)))
			s.answer(front, routerMAC, from, s.vip(0), frontMAC)
			s.now += 5_000_000_000
		},
		"gratuitous ARP": func(s *stage, i int) {
			if s.noClient || s.v6 {
				return
			}
			s.put(front, frontMAC, packet.Broadcast, packet.EtherARP, s.arp(1, frontMAC, s.vip(0), packet.MAC{}, s.vip(0)))
		},
		"a backup director took over": func(s *stage, i int) {
			// Before the capture's connections, another machine had the VIP.
			if s.noClient || s.v6 || i != 0 {
				return
			}
			other := packet.MAC{2, 0, 0, 0, 0xa, 3}
			s.put(front, other, packet.Broadcast, packet.EtherARP, s.arp(1, other, s.vip(0), packet.MAC{}, s.vip(0)))
			s.now += 10_000_000_000
			s.put(front, frontMAC, packet.Broadcast, packet.EtherARP, s.arp(1, frontMAC, s.vip(0), packet.MAC{}, s.vip(0)))
		},
		"VRRP, IGMP and sync": func(s *stage, i int) {
			const vrrp, igmp = 112, 2
			group := packet.MAC{1, 0, 0x5e, 0, 0, 18}
			s.put(front, frontMAC, group, packet.EtherIPv4, s.ip(netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("224.0.0.18"), vrrp, 255, make([]byte, 20)))
			s.put(front, frontMAC, group, packet.EtherIPv4, s.ip(netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("224.0.0.22"), igmp, 1, make([]byte, 16)))
			b := make([]byte, 60)
			b[0], b[1], b[2], b[3] = 0x22, 0x90, 0x22, 0x90 // 8848
			s.put(front, frontMAC, group, packet.EtherIPv4, s.ip(netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("224.0.0.81"), packet.UDP, 1, b))
		},
		"failing health checks": func(s *stage, i int) {
			// The checker of a server that is out of service, and gets no clients.
			if s.noServer || i%4 != 1 {
				return
			}
			out := backMAC
			if s.oneArm || s.mode == "dr" {
				out = frontMAC
			}
			_, rport := s.ports(0)
			n := s.servers + 1
			s.resolve(back, out, s.dip(back), s.rip(n), s.serverMAC(n))
			was := s.udp
			s.udp = false
			c := s.rand.Uint32()
			proto, t := s.transport(uint16(47000+i), rport, say{flags: synFlag, seq: c})
			s.put(back, out, s.serverMAC(n), s.kind(), s.ip(s.dip(back), s.rip(n), proto, 64, t))
			proto, t = s.transport(rport, uint16(47000+i), say{flags: rstFlag | ackFlag, ack: c + 1})
			s.put(back, s.serverMAC(n), out, s.kind(), s.ip(s.rip(n), s.dip(back), proto, 64, t))
			s.udp = was
		},
		"a server that is gone and out of service": func(s *stage, i int) {
			if s.noServer {
				return
			}
			out := backMAC
			if s.oneArm || s.mode == "dr" {
				out = frontMAC
			}
			s.ask(back, out, s.dip(back), s.rip(s.servers+2))
			s.now += 1_000_000_000
		},
		"late packet of an old connection": func(s *stage, i int) {
			if i != 9 {
				return
			}
			// The director knows nothing of it any more and resets it.
			l := extra(s, i)
			s.toPort(l, 443, say{flags: ackFlag, seq: 77, ack: 88})
			s.fromPort(l, 443, say{flags: rstFlag, seq: 88})
		},
	}
}

// toPort is a client's packet to a port of the first VIP, which is not sent on.
func (s *stage) toPort(l *link, port uint16, m say) {
	if s.noClient {
		return
	}
	was := s.udp
	s.udp = false
	src := routerMAC
	if s.onLink {
		src = packet.MAC{2, 0, 0, 0, 0xc, byte(l.cport)}
	}
	proto, t := s.transport(l.cport, port, m)
	s.put(front, src, frontMAC, s.kind(), s.ip(l.client, s.vip(0), proto, 63, t))
	s.udp = was
}

// fromPort is the director's own answer.
func (s *stage) fromPort(l *link, port uint16, m say) {
	if s.noClient {
		return
	}
	was := s.udp
	s.udp = false
	dst := routerMAC
	if s.onLink {
		dst = packet.MAC{2, 0, 0, 0, 0xc, byte(l.cport)}
	}
	proto, t := s.transport(port, l.cport, m)
	s.put(front, frontMAC, dst, s.kind(), s.ip(s.vip(0), l.client, proto, 64, t))
	s.udp = was
}

// closed is a SYN to a port that nobody serves.
func (s *stage) closed(l *link, port uint16) {
	c := s.rand.Uint32()
	s.toPort(l, port, say{flags: synFlag, seq: c})
	s.fromPort(l, port, say{flags: rstFlag | ackFlag, ack: c + 1})
}

// tooBig is the director's ICMP error about a client's segment.
func (s *stage) tooBig(l *link, seq uint32, mtu uint16) {
	if s.noClient || s.udp {
		return
	}
	vport, _ := s.ports(l.service)
	proto, t := s.transport(l.cport, vport, say{flags: pshFlag | ackFlag, seq: seq, payload: 1460})
	quoted := s.ip(l.client, s.vip(l.service), proto, 63, t)
	kind, head := packet.ICMP, []byte{3, 4, 0, 0, 0, 0, byte(mtu >> 8), byte(mtu)}
	if s.v6 {
		kind, head = packet.ICMPv6, []byte{2, 0, 0, 0, 0, 0, byte(mtu >> 8), byte(mtu)}
	}
	dst := routerMAC
	if s.onLink {
		dst = packet.MAC{2, 0, 0, 0, 0xc, byte(l.cport)}
	}
	s.put(front, frontMAC, dst, s.kind(), s.ip(s.vip(l.service), l.client, kind, 64, append(head, quoted[:min(len(quoted), 500)]...)))
}

// TestOrdinaryNoise: what happens all day is no finding, in any method, on either
// side or both, and hides no connection's server.
func TestOrdinaryNoise(t *testing.T) {
	for what, happens := range ordinary() {
		for _, mode := range []string{"nat", "dr", "ipip", "gre", "gue", "fullnat"} {
			for kind, change := range map[string]func(*stage){
				"plain": func(*stage) {}, "IPv6": func(s *stage) { s.v6 = true }, "on link": func(s *stage) { s.onLink = true }, "one arm": func(s *stage) { s.oneArm = true },
				"cooked": func(s *stage) { s.cooked = true }, "hub": func(s *stage) { s.hub = true }, "clients' side": func(s *stage) { s.noServer = true },
				"servers' side": func(s *stage) { s.noClient = true }, "snaplen 96": func(s *stage) { s.snap = 96 },
			} {
				s := &stage{mode: mode, servers: 3}
				if mode == "ipip" || mode == "gre" || mode == "gue" {
					s.mode, s.tunnel = "tun", mode
				}
				change(s)
				if s.hub && s.mode != "dr" || (s.noServer || s.noClient || s.cooked) && (s.mode == "dr" || s.mode == "fullnat") {
					continue // it makes no sense, or is not told by the capture
				}
				t.Run(fmt.Sprintf("%s, %s, %s", what, mode, kind), func(t *testing.T) {
					s.ordinary = func(i int) { happens(s, i) }
					r := s.play(24, 11)
					if r.Mode != s.mode && !s.noServer {
						t.Errorf("mode %s, it is %s", r.Mode, s.mode)
					}
					if r.VIP != s.vip(0).String() && !(s.noClient && s.mode == "nat") {
						t.Errorf("VIP %s, it is %s", r.VIP, s.vip(0))
					}
					for _, f := range r.Findings {
						t.Errorf("%s: %s %v", f.Code, f.Text, f.Packets)
					}
					if s.noServer {
						return
					}
					got := map[string]string{}
					for _, c := range r.Connections {
						got[c.Client] = c.Server
					}
					for client, server := range s.want {
						if got[client] != server {
							t.Errorf("%s got %q, %q is right", client, got[client], server)
						}
					}
				})
			}
		}
	}
}
