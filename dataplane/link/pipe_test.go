package link_test

import (
	"bytes"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"pktdirector/dataplane"
	"pktdirector/dataplane/link"
	"pktdirector/packet"
)

var (
	pipeA = dataplane.LinkInfo{Name: "a", MAC: packet.MAC{2, 0, 0, 0, 0, 0xa}, MTU: 1500}
	pipeB = dataplane.LinkInfo{Name: "b", MAC: packet.MAC{2, 0, 0, 0, 0, 0xb}, MTU: 1500}
)

// tcpPacket returns a parsed TCP/IPv4 packet with size bytes of payload, its
// checksum unfinished when partial, and a super-frame when gso is not 0.
func tcpPacket(t testing.TB, size int, partial bool, gso uint16) *packet.Packet {
	t.Helper()
	p := new(packet.Packet)
	n := 40 + size
	p.Reset(make([]byte, packet.Headroom+n), packet.Headroom, n)
	p.EtherType = packet.EtherIPv4
	b := p.Bytes()
	copy(b, []byte{0x45, 0, byte(n >> 8), byte(n), 1, 2, 0x40, 0, 64, 6, 0, 0, 10, 1, 0, 2, 10, 1, 0, 3,
		0x9c, 0x40, 0, 80, 0, 0, 1, 0, 0, 0, 2, 0, 0x50, packet.ACK | packet.PSH, 1, 0, 0, 0, 0, 0})
	for i := range b[40:] {
		b[40+i] = byte(i * 7)
	}
	packet.PutIPv4Checksum(b[:20])
	if e := packet.Parse(p); e != packet.ParseOK {
		t.Fatal(e)
	}
	packet.DeferChecksum(p)
	if !partial {
		packet.FinishChecksum(p)
	}
	if gso != 0 {
		p.GSO, p.GSOSize = packet.GSOTCPv4, gso
	}
	p.DstMAC = pipeB.MAC
	return p
}

// verifies reports whether a TCP/IPv4 packet's checksums are right, summed
// from scratch.
func verifies(p *packet.Packet) bool {
	q := *p
	if packet.Parse(&q) != packet.ParseOK { // checks the IP header's
		return false
	}
	sum := packet.PseudoSum(q.Flow.Src, q.Flow.Dst, q.Flow.Proto, q.End-q.L4)
	return packet.Fold(packet.Sum(q.Buf[q.L4:q.End], sum)) == 0xffff
}

func writeOne(l dataplane.Link, p *packet.Packet) bool {
	l.NewWriter().Write([]*packet.Packet{p})
	return p.Sent
}

// Field case 1: an unfinished checksum passes as what it is or is finished; a
// wrong one is never repaired.
func TestPipeChecksums(t *testing.T) {
	for name, c := range map[string]struct {
		o            link.PipeOptions
		partial      bool
		corrupt      bool
		wantPartial  bool
		wantVerified bool
	}{
		"unfinished passes":                           {o: link.PipeOptions{Checksums: true}, partial: true, wantPartial: true},
		"unfinished is finished":                      {partial: true, wantVerified: true},
		"finished passes":                             {wantVerified: true},
		"finished passes where it could be otherwise": {o: link.PipeOptions{Checksums: true, GSO: true}, wantVerified: true},
		"a wrong one stays wrong":                     {corrupt: true},
		"a wrong one stays wrong with offloads":       {o: link.PipeOptions{Checksums: true, GSO: true}, corrupt: true},
	} {
		t.Run(name, func(t *testing.T) {
			c.o.NonBlocking = true
			a, b := link.NewPipe(pipeA, pipeB, c.o)
			p := tcpPacket(t, 100, c.partial, 0)
			if c.corrupt {
				p.Buf[p.End-1] ^= 1
			}
			if !writeOne(a, p) {
				t.Fatal("not sent")
			}
			batch := newBatch(2)
			n, err := b.Readers()[0].Read(batch)
			if n != 1 || err != nil {
				t.Fatalf("Read: %d, %v", n, err)
			}
			got := batch[0]
			if got.CsumPartial != c.wantPartial || !c.wantPartial && verifies(got) != c.wantVerified {
				t.Errorf("unfinished %t, verifies %t; want %t, %t", got.CsumPartial, verifies(got), c.wantPartial, c.wantVerified)
			}
			if got.CsumPartial {
				if !packet.FinishChecksum(got) || !verifies(got) {
					t.Error("the unfinished checksum does not finish right")
				}
			}
		})
	}
}

