package dataplane_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// The tests of this file come from problem reports of people who run LVS
// directors; each is named after what they saw.

func methods() []lvs.Method { return []lvs.Method{lvs.Masq, lvs.Route, lvs.Tunnel} }

// A sender with checksum offload leaves only the pseudo-header sum; the mark
// that says so must survive the director, and what NAT changes must be in it.
func TestUnfinishedChecksumStaysFinishable(t *testing.T) {
	for _, m := range methods() {
		w := newWorld(t, service("rr", m, 1))
		p := packettest.Build(t, packettest.Spec{Src: client + ":40000", Dst: vip + ":80", Flags: packet.SYN, Partial: true})
		out := w.in(clientLink, p)
		if len(out) != 1 || !out[0].CsumPartial {
			t.Fatalf("%v: %d packets left", m, len(out))
		}
		packet.FinishChecksum(out[0])
		if err := packettest.Verify(out[0].Bytes()); err != nil {
			t.Errorf("%v: after finishing: %v", m, err)
		}
	}
}

// A checksum that was wrong on arrival is wrong on departure: the director
// never repairs a damaged packet.
func TestDamageIsNeverRepaired(t *testing.T) {
	for _, m := range methods() {
		w := newWorld(t, service("rr", m, 1))
		p := packettest.Build(t, packettest.Spec{Src: client + ":40000", Dst: vip + ":80", Flags: packet.SYN, Payload: []byte("data")})
		p.Buf[p.End-1] ^= 1
		out := w.in(clientLink, p)
		if len(out) != 1 || packettest.Verify(out[0].Bytes()) == nil {
			t.Errorf("%v: %d packets left, damage repaired", m, len(out))
		}
	}
}

// A super-frame is judged by the size of its segments, and the sender is
// never told that they are too big.
func TestSuperFramesAreNotTooBig(t *testing.T) {
	for _, m := range methods() {
		w := newWorld(t, service("rr", m, 1))
		w.establish("40000")
		size := uint16(1448)
		if m == lvs.Tunnel {
			size = 1440
		}
		p := packettest.Build(t, packettest.Spec{Src: client + ":40000", Dst: vip + ":80", Flags: packet.ACK | packet.PSH, Payload: make([]byte, 3*int(size)), GSOSize: size})
		out := w.in(clientLink, p)
		if len(out) != 1 || out[0].GSOSize != size || out[0].Flow.Proto != packet.TCP {
			t.Fatalf("%v: %d packets left: %v", m, len(out), summaries(out))
		}
		w.wantVerdict(dataplane.TooBig, 0)
		d := w.d.Status()[0].Destinations[0].Stats
		// SYN, ACK and three segments, each with its own header.
		if want := uint64(2*40 + 3*(40+int(size))); d.InPkts != 5 || d.InBytes != want {
			t.Errorf("%v: counted %d packets of %d bytes, want 5 of %d", m, d.InPkts, d.InBytes, want)
		}
	}
}

func TestOwnFramesAndOthersAreNotForwarded(t *testing.T) {
	for class, v := range map[packet.Class]dataplane.Verdict{packet.Outgoing: dataplane.Outgoing, packet.OtherHost: dataplane.OtherHost} {
		w := newWorld(t, service("rr", lvs.Tunnel, 1))
		p := w.syn("40000")
		p.Class = class
		if out := w.in(clientLink, p); len(out) != 0 {
			t.Errorf("%v: forwarded", v)
		}
		w.wantVerdict(v, 1)
	}
	w := newWorld(t, service("rr", lvs.Route, 1))
	cut := w.syn("40000")
	cut.Truncated = true
	if out := w.in(clientLink, cut); len(out) != 0 {
		t.Error("a cut frame was forwarded")
	}
	w.wantVerdict(dataplane.Truncated, 1)
}

