package judge_test

import (
	"fmt"
	"testing"

	"pktdirector/capture/judge"
	"pktdirector/packet"
)

// fault is what is wrong, as a stage plays it, and by which codes it may be called
// where one side alone was captured.
type fault struct {
	code  judge.Code
	modes []string
	play  func(s *stage, l *link)
	// sides are the codes of the clients' side and the servers' side alone; empty: it
	// does not show there, which is no finding either.
	clients, servers judge.Code
	past             judge.Code // of the clients' side, where servers answer past the director
	all              bool       // it befalls every server, not the second alone
	udp              bool
}

func (s *stage) open(l *link) (c, v uint32) {
	c, v = s.rand.Uint32(), s.rand.Uint32()
	s.request(l, say{flags: synFlag, seq: c}, true)
	s.reply(l, say{flags: synFlag | ackFlag, seq: v, ack: c + 1})
	s.request(l, say{flags: ackFlag, seq: c + 1, ack: v + 1}, true)
	return c + 1, v + 1
}

// fromElsewhere is a server's packet with another source address, which the director
// sends on as it is.
func (s *stage) fromElsewhere(l *link, m say) {
	_, rport := s.ports(l.service)
	proto, t := s.transport(rport, l.cport, m)
	from := s.addr("10.2.0.77", "2001:db8:b::77")
	if s.oneArm {
		from = s.addr("192.0.2.77", "2001:db8:a::77")
	}
	dst := backMAC
	if s.oneArm {
		dst = frontMAC
	}
	if !s.noServer {
		s.put(back, s.serverMAC(l.server), dst, s.kind(), s.ip(from, l.client, proto, 64, t))
	}
	if !s.noClient {
		to := routerMAC
		if s.onLink {
			to = packet.MAC{2, 0, 0, 0, 0xc, byte(l.cport)}
		}
		s.put(front, frontMAC, to, s.kind(), s.ip(from, l.client, proto, 63, t))
	}
}

// icmp is an ICMP error about a connection's forwarded packet, from a server or a
// router behind the director.
func (s *stage) icmpAbout(l *link, v4kind, v4code, v6kind, v6code byte, inner []byte) {
	if s.noServer {
		return
	}
	out := backMAC
	if s.oneArm || s.mode == "dr" {
		out = frontMAC
	}
	kind, head := packet.ICMP, []byte{v4kind, v4code, 0, 0, 0, 0, 0, 0}
	if s.v6 {
		kind, head = packet.ICMPv6, []byte{v6kind, v6code, 0, 0, 0, 0, 0, 0}
	}
	s.put(back, s.serverMAC(l.server), out, s.kind(), s.ip(s.rip(l.server), s.dip(back), kind, 64, append(head, inner...)))
}

