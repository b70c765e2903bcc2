package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pktdirector/control"
	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// TestEventsOfADirector: a handshake, a refused packet and a change, as a listener
// reads them.
func TestEventsOfADirector(t *testing.T) {
	d := newDirector(1, 1000)
	d.SetLinks([]dataplane.LinkInfo{{Name: "eth0", MTU: 1500}})
	vip := packet.MustParseAddr("192.0.2.10")
	var servers []lvs.RealServer
	for _, rip := range []string{"10.2.0.1", "10.2.0.2"} {
		servers = append(servers, lvs.RealServer{ServerKey: lvs.ServerKey{RIP: packet.MustParseAddr(rip), Port: 80}, Weight: 1})
	}
	servers[0].Weight = 0
	if err := d.Apply(lvs.Ruleset{Services: []lvs.VirtualService{{ServiceKey: lvs.ServiceKey{Proto: packet.TCP, VIP: vip, Port: 80}, Scheduler: "wlc", Servers: servers}}}); err != nil {
		t.Fatal(err)
	}
	shown := &source{director: d, config: &control.Config{}, events: newEvents(d)}
	shown.Admin = &administration{director: &guarded{Director: d, keepOff: func(lvs.Ruleset) error { return nil }}, events: shown.events, log: slog.New(slog.DiscardHandler)}
	path := filepath.Join(t.TempDir(), "s")
	api, err := control.Listen(path, shown, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- api.Run(ctx) }()
	defer func() { stop(); <-served }()
	client := control.NewClient(path)
	got := make(chan control.Event, 10)
	go client.Events(ctx, control.EventFilter{}, func(e control.Event) bool { got <- e; return true })
	for shown.events.Wanted() == 0 {
		time.Sleep(time.Millisecond)
	}
	w := d.NewWorker()
	syn := func(to string) *packet.Packet {
		return packettest.Build(t, packettest.Spec{Src: "198.51.100.7:1000", Dst: to, Flags: packet.SYN})
	}
	w.Process([]*packet.Packet{syn("192.0.2.10:80"), syn("192.0.2.10:81")}, 0)
	publish(shown.events, w)
	if _, err := client.PatchServer(t.Context(), "tcp-192.0.2.10-80", "10.2.0.1-80", control.Patch{"weight": 3}); err != nil {
		t.Fatal(err)
	}
	events := map[string]control.Event{}
	for range 5 {
		e := <-got
		if e.Time.IsZero() {
			t.Errorf("an event without time: %+v", e)
		}
		if e.Kind == "drop" {
			events[e.Drop.Verdict] = e
		}
		events[e.Kind] = e
	}
	dec := events["decision"].Decision
	if dec == nil || dec.Service != "tcp-192.0.2.10-80" || dec.Picked != "10.2.0.2-80" || len(dec.Candidates) != 2 || dec.Rule == "" || dec.Flow.Source != "198.51.100.7" {
		t.Fatalf("decision %+v", dec)
	}
	for _, c := range dec.Candidates {
		if c.Picked != (c.Server == "10.2.0.2-80") || c.Why == "" || (c.Score != nil) != c.Picked {
			t.Errorf("candidate %+v", c)
		}
	}
	if s := events["state"].State; s == nil || !s.Began || s.Before != "NONE" || s.After != "SYN_RECV" || s.Direction != "request" || s.Server != "10.2.0.2-80" || s.Flow.DestinationPort != 80 {
		t.Errorf("state %+v", s)
	}
	// There is no route in this test: the first packet ends there, after all.
	if x := events["no_service"].Drop; x == nil || x.Flow == nil || x.Flow.DestinationPort != 81 || x.Flags != "S" || x.Bytes != 40 {
		t.Errorf("drop %+v", x)
	}
	if x := events["no_route"].Drop; x == nil || x.Flow.DestinationPort != 80 {
		t.Errorf("drop %+v", x)
	}
	if a := events["admin"].Admin; a == nil || !strings.HasPrefix(a.By, fmt.Sprintf("uid %d, pid ", os.Getuid())) || len(a.Changes) != 1 || a.Changes[0] != "server 10.2.0.1:80 of TCP 192.0.2.10:80: weight 0 -> 3" || a.Refused != "" {
		t.Errorf("admin %+v", a)
	}
}
