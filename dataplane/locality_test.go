package dataplane_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
	"pktdirector/sched"
)

// The same packets in the same order give the same picks, however many workers
// take turns with them and by every scheduler: with connections that end, weights
// that change and, for half of the runs, persistence.
func TestTheSameOrderGivesTheSamePicksWhateverTheWorkers(t *testing.T) {
	for _, scheduler := range sched.Names() {
		for _, persist := range []time.Duration{0, time.Minute} {
			t.Run(fmt.Sprintf("%s, persistence %v", scheduler, persist), func(t *testing.T) {
				s := service(scheduler, lvs.Route, 4)
				s.Persist = persist
				for i := range s.Servers {
					s.Servers[i].Weight = 1 + 3*i
				}
				first := picksOf(t, s, 1)
				if scheduler != "none" && strings.Count(first, "-") > len(first)*3/4 { // ovf fills up
					t.Fatalf("hardly anything was picked: %s", first)
				}
				for _, workers := range []int{2, 8} {
					if picks := picksOf(t, s, workers); picks != first {
						t.Errorf("%d workers:\n%s\n1 worker:\n%s", workers, picks, first)
					}
				}
			})
		}
	}
}

// picksOf plays 300 connections on workers that take turns and writes down the
// server of each, "-" for none.
func picksOf(t *testing.T, s lvs.VirtualService, workers int) string {
	w := newWorld(t, s)
	all := []*dataplane.Worker{w.w}
	for len(all) < workers {
		all = append(all, w.d.NewWorker())
	}
	turn := 0
	send := func(i int, flags uint8) (server string) {
		from := fmt.Sprintf("198.51.100.%d:%d", 1+i%60, 10000+i)
		p := packettest.Build(t, packettest.Spec{Src: from, Dst: vip + ":80", Flags: flags})
		p.Link = clientLink
		turn++
		for _, o := range all[turn%workers].Process([]*packet.Packet{p}, w.now) {
			if o.Flow.Proto == packet.TCP && o.Link == serverLink {
				return fmt.Sprint(serverOf(o))
			}
		}
		return "-"
	}
	var picks strings.Builder
	for i := range 300 {
		picks.WriteString(send(i, packet.SYN))
		send(i, packet.ACK)
		if i%3 == 0 {
			send(i/2, packet.RST)
		}
		if i%70 == 69 {
			w.weigh(s, 1+i/70%4, i%5)
			w.pass(11 * time.Second)
		}
	}
	return picks.String()
}