func faults() map[string]fault {
	every := []string{"nat", "dr", "tun", "fullnat"}
	past := []string{"dr", "tun"}
	retry := func(s *stage, l *link, forwarded bool) (c uint32) {
		c = s.rand.Uint32()
		for n := range 3 {
			s.request(l, say{flags: synFlag, seq: c}, forwarded)
			s.now += 1_000_000_000 << n
		}
		return c
	}
	return map[string]fault{
		"a server answers from another address": {code: judge.WrongAddress, modes: []string{"nat"}, udp: true, clients: judge.WrongAddress, servers: judge.WrongAddress, play: func(s *stage, l *link) {
			s.request(l, say{payload: 20, text: byte(l.cport)}, true)
			s.fromElsewhere(l, say{payload: 30, text: 'r'})
		}},
		"large packets vanish though ICMP says so": {code: judge.MTUIgnored, modes: every, clients: judge.MTUIgnored, play: func(s *stage, l *link) {
			c, v := s.open(l)
			for n := range 5 {
				s.request(l, say{flags: pshFlag | ackFlag, seq: c, ack: v, payload: 1460}, false)
				s.tooBig(l, c, 1400)
				s.now += 200_000_000 << n
			}
		}},
		"large packets vanish in the director": {code: judge.MTUBlackHole, modes: every, clients: judge.MTUBlackHole, play: func(s *stage, l *link) {
			c, v := s.open(l)
			for n := range 5 {
				s.request(l, say{flags: pshFlag | ackFlag, seq: c, ack: v, payload: 1460}, false)
				s.now += 200_000_000 << n
			}
		}},
		"large packets vanish behind the director": {code: judge.MTUBlackHole, modes: every, clients: judge.MTUBlackHole, servers: judge.MTUBlackHole, play: func(s *stage, l *link) {
			c, v := s.open(l)
			for n := range 5 {
				s.request(l, say{flags: pshFlag | ackFlag, seq: c, ack: v, payload: 1460}, true)
				s.now += 200_000_000 << n
			}
			s.request(l, say{flags: rstFlag | ackFlag, seq: c + 1460, ack: v}, true)
		}},
		"a server's large packets vanish": {code: judge.MTUBlackHole, modes: []string{"nat", "fullnat"}, clients: judge.MTUBlackHole, servers: judge.MTUBlackHole, play: func(s *stage, l *link) {
			c, v := s.open(l)
			s.request(l, say{flags: pshFlag | ackFlag, seq: c, ack: v, payload: 80}, true)
			for n := range 5 {
				s.reply(l, say{flags: pshFlag | ackFlag, seq: v, ack: c + 80, payload: 1460})
				s.now += 200_000_000 << n
			}
		}},
		"the VIP is missing and the server forwards": {code: judge.VIPMissing, modes: []string{"dr"}, clients: judge.VIPMissing, servers: judge.VIPMissing, play: func(s *stage, l *link) {
			c := s.rand.Uint32()
			for n := range 3 {
				s.request(l, say{flags: synFlag, seq: c}, true)
				vport, _ := s.ports(l.service)
				for ttl := byte(61); ttl > 57; ttl -= 2 { // and back, and again
					proto, t := s.transport(l.cport, vport, say{flags: synFlag, seq: c})
					s.put(front, s.serverMAC(l.server), frontMAC, s.kind(), s.ip(l.client, s.vip(l.service), proto, ttl, t))
					s.put(front, frontMAC, s.serverMAC(l.server), s.kind(), s.ip(l.client, s.vip(l.service), proto, ttl-1, t))
				}
				s.now += 1_000_000_000 << n
			}
		}},
		"the VIP is missing": {code: judge.VIPMissing, modes: past, servers: judge.VIPMissing, clients: judge.Unanswered, play: func(s *stage, l *link) { retry(s, l, true) }},
		"a server does not unwrap the tunnel": {code: judge.ServerICMP, modes: []string{"tun"}, servers: judge.ServerICMP, clients: judge.Unanswered, play: func(s *stage, l *link) {
			c := s.rand.Uint32()
			for n := range 3 {
				s.request(l, say{flags: synFlag, seq: c}, true)
				vport, _ := s.ports(l.service)
				proto, t := s.transport(l.cport, vport, say{flags: synFlag, seq: c})
				p := packet.IPIP
				if s.v6 {
					p = packet.IPv6P
				}
				s.icmpAbout(l, 3, 2, 4, 1, s.ip(s.dip(back), s.rip(l.server), p, 60, s.ip(l.client, s.vip(l.service), proto, 61, t)))
				s.now += 1_000_000_000 << n
			}
		}},
		"a firewall on a server rejects with ICMP": {code: judge.ServerICMP, modes: []string{"nat"}, servers: judge.ServerICMP, clients: judge.Unanswered, play: func(s *stage, l *link) {
			c := s.rand.Uint32()
			for n := range 2 {
				s.request(l, say{flags: synFlag, seq: c}, true)
				_, rport := s.ports(l.service)
				proto, t := s.transport(l.cport, rport, say{flags: synFlag, seq: c})
				s.icmpAbout(l, 3, 10, 1, 1, s.ip(l.client, s.rip(l.server), proto, 61, t))
				s.now += 1_000_000_000 << n
			}
		}},
		"nothing listens": {code: judge.ServerReset, modes: []string{"nat"}, clients: judge.ServerReset, servers: judge.ServerReset, play: func(s *stage, l *link) {
			c := s.rand.Uint32()
			s.request(l, say{flags: synFlag, seq: c}, true)
			s.reply(l, say{flags: rstFlag | ackFlag, ack: c + 1})
		}},
		"nothing listens, and the client hears it past the director": {code: judge.ServerReset, modes: past, servers: judge.ServerReset, play: func(s *stage, l *link) {
			s.request(l, say{flags: synFlag, seq: s.rand.Uint32()}, true)
		}},
		"nothing listens anywhere": {code: judge.ServerReset, modes: []string{"nat"}, all: true, clients: judge.ServerReset, servers: judge.ServerReset, play: func(s *stage, l *link) {
			c := s.rand.Uint32()
			s.request(l, say{flags: synFlag, seq: c}, true)
			s.reply(l, say{flags: rstFlag | ackFlag, ack: c + 1})
		}},
		"no server answers": {code: judge.ServerSilent, modes: []string{"nat"}, all: true, clients: judge.Unanswered, servers: judge.ServerSilent, play: func(s *stage, l *link) { retry(s, l, true) }},
		"a server answers by way of the director": {code: judge.ReplyViaDirector, modes: past, servers: judge.ReplyViaDirector, clients: judge.Unanswered, play: func(s *stage, l *link) {
			c := s.rand.Uint32()
			for n := range 3 {
				s.request(l, say{flags: synFlag, seq: c}, true)
				if vport, _ := s.ports(l.service); !s.noServer {
					proto, t := s.transport(vport, l.cport, say{flags: synFlag | ackFlag, seq: 9, ack: c + 1})
					dst := backMAC
					if s.oneArm || s.mode == "dr" {
						dst = frontMAC
					}
					s.put(back, s.serverMAC(l.server), dst, s.kind(), s.ip(s.vip(l.service), l.client, proto, 64, t))
				}
				s.now += 1_000_000_000 << n
			}
		}},
		"the director sends no reply on": {code: judge.ReplyNotForwarded, modes: []string{"nat"}, play: func(s *stage, l *link) {
			c := s.rand.Uint32()
			was := s.noClient
			for n := range 3 {
				s.request(l, say{flags: synFlag, seq: c}, true)
				s.noClient = true
				s.reply(l, say{flags: synFlag | ackFlag, seq: 9, ack: c + 1})
				s.noClient = was
				s.now += 1_000_000_000 << n
			}
		}, clients: judge.Unanswered, servers: judge.SYNACKUnanswered},
		"the director sends nothing on": {code: judge.NotForwarded, modes: every, clients: judge.Unanswered, play: func(s *stage, l *link) { retry(s, l, false) }},
		"the director resets what it forgot": {code: judge.DirectorReset, modes: every, past: judge.DirectorReset, play: func(s *stage, l *link) {
			c, v := s.open(l)
			s.request(l, say{flags: pshFlag | ackFlag, seq: c, ack: v, payload: 80}, true)
			s.reply(l, say{flags: pshFlag | ackFlag, seq: v, ack: c + 80, payload: 80})
			s.now += 20_000_000_000
			vport, _ := s.ports(l.service)
			s.toPort(l, vport, say{flags: pshFlag | ackFlag, seq: c + 80, ack: v + 80, payload: 80})
			s.fromPort(l, vport, say{flags: rstFlag, seq: v + 80})
		}},
		"a server resets every request": {code: judge.ServerMidReset, modes: []string{"nat"}, clients: judge.ServerMidReset, servers: judge.ServerMidReset, play: func(s *stage, l *link) {
			c, v := s.open(l)
			s.request(l, say{flags: pshFlag | ackFlag, seq: c, ack: v, payload: 80}, true)
			s.reply(l, say{flags: rstFlag | ackFlag, seq: v, ack: c + 80})
		}},
		"no server is available": {code: judge.NoServer, modes: every, all: false, clients: judge.NoServer, play: func(s *stage, l *link) {
			c := s.rand.Uint32()
			for n := range 2 {
				s.request(l, say{flags: synFlag, seq: c}, false)
				if !s.noClient {
					vport, _ := s.ports(l.service)
					proto, t := s.transport(l.cport, vport, say{flags: synFlag, seq: c})
					kind, head := packet.ICMP, []byte{3, 3, 0, 0, 0, 0, 0, 0}
					if s.v6 {
						kind, head = packet.ICMPv6, []byte{1, 4, 0, 0, 0, 0, 0, 0}
					}
					dst := routerMAC
					if s.onLink {
						dst = packet.MAC{2, 0, 0, 0, 0xc, byte(l.cport)}
					}
					s.put(front, frontMAC, dst, s.kind(), s.ip(s.vip(l.service), l.client, kind, 64, append(head, s.ip(l.client, s.vip(l.service), proto, 63, t)...)))
				}
				s.now += 1_000_000_000 << n
			}
		}},
		"clients get no answer": {code: judge.SYNACKUnanswered, modes: []string{"nat"}, clients: judge.SYNACKUnanswered, servers: judge.SYNACKUnanswered, play: func(s *stage, l *link) {
			c := s.rand.Uint32()
			for n := range 3 {
				s.request(l, say{flags: synFlag, seq: c}, true)
				s.reply(l, say{flags: synFlag | ackFlag, seq: 9, ack: c + 1})
				s.now += 1_000_000_000 << n
			}
		}},
	}
}

