package judge_test

import (
	"slices"
	"testing"
	"time"

	"pktdirector/capture/judge"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/sched"
)

// TestPicks: connections that a scheduler, persistence and old ports spread, and what
// may be said of it.
func TestPicks(t *testing.T) {
	const servers = 3
	scheduler := func(s *stage, name string, flags lvs.SchedFlags, weights ...int) func(l *link) int {
		key := lvs.ServiceKey{Proto: packet.TCP, VIP: packet.AddrFrom(s.vip(0)), Port: 443}
		var dests []*lvs.Destination
		for i, w := range weights {
			_, port := s.ports(0)
			dests = append(dests, lvs.NewDestination(key, lvs.RealServer{ServerKey: lvs.ServerKey{RIP: packet.AddrFrom(s.rip(i)), Port: port}, Weight: w}, uint32(i)))
		}
		to, err := sched.New(name, sched.Config{Flags: flags}, dests)
		if err != nil {
			t.Fatal(err)
		}
		return func(l *link) int {
			flow := packet.Flow{Src: packet.AddrFrom(l.client), SrcPort: l.cport, Dst: packet.AddrFrom(s.vip(0)), DstPort: 443, Proto: packet.TCP}
			return slices.Index(dests, to.Schedule(sched.Request{Flow: flow, Now: time.Duration(s.now)}))
		}
	}
	// ports has clients come again from ports that they had.
	ports := func(s *stage, choose func(*link) int) func(*link, int) {
		return func(l *link, i int) {
			l.client, l.cport = s.client(i%7), uint16(40000+i%7)
			l.server = choose(l)
		}
	}
	for _, test := range []struct {
		name string
		n    int
		code judge.Code
		pick func(s *stage) func(*link, int)
	}{
		{"rr, ports used again", 28, "", func(s *stage) func(*link, int) { return ports(s, scheduler(s, "rr", 0, 1, 1, 1)) }},
		{"wrr, ports used again", 28, "", func(s *stage) func(*link, int) { return ports(s, scheduler(s, "wrr", 0, 3, 2, 1)) }},
		{"sh, ports used again", 28, "", func(s *stage) func(*link, int) { return ports(s, scheduler(s, "sh", 0, 1, 1, 1)) }},
		{"sh with ports, ports used again", 28, "", func(s *stage) func(*link, int) { return ports(s, scheduler(s, "sh", lvs.FlagPort, 1, 1, 1)) }},
		{"mh with ports, ports used again", 28, "", func(s *stage) func(*link, int) { return ports(s, scheduler(s, "mh", lvs.FlagPort, 1, 1, 1)) }},
		{"rr, old ports go to old servers", 28, judge.PortReuse, func(s *stage) func(*link, int) {
			choose, old := scheduler(s, "rr", 0, 1, 1, 1), map[uint16]int{}
			return func(l *link, i int) {
				// Eight ports each once, then in another order again.
				l.client, l.cport = s.client(0), uint16(40000+i%8*(1+2*(i/8%2))%8)
				if _, known := old[l.cport]; !known {
					old[l.cport] = choose(l)
				}
				l.server = old[l.cport]
			}
		}},
		{"persistence", 60, "", func(s *stage) func(*link, int) { return bound(s, scheduler(s, "rr", 0, 1, 1, 1), nil) }},
		{"persistence, weights 3, 3, 1", 60, "", func(s *stage) func(*link, int) { return bound(s, scheduler(s, "wrr", 0, 3, 3, 1), nil) }},
		{"persistence, a server that gets weight 0", 60, judge.WeightZero, func(s *stage) func(*link, int) {
			return bound(s, scheduler(s, "rr", 0, 1, 1, 1), scheduler(s, "rr", 0, 1, 0, 1))
		}},
	} {
		for _, mode := range []string{"nat", "dr", "tun"} {
			t.Run(test.name+", "+mode, func(t *testing.T) {
				s := &stage{mode: mode, tunnel: "ipip", servers: servers}
				s.pick = test.pick(s)
				r := s.play(test.n, 3)
				var got []judge.Code
				for _, f := range r.Findings {
					got = append(got, f.Code)
				}
				if test.code == "" && len(got) > 0 || test.code != "" && !slices.Equal(got, []judge.Code{test.code}) {
					t.Errorf("findings %v, %q is right; picks as by %v", got, test.code, r.Services[0].Explained)
				}
			})
		}
	}
}

// bound has clients keep their servers. After a third of the connections, later
// chooses for new ones, unless it is nil.
func bound(s *stage, choose, later func(*link) int) func(*link, int) {
	servers := map[int]int{}
	return func(l *link, i int) {
		who := i / 2
		if i%2 == 1 {
			who = i / 2 % 6 // one of the first again
		}
		l.client = s.addr("198.51.100.0", "2001:db8:c::")
		for range who + 1 {
			l.client = l.client.Next()
		}
		if _, known := servers[who]; !known {
			if later != nil && i >= 20 {
				choose = later
			}
			servers[who] = choose(l)
		}
		l.server = servers[who]
	}
}
