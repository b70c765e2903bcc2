package link_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"pktdirector/dataplane"
	"pktdirector/dataplane/link"
	"pktdirector/packet"
)

// handed makes another link of l, as another process would have it.
func handed(t *testing.T, l *link.AFPacket, o link.AFPacketOptions) *link.AFPacket {
	t.Helper()
	files, err := l.Files()
	if err != nil {
		t.Fatal(err)
	}
	other, err := link.TakeAFPacket(l.Place(), files, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	return other
}

// marks reads n packets and returns their marks.
func marks(t *testing.T, r dataplane.Reader, n int) (seen []uint32) {
	t.Helper()
	for len(seen) < n {
		if read(t, r, 1, isUDP, func(p *packet.Packet) { seen = append(seen, mark(p)) }) == 0 {
			t.Fatalf("%d packets came, want %d", len(seen), n)
		}
	}
	if _, err := r.Read(nil); err != nil { // gives back what is lent
		t.Fatal(err)
	}
	return seen
}

// What waits in a ring, and frames beside it that are too large for its slots, are read
// by whoever takes the link over, once and in their order; counters go on.
func TestALinkGoesOnElsewhere(t *testing.T) {
	w := newWire(t, 9000)
	o := link.AFPacketOptions{Slots: 512, SlotSize: 2048}
	l := open(t, w.middle, "left", o)
	raw := newRawSender(t, w.client, "eth0")
	next := uint32(0)
	send := func(n int) {
		for range n {
			size := 100
			if next%7 == 3 {
				size = 5000
			}
			raw.send(t, udpFrame(next, size))
			next++
		}
	}
	want := uint32(0)
	follows := func(who string, seen []uint32) {
		t.Helper()
		for _, m := range seen {
			if m != want {
				t.Fatalf("%s read packet %d, want %d", who, m, want)
			}
			want++
		}
	}
	send(300)
	// The reader takes batches, so more than 100 are read at first.
	follows("the first", marks(t, l.Readers()[0], 100))
	before := l.Stats()
	at := l.HandOver()
	if at.Stats != before {
		t.Errorf("handed over with %+v, was at %+v", at.Stats, before)
	}
	other := handed(t, l, o)
	if err := other.GoOn(at); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for range 8 { // the ring goes round
		send(100)
		follows("the second", marks(t, other.Readers()[0], int(next-want)))
	}
	now := other.Stats()
	if now.RxRingDrops != 0 || now.RxTruncated != 0 {
		t.Errorf("packets were lost: %+v", now)
	}
	if now.RxPackets < uint64(next) || now.RxPackets < before.RxPackets {
		t.Errorf("counters went from %+v to %+v after %d packets", before, now, next)
	}
	writer := other.NewWriter()
	p := new(packet.Packet)
	frame := udpFrame(99, 100)
	p.Reset(append(make([]byte, packet.Headroom), frame[14:]...), packet.Headroom, 100)
	p.EtherType, p.DstMAC = packet.EtherIPv4, clientMAC
	if writer.Write([]*packet.Packet{p}); !p.Sent {
		t.Error("the second cannot send")
	}
}

// A link that was handed over in vain goes on where the other process stopped reading.
func TestALinkComesBack(t *testing.T) {
	w := newWire(t, 1500)
	o := link.AFPacketOptions{Slots: 512, SlotSize: 2048}
	l := open(t, w.middle, "left", o)
	raw := newRawSender(t, w.client, "eth0")
	next := uint32(0)
	send := func(n int) {
		for range n {
			raw.send(t, udpFrame(next, 100))
			next++
		}
	}
	last := int64(-1)
	follows := func(who string, seen []uint32) {
		t.Helper()
		for _, m := range seen {
			if int64(m) != last+1 {
				t.Fatalf("%s read packet %d after %d", who, m, last)
			}
			last = int64(m)
		}
	}
	for round, used := range []bool{false, true, true, false, true} {
		send(200)
		follows("the first", marks(t, l.Readers()[0], 50))
		other := handed(t, l, o)
		at := l.HandOver()
		if err := other.GoOn(at); err != nil {
			t.Fatal(err)
		}
		if used {
			n := 30
			if round == 4 {
				n = int(next) - int(last) - 1 // all: nothing tells where the kernel goes on
			}
			if n > 0 {
				follows("the second", marks(t, other.Readers()[0], n))
			}
		}
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
		l.TakeBack(used)
		if _, err := l.Readers()[0].Read(nil); err != nil {
			t.Fatal(err)
		}
		send(10)
		follows(fmt.Sprintf("the first, back in round %d,", round), marks(t, l.Readers()[0], int(next)-int(last)-1))
	}
	if s := l.Stats(); s.RxRingDrops != 0 {
		t.Errorf("packets were lost: %+v", s)
	}
}

// What is no link is refused, and its files are closed.
func TestTakingWhatIsNoLink(t *testing.T) {
	w := newWire(t, 1500)
	l := open(t, w.middle, "left", link.AFPacketOptions{})
	good := l.Place()
	for name, c := range map[string]struct {
		change func(*link.Place)
		files  bool // the link's
		want   string
	}{
		"no file":           {func(*link.Place) {}, false, "no link"},
		"no ring":           {func(p *link.Place) { p.Rings = nil }, true, "1 sockets with 0 rings"},
		"a slot of nothing": {func(p *link.Place) { p.Rings[0].SlotSize = 0 }, true, "no ring is like"},
		"a place outside":   {func(p *link.Place) { p.Rings[0].At = p.Rings[0].Slots }, true, "no ring is like"},
		"part of a block":   {func(p *link.Place) { p.Rings[0].PerBlock = 7 }, true, "no ring is like"},
		"a larger ring":     {func(p *link.Place) { p.Rings[0].Slots *= 4 }, true, "mapping the receive ring"},
		"a huge block":      {func(p *link.Place) { p.Rings[0].Block = 1 << 40 }, true, "no ring is like"},
	} {
		at := good
		at.Rings = slices.Clone(good.Rings)
		c.change(&at)
		files, err := l.Files()
		if err != nil {
			t.Fatal(err)
		}
		if !c.files {
			null, err := os.Open(os.DevNull)
			if err != nil {
				t.Fatal(err)
			}
			files[0].Close()
			files = []*os.File{null}
		}
		_, err = link.TakeAFPacket(at, files, link.AFPacketOptions{})
		if err == nil || name != "no file" && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		for _, f := range files {
			if f.Close() == nil {
				t.Errorf("%s: a file stays open", name)
			}
		}
	}
}

// A TUN device stays when whoever made it is gone, with what waits in it.
func TestATundevGoesOnElsewhere(t *testing.T) {
	ns, l := openTundev(t, link.TundevOptions{})
	files, err := l.Files()
	if err != nil {
		t.Fatal(err)
	}
	var other *link.Tundev
	do(t, ns, func() (err error) {
		other, err = link.TakeTundev(l.HandOver(), files[0], link.TundevOptions{})
		return err
	})
	t.Cleanup(func() { other.Close() })
	if err := other.GoOn(l.Place()); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if a, b := l.Info(), other.Info(); a != b {
		t.Errorf("the device was %+v, is %+v", a, b)
	}
	if n, err := other.Readers()[0].Read(newBatch(4)); err != nil {
		t.Errorf("%d, %v", n, err)
	}
}