// Field case 2: a super-frame passes whole, or as segments of the MTU.
func TestPipeSuperFrames(t *testing.T) {
	for name, c := range map[string]struct {
		o    link.PipeOptions
		want []int
	}{
		"whole":               {link.PipeOptions{GSO: true}, []int{4384}},
		"in segments":         {link.PipeOptions{}, []int{1488, 1488, 1488}},
		"sums are not enough": {link.PipeOptions{Checksums: true}, []int{1488, 1488, 1488}},
	} {
		t.Run(name, func(t *testing.T) {
			c.o.NonBlocking = true
			a, b := link.NewPipe(pipeA, pipeB, c.o)
			if !writeOne(a, tcpPacket(t, 4344, true, 1448)) {
				t.Fatalf("not sent: %+v", a.Stats())
			}
			batch := newBatch(8)
			n, _ := b.Readers()[0].Read(batch)
			var got []int
			for _, p := range batch[:n] {
				got = append(got, p.Len())
				if p.GSO == packet.GSONone && !verifies(p) {
					t.Error("a segment's checksum is wrong")
				}
			}
			if len(got) != len(c.want) || got[0] != c.want[0] {
				t.Errorf("packets of %d bytes, want %d", got, c.want)
			}
		})
	}
	t.Run("tunnelled, in segments however able the pipe", func(t *testing.T) {
		a, b := link.NewPipe(pipeA, pipeB, link.PipeOptions{GSO: true, Checksums: true, NonBlocking: true})
		p := tcpPacket(t, 4344, true, 1428)
		h, _ := p.Push(20)
		copy(h, []byte{0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 4, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2})
		if !writeOne(a, p) {
			t.Fatal("not sent")
		}
		batch := newBatch(8)
		n, _ := b.Readers()[0].Read(batch)
		if n != 4 || a.Stats().Segmented != 1 {
			t.Fatalf("%d packets, want 4; %+v", n, a.Stats())
		}
		for _, p := range batch[:n] {
			if packet.Parse(p) != packet.ParseOK || p.Flow.Proto != packet.IPIP {
				t.Fatal("the outer header is wrong")
			}
			p.Start = p.L4
			if !verifies(p) {
				t.Error("the inner checksums are wrong")
			}
		}
	})
}