// rr over eight workers is still rr: scheduler state is per service.
func TestWorkersShareOneRound(t *testing.T) {
	for _, scheduler := range []string{"rr", "wlc", "lc", "wrr"} {
		for _, workers := range []int{1, 2, 8} {
			w := newWorld(t, service(scheduler, lvs.Route, 4))
			var mu sync.Mutex
			got := map[int]int{}
			var wg sync.WaitGroup
			for g := range workers {
				worker := w.d.NewWorker()
				var batch []*packet.Packet
				for i := g; i < 400; i += workers {
					p := w.syn(fmt.Sprint(10000 + i))
					p.Link = clientLink
					batch = append(batch, p)
				}
				wg.Go(func() {
					for _, p := range batch {
						for _, o := range worker.Process([]*packet.Packet{p}, 0) {
							mu.Lock()
							got[serverOf(o)]++
							mu.Unlock()
						}
					}
				})
			}
			wg.Wait()
			for i := 1; i <= 4; i++ {
				if got[i] != 100 {
					t.Errorf("%s with %d workers: %v, want 100 each", scheduler, workers, got)
					break
				}
			}
		}
	}
}

// A frame's VLAN tag comes in metadata and goes out again.
func TestTheVLANTagIsKept(t *testing.T) {
	w := newWorld(t)
	w.d.SetHost(dataplane.HostTable{Routes: []dataplane.Route{{Dst: mustPrefix("0.0.0.0/0"), Link: clientLink}}})
	w.d.Learn(dataplane.Neighbour{Link: clientLink, VLAN: 100, Addr: addr(rip(1)), MAC: serverMAC(1)})
	w.apply(service("rr", lvs.Route, 1))
	p := w.syn("40000")
	p.Tagged, p.VLAN, p.VLANType = true, 3<<13|100, packet.EtherVLAN
	out := one(t, w.in(clientLink, p))
	if !out.Tagged || out.VLAN != 3<<13|100 || out.DstMAC != serverMAC(1) {
		t.Errorf("left with tag %v %#x to %v", out.Tagged, out.VLAN, out.DstMAC)
	}
}

func TestTTLIsUsedUpByTheDirector(t *testing.T) {
	for _, m := range methods() {
		w := newWorld(t, service("rr", m, 1))
		p := packettest.Build(t, packettest.Spec{Src: client + ":40000", Dst: vip + ":80", Flags: packet.SYN, TTL: 1})
		e := one(t, w.in(clientLink, p))
		icmp := e.Buf[e.L4:]
		if icmp[0] != 11 || icmp[1] != 0 || e.Flow.Src != addr(vip) || e.Flow.Dst != addr(client) || e.Link != clientLink {
			t.Errorf("%v: ICMP %d/%d %v", m, icmp[0], icmp[1], e.Flow)
		}
		if quoted := icmp[8:]; quoted[8] != 1 || packet.AddrFrom4(quoted[16:]) != addr(vip) {
			t.Errorf("%v: quotes TTL %d to %v", m, quoted[8], packet.AddrFrom4(quoted[16:]))
		}
		// As in the kernel, the entry is made all the same.
		if d := w.d.Status()[0].Destinations[0]; d.Active != 1 {
			t.Errorf("%v: ActiveConn %d, want 1", m, d.Active)
		}
		out := w.in(clientLink, w.syn("40001"))
		if len(out) != 1 || out[0].Buf[out[0].L3+8] != 63 || packettest.Verify(out[0].Bytes()) != nil {
			t.Errorf("%v: TTL 64 left as %d", m, out[0].Buf[out[0].L3+8])
		}
	}
}

// Two directors that point at each other end a packet by its TTL.
func TestALoopOfTwoDirectorsEnds(t *testing.T) {
	a, b := newWorld(t, service("rr", lvs.Route, 1)), newWorld(t, service("rr", lvs.Route, 1))
	frames := 0
	out := a.in(clientLink, a.syn("40000"))
	for at := b; len(out) == 1 && out[0].Flow.Proto == packet.TCP; {
		frames++
		if frames > 100 {
			t.Fatal("the loop does not end")
		}
		p := out[0]
		p.Class = packet.ToUs
		out = at.in(clientLink, p)
		if at == a {
			at = b
		} else {
			at = a
		}
	}
	if frames > 63 {
		t.Errorf("%d frames, want at most 63", frames)
	}
}

