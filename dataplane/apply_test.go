package dataplane_test

import (
	"sync"
	"testing"

	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/modes/nat"
	"pktdirector/packet"
)

// A service is as it was before a change, or as it is after: whoever takes its lock,
// as a new connection does, meets no scheduler of the one with servers of the other.
func TestAServiceChangesAtOneMoment(t *testing.T) {
	d := dataplane.New(dataplane.Options{Forwarders: dataplane.Forwarders{lvs.Masq: nat.Masq{}}})
	state := func(scheduler, server string) lvs.Ruleset {
		return lvs.Ruleset{Services: []lvs.VirtualService{{
			ServiceKey: lvs.ServiceKey{Proto: packet.TCP, VIP: packet.MustParseAddr("192.0.2.10"), Port: 80}, Scheduler: scheduler,
			Servers: []lvs.RealServer{{ServerKey: lvs.ServerKey{RIP: packet.MustParseAddr(server), Port: 80}, Method: lvs.Masq, Weight: 1}},
		}}}
	}
	states := map[string]string{"rr": "10.2.0.1", "wlc": "10.2.0.2"}
	apply := func(scheduler string) {
		if err := d.Apply(state(scheduler, states[scheduler])); err != nil {
			t.Fatal(err)
		}
	}
	apply("rr")
	var looking sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		looking.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				s := d.Status()[0]
				if n := len(s.Destinations); n != 1 || s.Destinations[0].Server.RIP.String() != states[s.Scheduler] {
					t.Errorf("%s with %d servers: %+v", s.Scheduler, n, s.Destinations)
					return
				}
			}
		})
	}
	for range 10_000 {
		apply("wlc")
		apply("rr")
	}
	close(stop)
	looking.Wait()
}
