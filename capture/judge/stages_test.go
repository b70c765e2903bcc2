package judge_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pktdirector/capture/judge"
)

// variants are stages of every method, family and protocol, with what captures of
// strangers differ in.
func variants() map[string]func() *stage {
	all := map[string]func() *stage{}
	for _, mode := range []string{"nat", "dr", "ipip", "gre", "gue", "fullnat"} {
		for _, v6 := range []bool{false, true} {
			for _, udp := range []bool{false, true} {
				for name, change := range map[string]func(*stage){
					"plain":        func(*stage) {},
					"neighbours":   func(s *stage) { s.quiet = true },
					"cut":          func(s *stage) { s.cut = true },
					"repeated SYN": func(s *stage) { s.retried = true },
					"snaplen":      func(s *stage) { s.snap = 128 },
					"noise":        func(s *stage) { s.noise = true },
					"on link":      func(s *stage) { s.onLink = true },
					"one arm":      func(s *stage) { s.oneArm = true },
					"services":     func(s *stage) { s.services = 3 },
					"one server":   func(s *stage) { s.servers = 1 },
					"clock ahead":  func(s *stage) { s.skew = 2_000_000 },
					"clock behind": func(s *stage) { s.skew = -2_000_000 },
					"cooked":       func(s *stage) { s.cooked = true },
					"far ahead":    func(s *stage) { s.skew = 2_500_000_000 },
					"far behind":   func(s *stage) { s.skew = -2_500_000_000 },
					"merged":       func(s *stage) { s.skew, s.merged = -30_000_000, true },
					"merged later": func(s *stage) { s.skew, s.merged = 30_000_000, true },
					"hub":          func(s *stage) { s.hub = true },
					"snaplen 80":   func(s *stage) { s.snap = 80 },
				} {
					if name == "cut" && (udp || mode == "fullnat") || name == "repeated SYN" && udp || name == "hub" && mode != "dr" || s80(name, mode, v6) || strings.HasPrefix(name, "far") && (udp || mode == "dr" || mode == "fullnat") || udp && mode == "fullnat" || name == "cooked" && mode == "dr" {
						continue // it makes no sense, or is not told by the capture
					}
					if name == "neighbours" && mode == "dr" {
						continue // only MACs are known then: see TestServersByMAC
					}
					all[fmt.Sprintf("%s v6=%t udp=%t %s", mode, v6, udp, name)] = func() *stage {
						s := &stage{mode: mode, v6: v6, udp: udp}
						if mode == "ipip" || mode == "gre" || mode == "gue" {
							s.mode, s.tunnel = "tun", mode
						}
						change(s)
						return s
					}
				}
			}
		}
	}
	return all
}

// s80 reports whether 80 bytes of a packet are too few: headers of tunnels are longer.
func s80(name, mode string, v6 bool) bool {
	return name == "snaplen 80" && (v6 && mode != "nat" && mode != "dr" && mode != "fullnat" || mode == "gue")
}

// TestHealthyStages: nothing is found, and every connection's server is right.
func TestHealthyStages(t *testing.T) {
	for name, make := range variants() {
		t.Run(name, func(t *testing.T) {
			s := make()
			r := s.play(24, 7)
			if r.Mode != s.mode {
				t.Errorf("mode %s, it is %s", r.Mode, s.mode)
			}
			if r.VIP != s.vip(0).String() || len(r.VIPs) != s.services {
				t.Errorf("VIPs %v, there are %d, the first %s", r.VIPs, s.services, s.vip(0))
			}
			for _, f := range r.Findings {
				t.Errorf("%s: %s %v", f.Code, f.Text, f.Packets)
			}
			s.compare(t, r)
		})
	}
}

func (s *stage) compare(t *testing.T, r *judge.Report) {
	t.Helper()
	if len(r.Connections) != len(s.want) {
		t.Errorf("%d connections, there are %d", len(r.Connections), len(s.want))
	}
	for _, c := range r.Connections {
		if s.want[c.Client] != c.Server {
			t.Errorf("%s got %q, %q is right", c.Client, c.Server, s.want[c.Client])
		}
	}
}