// The outer header is complete, whatever the size.
func TestOuterHeader(t *testing.T) {
	w := newWorld(t, service("rr", lvs.Tunnel, 1))
	out := one(t, w.in(clientLink, packettest.Build(t, packettest.Spec{Src: client + ":40000", Dst: vip + ":80", Flags: packet.SYN, TOS: 0xb8})))
	h := out.Bytes()
	if h[0] != 0x45 || h[9] != 4 || h[1] != 0xb8 || h[6] != 0x40 || h[8] != 63 || binary.BigEndian.Uint16(h[4:]) != 0 {
		t.Errorf("outer header %x: want version 4, IHL 5, protocol 4, TOS b8, DF, TTL 63, id 0", h[:20])
	}
	if packet.AddrFrom4(h[12:]) != addr("192.0.2.254") || packet.AddrFrom4(h[16:]) != addr(rip(1)) {
		t.Errorf("outer addresses %v -> %v", packet.AddrFrom4(h[12:]), packet.AddrFrom4(h[16:]))
	}
	if ce := one(t, w.in(clientLink, packettest.Build(t, packettest.Spec{Src: client + ":40000", Dst: vip + ":80", Flags: packet.ACK, TOS: 3}))).Bytes(); ce[1] != 2 || ce[21] != 3 {
		t.Errorf("congestion experienced: outer TOS %d, inner %d, want 2 and 3", ce[1], ce[21])
	}
	rng := rand.New(rand.NewPCG(1, 1))
	ids := map[uint16]bool{}
	for range 1000 {
		out := one(t, w.in(clientLink, packettest.Build(t, packettest.Spec{Src: client + ":40000", Dst: vip + ":80", Flags: packet.ACK, Payload: make([]byte, rng.IntN(1400)), NoDF: true})))
		ids[binary.BigEndian.Uint16(out.Bytes()[4:])] = true
	}
	if len(ids) != 1000 {
		t.Errorf("1000 packets without DF had %d ids", len(ids))
	}
}

func TestTunnelTellsTheSenderItsMTU(t *testing.T) {
	w := newWorld(t, service("rr", lvs.Tunnel, 1))
	w.establish("40000")
	e := one(t, w.in(clientLink, packettest.Build(t, packettest.Spec{Src: client + ":40000", Dst: vip + ":80", Flags: packet.ACK, Payload: make([]byte, 1460)})))
	icmp := e.Buf[e.L4:]
	if icmp[0] != 3 || icmp[1] != 4 || binary.BigEndian.Uint16(icmp[6:]) != 1480 || e.Flow.Src != addr(vip) {
		t.Errorf("ICMP %d/%d with MTU %d from %v, want 3/4, 1480, %s", icmp[0], icmp[1], binary.BigEndian.Uint16(icmp[6:]), e.Flow.Src, vip)
	}
	if fits := one(t, w.in(clientLink, packettest.Build(t, packettest.Spec{Src: client + ":40000", Dst: vip + ":80", Flags: packet.ACK, Payload: make([]byte, 1440)}))); fits.Len() != 1500 {
		t.Errorf("an inner packet of 1480 left with %d bytes", fits.Len())
	}
}

func TestSourcePortReuseIsScheduledAnew(t *testing.T) {
	w := newWorld(t, service("rr", lvs.Masq, 2))
	first := w.establish("48000")
	w.in(clientLink, w.segment("48000", packet.FIN|packet.ACK))
	w.in(serverLink, packettest.Build(t, packettest.Spec{Src: rip(first) + ":8080", Dst: client + ":48000", Flags: packet.FIN | packet.ACK}))
	w.after(5 * time.Second)
	if p := one(t, w.in(clientLink, w.syn("48000"))); p.Flow.Dst == addr(rip(first)) {
		t.Errorf("the reused port went to %v again", p.Flow.Dst)
	}
	total := int64(0)
	for _, d := range w.d.Status()[0].Destinations {
		total += d.Active + d.InAct
	}
	if total != 1 {
		t.Errorf("%d entries counted, want 1", total)
	}
}

func BenchmarkHit(b *testing.B) {
	for _, m := range methods() {
		b.Run(m.Short(), func(b *testing.B) {
			w := newWorld(b, service("wlc", m, 3))
			w.establish("40000")
			batch := []*packet.Packet{w.segment("40000", packet.ACK)}
			p, bytes := *batch[0], append([]byte(nil), batch[0].Buf...)
			b.ReportAllocs()
			for b.Loop() {
				*batch[0] = p
				copy(p.Buf, bytes)
				w.w.Process(batch, 0)
			}
		})
	}
}
