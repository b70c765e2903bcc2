package dataplane_test

import (
	"fmt"
	"testing"
	"time"

	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// strangerAddr is the n-th address of a flood.
func strangerAddr(n int) packet.Addr {
	return packet.AddrFrom4([]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
}

// flooder makes SYNs of a flood from one prepared packet: built anew each
// they would take longer than the director does.
type flooder struct {
	p   *packet.Packet
	raw []byte
}

func newFlooder(w *world) *flooder {
	p := packettest.Build(w.t, packettest.Spec{Src: client + ":1000", Dst: vip + ":80", Flags: packet.SYN, Seq: 1000})
	return &flooder{p, append([]byte(nil), p.Bytes()...)}
}

// syn is the n-th SYN.
func (f *flooder) syn(n int) *packet.Packet {
	buf := f.p.Buf
	f.p.Reset(buf, packet.Headroom, len(f.raw))
	copy(f.p.Bytes(), f.raw)
	f.p.EtherType, f.p.Link = packet.EtherIPv4, clientLink
	b := f.p.Bytes()
	strangerAddr(n).Put4(b[12:])
	packet.PutIPv4Checksum(b[:20])
	return f.p
}

func (w *world) setting(name, value string) {
	w.t.Helper()
	if err := w.d.SetTunable(name, value); err != nil {
		w.t.Fatal(err)
	}
}

// A flood of SYNs neither grows the table beyond conn_max nor takes anything
// from established connections, and new clients get through in the middle of it.
func TestASYNFloodStaysWithinConnMax(t *testing.T) {
	for _, m := range methods() {
		t.Run(m.Short(), func(t *testing.T) {
			w := newWorld(t, service("wlc", m, 2))
			w.setting("conn_max", "1000")
			for i := range 500 {
				w.establish(fmt.Sprint(20000 + i))
			}
			f := newFlooder(w)
			for n := range 50_000 {
				w.now += 20 * time.Microsecond
				w.w.Process([]*packet.Packet{f.syn(n)}, w.now)
				if n == 30_000 {
					w.establish("45000")
				}
			}
			if s := w.d.Table(); s.Connections != 1000 || s.Max != 1000 || s.Evicted == 0 {
				t.Errorf("the table is %+v, want 1000 of 1000 connections", s)
			}
			w.wantVerdict(dataplane.TableFull, 0)
			var counted int64
			for _, d := range w.d.Status()[0].Destinations {
				counted += d.Active + d.InAct
			}
			if counted != 1000 {
				t.Errorf("the servers count %d connections, the table has 1000", counted)
			}
			reset := w.d.Count(dataplane.NoConnection)
			for i := range 500 {
				one(t, w.in(clientLink, w.segment(fmt.Sprint(20000+i), packet.ACK)))
			}
			one(t, w.in(clientLink, w.segment("45000", packet.ACK)))
			w.wantVerdict(dataplane.NoConnection, reset)
		})
	}
}

// When all are established nothing makes way: the new one is dropped without
// an answer, so that its client asks again, and counted.
func TestATableOfEstablishedConnectionsRefusesNewOnes(t *testing.T) {
	w := newWorld(t, service("rr", lvs.Masq, 2), udp(service("rr", lvs.Masq, 2)))
	w.setting("conn_max", "10")
	for i := range 10 {
		w.establish(fmt.Sprint(20000 + i))
	}
	if out := w.in(clientLink, w.syn("30000")); len(out) != 0 {
		t.Errorf("left: %v", summaries(out))
	}
	w.wantVerdict(dataplane.TableFull, 1)
	if d := w.d.Status()[0].Destinations; d[0].Stats.Conns != 5 || d[1].Stats.Conns != 5 {
		t.Errorf("the refused connection was counted: %+v", d)
	}
	w.setting("conn_max", "11")
	one(t, w.in(clientLink, w.syn("30000")))
	w.setting("conn_max", "0") // the default again
	one(t, w.in(clientLink, w.syn("30001")))
	if s := w.d.Table(); s.Connections != 12 || s.Max <= 12 {
		t.Errorf("the table is %+v", s)
	}
	if err := w.d.SetTunable("conn_max", "-1"); err == nil {
		t.Error("conn_max -1 was taken")
	}
}

// Persistent services: a flood does not fill the table of templates, and the
// templates of real clients stay.
func TestAFloodOfTemplates(t *testing.T) {
	s := service("rr", lvs.Route, 2)
	s.Persist = 360 * time.Second
	w := newWorld(t, s)
	w.setting("conn_max", "500")
	real := w.establish("20000")
	f := newFlooder(w)
	for n := range 20_000 {
		w.w.Process([]*packet.Packet{f.syn(n)}, w.now)
	}
	if s := w.d.Table(); s.Templates > 500 || s.Connections != 500 {
		t.Errorf("the tables are %+v, want at most 500 of each", s)
	}
	w.wantVerdict(dataplane.TableFull, 0)
	if got := serverOf(one(t, w.in(clientLink, w.syn("20001")))); got != real {
		t.Errorf("after the flood the client is sent to server %d, its template says %d", got, real)
	}
	var templates int64
	for _, d := range w.d.Status()[0].Destinations {
		templates += d.Persistent
	}
	if s := w.d.Table(); int64(s.Templates) != templates {
		t.Errorf("the servers count %d templates, the table has %d", templates, s.Templates)
	}
	w.after(20 * time.Minute)
	if s := w.d.Table(); s.Templates != 0 || s.Connections != 0 {
		t.Errorf("when all is over, the tables are %+v", s)
	}
}

// BenchmarkSYNFlood is a flood of distinct SYNs on a full table of the default
// size: with -benchtime 5000000x five millions beyond it.
func BenchmarkSYNFlood(b *testing.B) {
	w := newShardedWorld(b, 1024, service("wlc", lvs.Route, 3))
	f := newFlooder(w)
	batch := []*packet.Packet{nil}
	n := 0
	syn := func() {
		batch[0] = f.syn(n)
		p := batch[0]
		p.Buf[p.Start+20], p.Buf[p.Start+21] = byte(n>>32), byte(n>>24) // ports beyond 2^24 addresses
		n++
		w.w.Decisions = nil
		w.w.Process(batch, 0)
	}
	for w.d.Table().Connections < w.d.Table().Max {
		syn()
	}
	b.ReportAllocs()
	for b.Loop() {
		syn()
	}
	if s := w.d.Table(); s.Connections > s.Max || w.d.Count(dataplane.TableFull) != 0 {
		b.Errorf("the table is %+v, %d refused", s, w.d.Count(dataplane.TableFull))
	}
}
