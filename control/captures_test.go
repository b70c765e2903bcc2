package control_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"pktdirector/control"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// pair is a packet as it came and as it left.
func pair(t testing.TB, id uint64, from string) []control.PacketRecord {
	was := packettest.Build(t, packettest.Spec{Src: from, Dst: "192.0.2.10:80", Flags: packet.SYN, TTL: 64, Payload: make([]byte, 400)})
	now := packettest.Build(t, packettest.Spec{Src: from, Dst: "10.2.0.1:8080", Flags: packet.SYN, TTL: 63, Payload: make([]byte, 400)})
	came := control.PacketRecord{
		ID: id, Link: "eth0", EtherType: packet.EtherIPv4, Data: was.Bytes(), Len: was.Len(), Verdict: "forwarded", Means: "forwarded on", Known: true, Request: true, Decision: 7,
		Service: lvs.ServiceKey{Proto: packet.TCP, VIP: packet.MustParseAddr("192.0.2.10"), Port: 80}, Server: lvs.ServerKey{RIP: packet.MustParseAddr("10.2.0.1"), Port: 8080},
		Method: "Masq", Before: "NONE", After: "SYN_RECV",
	}
	left := came
	left.Out, left.Link, left.Data = true, "eth1", now.Bytes()
	return []control.PacketRecord{came, left}
}

// TestACaptureTellsBothSidesOfAPacket that its filter chooses on one of them.
func TestACaptureTellsBothSidesOfAPacket(t *testing.T) {
	l, c, _ := serveLive(t)
	v, _ := url.ParseQuery("filter=dst port 8080 and src host 198.51.100.7&snaplen=100")
	q, err := control.ParseCaptureQuery(v)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan *control.CapturedPacket)
	go c.Capture(t.Context(), q, func(p *control.CapturedPacket) bool {
		select {
		case got <- p:
			return true
		case <-t.Context().Done():
			return false
		}
	})
	<-got // a tick: it listens
	l.events.PublishPackets(time.Unix(1, 0), append(pair(t, 1, "198.51.100.8:1"), pair(t, 2, "198.51.100.7:1")...))
	for _, want := range []string{
		"1000000002 2 false eth0 client 100 454 [decision 7 service tcp-192.0.2.10-80, server 10.2.0.1:8080 by Masq, state NONE -> SYN_RECV forwarded: forwarded on]",
		"1000000003 2 true eth1 server 100 454 [decision 7 service tcp-192.0.2.10-80, server 10.2.0.1:8080 by Masq, state NONE -> SYN_RECV rewritten: destination 192.0.2.10:80 -> 10.2.0.1:8080, TTL 64 -> 63]",
	} {
		p := <-got
		for p.Tick {
			p = <-got
		}
		if s := fmt.Sprint(p.Time, p.ID, p.Outgoing, " ", p.Link, " ", p.Side, len(p.Data), p.Length, p.Comments); strings.ReplaceAll(s, " ", "") != strings.ReplaceAll(want, " ", "") {
			t.Errorf("got  %s\nwant %s", s, want)
		}
	}
}

// TestASlowCaptureSlowsNobody: who publishes never waits; what is told and what is lost
// adds up.
func TestASlowCaptureSlowsNobody(t *testing.T) {
	l, c, _ := serveLive(t)
	got := make(chan *control.CapturedPacket)
	go c.Capture(t.Context(), control.CaptureQuery{Snap: control.MaxSnap}, func(p *control.CapturedPacket) bool {
		select {
		case got <- p:
			return true
		case <-t.Context().Done():
			return false
		}
	})
	<-got
	const n = 60_000 // more than may wait
	batch := pair(t, 1, "198.51.100.7:1")
	for range n / 2 {
		l.events.PublishPackets(time.Unix(1, 0), batch) // nobody reads got
	}
	told, lost := 0, uint64(0)
	for told+int(lost) < n {
		p := <-got
		if lost += p.Lost; !p.Tick {
			told++
		}
	}
	if lost == 0 || told < 1000 || told+int(lost) != n {
		t.Errorf("%d told and %d lost of %d", told, lost, n)
	}
}

func TestCapturesAreFew(t *testing.T) {
	_, c, _ := serveLive(t)
	for range 4 {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		began := make(chan bool, 100)
		go c.Capture(ctx, control.CaptureQuery{}, func(*control.CapturedPacket) bool {
			select {
			case began <- true:
			default:
			}
			return true
		})
		<-began
	}
	if err := c.Capture(t.Context(), control.CaptureQuery{}, func(*control.CapturedPacket) bool { return true }); err == nil || !strings.Contains(err.Error(), "4 capture already") {
		t.Errorf("the fifth: %v", err)
	}
}

// FuzzCaptured: whatever bytes packets have and whatever is asked, what is told of them is
// bounded, and nothing panics.
func FuzzCaptured(f *testing.F) {
	f.Add("tcp port 80", 60, []byte{0x45, 0, 0, 40}, []byte{0x45}, true)
	f.Add("", 14, pair(f, 1, "198.51.100.7:1")[0].Data, pair(f, 1, "198.51.100.7:1")[1].Data, false)
	f.Fuzz(func(t *testing.T, text string, snap int, was, now []byte, raw bool) {
		v := url.Values{"filter": {text}, "snaplen": {fmt.Sprint(snap)}}
		q, err := control.ParseCaptureQuery(v)
		if err != nil {
			return
		}
		if again, err := control.ParseCaptureQuery(q.Values()); err != nil || again.Snap != q.Snap || again.Filter.String() != q.Filter.String() {
			t.Fatalf("%v is written as %v: %v", v, q.Values(), err)
		}
		batch := []control.PacketRecord{{ID: 1, Data: was, Len: len(was), Raw: raw, EtherType: packet.EtherIPv4, Verdict: "x"}, {ID: 1, Out: true, Data: now, Len: len(now), Raw: raw, EtherType: packet.EtherIPv6}, {Out: true, Data: now, Len: len(now)}}
		for _, p := range control.Captured(q, batch) {
			if len(p.Data) > q.Snap || len(p.Data) > p.Length || p.Time < 0 || len(p.Comments) > 5 {
				t.Errorf("%+v", p)
			}
		}
	})
}