func TestPipeIsAnInterface(t *testing.T) {
	o := link.PipeOptions{NonBlocking: true, Depth: 4}
	vlanB := pipeB
	vlanB.VLAN = 100
	for name, c := range map[string]struct {
		a, b  dataplane.LinkInfo
		spoil func(p *packet.Packet)
		check func(t *testing.T, got []*packet.Packet, a, b dataplane.LinkStats)
	}{
		"to another machine": {pipeA, pipeB, func(p *packet.Packet) { p.DstMAC = packet.MAC{2, 9} }, func(t *testing.T, got []*packet.Packet, _, _ dataplane.LinkStats) {
			if len(got) != 1 || got[0].Class != packet.OtherHost || got[0].SrcMAC != pipeA.MAC {
				t.Errorf("%+v", got)
			}
		}},
		"broadcast": {pipeA, pipeB, func(p *packet.Packet) { p.DstMAC = packet.Broadcast }, func(t *testing.T, got []*packet.Packet, _, _ dataplane.LinkStats) {
			if len(got) != 1 || got[0].Class != packet.Broadcasted {
				t.Errorf("%+v", got)
			}
		}},
		"too big": {dataplane.LinkInfo{MTU: 100}, pipeB, nil, func(t *testing.T, got []*packet.Packet, a, _ dataplane.LinkStats) {
			if len(got) != 0 || a.TxTooBig != 1 {
				t.Errorf("%d packets, %+v", len(got), a)
			}
		}},
		"of another VLAN": {pipeA, vlanB, func(p *packet.Packet) { p.Tagged, p.VLAN = true, 200 }, func(t *testing.T, got []*packet.Packet, _, b dataplane.LinkStats) {
			if len(got) != 0 || b.RxOtherVLAN != 1 {
				t.Errorf("%d packets, %+v", len(got), b)
			}
		}},
		"of the link's VLAN": {dataplane.LinkInfo{VLAN: 100, MAC: pipeA.MAC}, vlanB, func(p *packet.Packet) { p.Tagged, p.VLAN = true, 0x2000 }, func(t *testing.T, got []*packet.Packet, _, _ dataplane.LinkStats) {
			if len(got) != 1 || !got[0].Tagged || got[0].VLAN != 0x2064 {
				t.Errorf("%+v", got)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := link.NewPipe(c.a, c.b, o)
			p := tcpPacket(t, 200, false, 0)
			if c.spoil != nil {
				c.spoil(p)
			}
			writeOne(a, p)
			batch := newBatch(4)
			n, err := b.Readers()[0].Read(batch)
			if err != nil {
				t.Fatal(err)
			}
			c.check(t, batch[:n], a.Stats(), b.Stats())
		})
	}
	t.Run("that is full", func(t *testing.T) {
		a, _ := link.NewPipe(pipeA, pipeB, o)
		for i := range 6 {
			if sent := writeOne(a, tcpPacket(t, 10, false, 0)); sent != (i < 4) {
				t.Errorf("packet %d: sent %t", i, sent)
			}
		}
		if s := a.Stats(); s.TxNoBuffer != 2 || s.TxPackets != 4 {
			t.Errorf("%+v", s)
		}
	})
	t.Run("whose peer is closed", func(t *testing.T) {
		a, b := link.NewPipe(pipeA, pipeB, o)
		b.Close()
		b.Close()
		if writeOne(a, tcpPacket(t, 10, false, 0)) || a.Stats().TxDown != 1 {
			t.Errorf("%+v", a.Stats())
		}
		if _, err := b.Readers()[0].Read(newBatch(1)); err != net.ErrClosed {
			t.Errorf("Read: %v, want net.ErrClosed", err)
		}
	})
}

func TestPipeReadWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := link.NewPipe(pipeA, pipeB, link.PipeOptions{})
		r, batch := b.Readers()[0], newBatch(4)
		begin := time.Now()
		if n, err := r.Read(batch); n != 0 || err != nil || time.Since(begin) > 50*time.Millisecond || time.Since(begin) == 0 {
			t.Errorf("Read of nothing: %d, %v after %v; want 0 packets within 50 ms", n, err, time.Since(begin))
		}
		go writeOne(a, tcpPacket(t, 10, false, 0))
		if n, err := r.Read(batch); n != 1 || err != nil {
			t.Errorf("Read: %d, %v; want 1 packet", n, err)
		}
		go b.Close()
		synctest.Wait()
		if _, err := r.Read(batch); err != net.ErrClosed {
			t.Errorf("Read: %v, want net.ErrClosed", err)
		}
	})
}

func TestPipeKeepsPacketsUntilTheNextRead(t *testing.T) {
	a, b := link.NewPipe(pipeA, pipeB, link.PipeOptions{NonBlocking: true})
	r, batch := b.Readers()[0], newBatch(1)
	writeOne(a, tcpPacket(t, 100, false, 0))
	r.Read(batch)
	want := bytes.Clone(batch[0].Bytes())
	for i := range 10 {
		writeOne(a, tcpPacket(t, 50+i, false, 0))
	}
	if !bytes.Equal(want, batch[0].Bytes()) {
		t.Error("the packet changed before the next Read")
	}
}

func TestPipeAllocatesNothing(t *testing.T) {
	a, b := link.NewPipe(pipeA, pipeB, link.PipeOptions{NonBlocking: true})
	w, r, batch, in := a.NewWriter(), b.Readers()[0], newBatch(4), []*packet.Packet{tcpPacket(t, 100, false, 0)}
	if n := testing.AllocsPerRun(100, func() {
		w.Write(in)
		r.Read(batch)
	}); n != 0 {
		t.Errorf("%v allocations a packet, want 0", n)
	}
}