// TestBrokenStages: what is wrong with one server is found by name, first, and the
// other servers are not accused.
func TestBrokenStages(t *testing.T) {
	for _, test := range []struct {
		fault string
		modes []string
		code  judge.Code
	}{
		{"silent", []string{"nat", "fullnat"}, judge.ServerSilent},
		{"silent", []string{"dr", "tun"}, judge.VIPMissing},
		{"refuses", []string{"nat", "dr", "tun", "fullnat"}, judge.ServerReset},
		{"gone", []string{"nat", "dr", "tun", "fullnat"}, judge.ServerNoARP},
		{"beside", []string{"nat"}, judge.ReplyBypass},
		{"blackhole", []string{"nat", "dr", "tun", "fullnat"}, judge.MTUBlackHole},
	} {
		for _, mode := range test.modes {
			for _, v6 := range []bool{false, true} {
				for name, change := range map[string]func(*stage){
					"plain": func(*stage) {}, "one arm": func(s *stage) { s.oneArm = true }, "noise": func(s *stage) { s.noise = test.fault != "gone" },
					"on link": func(s *stage) { s.onLink = true }, "snaplen": func(s *stage) { s.snap = 128 },
				} {
					t.Run(fmt.Sprintf("%s %s v6=%t %s", test.fault, mode, v6, name), func(t *testing.T) {
						s := &stage{mode: mode, v6: v6, tunnel: "ipip", fault: func(server int) string {
							if server == 1 {
								return test.fault
							}
							return ""
						}}
						change(s)
						r := s.play(18, 3)
						if len(r.Findings) != 1 || r.Findings[0].Code != test.code {
							t.Errorf("findings %v, %s alone is right", r.Findings, test.code)
						}
						if r.Mode != mode {
							t.Errorf("mode %s", r.Mode)
						}
					})
				}
			}
		}
	}
}

// TestOneSideOfStages: nothing is found either where one side alone was captured, and
// the servers' side names the servers.
func TestOneSideOfStages(t *testing.T) {
	for name, make := range variants() {
		s := make()
		if s.mode == "dr" || s.oneArm || s.mode == "fullnat" || s.noise && s.cooked {
			continue // one segment is both sides; FullNAT's servers' side has no client
		}
		if s.mode == "nat" && s.servers == 1 {
			continue // one server looks like one VIP
		}
		t.Run(name, func(t *testing.T) {
			s := make()
			s.noServer = true
			for _, f := range s.play(24, 5).Findings {
				t.Errorf("clients' side: %s: %s %v", f.Code, f.Text, f.Packets)
			}
			s = make()
			s.noClient = true
			r := s.play(24, 5)
			for _, f := range r.Findings {
				t.Errorf("servers' side: %s: %s %v", f.Code, f.Text, f.Packets)
			}
			if r.Mode != s.mode {
				t.Errorf("servers' side: mode %s", r.Mode)
			}
			s.compare(t, r)
		})
	}
}

// TestServersByMAC: where no ARP says which address a server of direct routing has,
// its MAC stands for it.
func TestServersByMAC(t *testing.T) {
	s := &stage{mode: "dr", quiet: true}
	r := s.play(6, 1)
	if got, want := r.Connections[0].Server, "["+s.serverMAC(0).String()+"]:443"; got != want {
		t.Errorf("server %q, want %q", got, want)
	}
}

// TestTooShort: of packets that were cut within TCP's header nothing is known, and a
// note says so.
func TestTooShort(t *testing.T) {
	s := &stage{mode: "nat", v6: true, snap: 46}
	r := s.play(6, 1)
	if len(r.Connections) != 0 || len(r.Findings) != 0 || !slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, "not enough of them was captured") }) {
		t.Errorf("%v, %v, %q", r.Connections, r.Findings, r.Notes)
	}
}

// TestShortCapture: a capture that ends in the middle accuses nobody; but a server
// that completes no handshake for ten times as long as the others take seems to refuse.
func TestShortCapture(t *testing.T) {
	for _, mode := range []string{"nat", "dr", "tun", "fullnat"} {
		for cut := 10; cut < 200; cut += 7 {
			s := &stage{mode: mode, tunnel: "ipip", upTo: cut}
			if r := s.play(24, 2); len(r.Findings) > 0 {
				t.Errorf("%s, cut after %d packets: %v", mode, cut, r.Findings)
			}
		}
	}
	for _, mode := range []string{"dr", "tun"} {
		s := &stage{mode: mode, tunnel: "ipip", upTo: 1 << 20}
		s.broken = func(l *link) bool {
			if l.server == 1 {
				s.request(l, say{flags: synFlag, seq: s.rand.Uint32()}, true)
			}
			return l.server == 1
		}
		if r := s.play(24, 2); len(r.Findings) != 1 || r.Findings[0].Code != judge.ServerReset {
			t.Errorf("%s: %v", mode, r.Findings)
		}
	}
}

// TestOnlySYNs: a capture of SYNs alone, by a filter, accuses nobody; nor does a
// connection that a finding leaves out keep its code.
func TestOnlySYNs(t *testing.T) {
	for _, mode := range []string{"nat", "dr", "tun", "fullnat"} {
		s := &stage{mode: mode, tunnel: "ipip", quiet: true}
		s.broken = func(l *link) bool {
			s.request(l, say{flags: synFlag, seq: s.rand.Uint32()}, true)
			return true
		}
		r := s.play(24, 2)
		if len(r.Findings) > 0 {
			t.Errorf("%s: %v", mode, r.Findings)
		}
		for _, c := range r.Connections {
			if c.Finding != "" {
				t.Errorf("%s: %+v", mode, c)
			}
		}
	}
}