// TestFaults: each fault is found by name, and alone, whichever method and family, and
// on one side of the director where it shows there.
func TestFaults(t *testing.T) {
	for what, x := range faults() {
		for _, mode := range x.modes {
			for kind, change := range map[string]func(*stage){
				"plain": func(*stage) {}, "IPv6": func(s *stage) { s.v6 = true }, "on link": func(s *stage) { s.onLink = true }, "one arm": func(s *stage) { s.oneArm = true },
				"cooked": func(s *stage) { s.cooked = true }, "clients' side": func(s *stage) { s.noServer = true }, "noise": func(s *stage) { s.noise = true },
				"servers' side": func(s *stage) { s.noClient = true }, "snaplen 96": func(s *stage) { s.snap = 96 }, "clock ahead": func(s *stage) { s.skew = 400_000_000 },
				"clock behind": func(s *stage) { s.skew = -400_000_000 }, "merged, clock behind": func(s *stage) { s.skew, s.merged = -40_000_000, true },
			} {
				s := &stage{mode: mode, servers: 3, udp: x.udp, tunnel: "ipip"}
				change(s)
				want := x.code
				switch {
				case s.noServer && x.past != "" && mode == "tun":
					want = x.past
				case s.noServer:
					want = x.clients
				case s.noClient:
					want = x.servers
				}
				if (s.noServer || s.noClient || s.cooked) && (s.mode == "dr" || s.mode == "fullnat") || s.skew != 0 && (s.mode == "dr" || s.udp) {
					continue // one segment is both sides, or it is not told by the capture
				}
				t.Run(fmt.Sprintf("%s, %s, %s", what, mode, kind), func(t *testing.T) {
					s.broken = func(l *link) bool {
						if x.all || l.server == 1 {
							x.play(s, l)
							return true
						}
						return false
					}
					r := s.play(24, 5)
					var got []judge.Code
					for _, f := range r.Findings {
						got = append(got, f.Code)
					}
					if want == "" && len(got) > 0 || want != "" && (len(got) == 0 || got[0] != want || len(got) > 1 && !x.all) {
						t.Errorf("findings %v, %q is right", got, want)
						for _, f := range r.Findings {
							t.Logf("%s: %s %v", f.Code, f.Text, f.Packets)
						}
					}
					if r.Mode != s.mode && !s.noServer {
						t.Errorf("mode %s", r.Mode)
					}
				})
			}
		}
	}
}
