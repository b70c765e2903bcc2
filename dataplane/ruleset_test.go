package dataplane_test

import (
	"reflect"
	"testing"
	"time"

	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/modes/nat"
	"pktdirector/modes/tun"
	"pktdirector/packet"
)

// TestRulesetIsWhatWasApplied reads back what is balanced, after an edit too, and
// applies it to another director.
func TestRulesetIsWhatWasApplied(t *testing.T) {
	at := func(ip string, port uint16) lvs.ServerKey {
		return lvs.ServerKey{RIP: packet.MustParseAddr(ip), Port: port}
	}
	want := lvs.Ruleset{
		Marks: []lvs.MarkRule{{Mark: 7, Link: -1, Proto: packet.UDP}},
		Services: []lvs.VirtualService{
			{ServiceKey: lvs.ServiceKey{Proto: packet.TCP, VIP: packet.MustParseAddr("192.0.2.10"), Port: 80}, Scheduler: "sh", Flags: lvs.FlagPort,
				Persist: time.Minute, MaskBits: 24, Engine: "sip", ClampMSS: true, Servers: []lvs.RealServer{
					{ServerKey: at("10.2.0.2", 8080), Method: lvs.Masq, Weight: 3, Upper: 10, Lower: 5},
					{ServerKey: at("10.2.0.1", 80), Method: lvs.Tunnel, Weight: 0, Tunnel: lvs.TunnelInfo{Type: lvs.GUE, Port: 6080}},
				}},
			{ServiceKey: lvs.ServiceKey{Mark: 7}, Scheduler: "rr"},
		},
	}
	newOne := func() *dataplane.Director {
		return dataplane.New(dataplane.Options{Forwarders: dataplane.Forwarders{lvs.Masq: nat.Masq{}, lvs.Tunnel: tun.New(1)}})
	}
	d := newOne()
	if err := d.Apply(want); err != nil {
		t.Fatal(err)
	}
	key := want.Services[0].ServiceKey
	added := lvs.RealServer{ServerKey: at("10.2.0.3", 80), Method: lvs.Masq, Weight: 1}
	if err := d.AddServer(key, added); err != nil {
		t.Fatal(err)
	}
	want.Services[0].Servers = append(want.Services[0].Servers, added)
	for range 2 {
		if got := d.Ruleset(); !reflect.DeepEqual(got, want) {
			t.Fatalf("got\n%+v\nwant\n%+v", got, want)
		}
		other := newOne()
		if err := other.Apply(d.Ruleset()); err != nil {
			t.Fatal(err)
		}
		d = other
	}
}
