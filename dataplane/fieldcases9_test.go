package dataplane_test

import (
	"fmt"
	"testing"
	"time"

	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// Field case 56: of a steady stream of 100 packets of 100 bytes a second, each tenth
// beginning a connection, the rates say so within 2 % after 30 s, and after
// its end they fall to 0. What -Z zeroes in the middle are the totals: no rate becomes
// negative or huge. In DR and TUN no replies are seen, and none are counted.
func TestRatesOfASteadyStream(t *testing.T) {
	for _, m := range []lvs.Method{lvs.Masq, lvs.Route, lvs.Tunnel} {
		t.Run(m.Short(), func(t *testing.T) {
			w := newWorld(t, service("rr", m, 2))
			sent := 0
			step := func() { // 10 ms, and a packet
				flags := uint8(packet.ACK)
				if sent%10 == 0 {
					flags = packet.SYN
				}
				port := fmt.Sprint(10000 + sent/10)
				out := w.in(clientLink, packettest.Build(t, packettest.Spec{Src: client + ":" + port, Dst: vip + ":80", Flags: flags, Payload: make([]byte, 60)}))
				if m == lvs.Masq && len(out) == 1 {
					server := out[0].Flow.Dst
					w.in(serverLink, packettest.Build(t, packettest.Spec{Src: packet.Endpoint(server, 8080), Dst: client + ":" + port, Flags: packet.ACK, Payload: make([]byte, 160)}))
				}
				sent++
				w.now += 10 * time.Millisecond
				if sent%5 == 0 {
					w.w.Tick(w.now)
				}
			}
			within := func(what string, got, want uint64) {
				t.Helper()
				if got*100 < want*98 || got*100 > want*102 {
					t.Errorf("%s is %d, want %d within 2 %%", what, got, want)
				}
			}
			check := func(when string) {
				t.Helper()
				_, total := w.d.Totals()
				for who, r := range map[string]lvs.Stats{"the service": w.d.Status()[0].Rates, "all": total} {
					within(when+" CPS of "+who, r.Conns, 10)
					within(when+" InPPS of "+who, r.InPkts, 100)
					within(when+" InBPS of "+who, r.InBytes, 10000)
					if m == lvs.Masq {
						within(when+" OutPPS of "+who, r.OutPkts, 100)
						within(when+" OutBPS of "+who, r.OutBytes, 20000)
					} else if r.OutPkts != 0 || r.OutBytes != 0 {
						t.Errorf("%s %s: %d packets a second out, whose replies nobody sees", when, who, r.OutPkts)
					}
				}
			}
			for range 15 * 100 {
				step()
			}
			half := w.d.Status()[0].Rates
			w.d.ZeroAll()
			s := w.d.Status()[0]
			if s.Stats != (lvs.Stats{}) || s.Destinations[0].Stats != (lvs.Stats{}) {
				t.Errorf("after -Z the totals are %+v", s.Stats)
			}
			if s.Rates != half {
				t.Errorf("-Z moved the rates from %+v to %+v", half, s.Rates)
			}
			for range 15 * 100 {
				step()
				for _, r := range []lvs.Stats{w.d.Status()[0].Rates, w.d.Status()[0].Destinations[0].Rates} {
					if r.Conns > 11 || r.InPkts > 110 || r.InBytes > 11000 || r.OutPkts > 110 || r.OutBytes > 22000 {
						t.Fatalf("a rate is negative or huge: %+v", r)
					}
				}
			}
			check("after 30 s")
			if got := w.d.Status()[0].Stats; got.InPkts != 1500 || got.InBytes != 150000 || got.Conns != 150 {
				t.Errorf("since -Z: %+v", got)
			}
			// By the kernel's arithmetic 3/4 are left of a rate every 2 s: of 10,000
			// bytes a second 2 after 60 s, and nothing 20 s later.
			gone := func(when string, bytes uint64) {
				t.Helper()
				_, total := w.d.Totals()
				for _, r := range []lvs.Stats{w.d.Status()[0].Rates, w.d.Status()[0].Destinations[0].Rates, total} {
					if r.Conns != 0 || r.InPkts != 0 || r.OutPkts != 0 || r.InBytes > bytes || r.OutBytes > 2*bytes {
						t.Errorf("%s the rates are %+v", when, r)
					}
				}
			}
			w.after(60 * time.Second)
			gone("60 s after the end", 2)
			w.after(20 * time.Second)
			gone("80 s after the end", 0)
		})
	}
}
