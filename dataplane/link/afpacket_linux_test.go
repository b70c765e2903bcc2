package link_test

import (
	"encoding/binary"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"pktdirector/dataplane/link"
	"pktdirector/packet"
)

// mark reads what udpFrame wrote into the payload.
func mark(p *packet.Packet) uint32 { return binary.BigEndian.Uint32(p.Buf[p.Start+28:]) }

// Field case 3: what the host sends, on whatever way, is no input.
func TestHostsOwnFramesAreNotRead(t *testing.T) {
	w := newWire(t, 1500)
	l := open(t, w.middle, "left", link.AFPacketOptions{})
	raw := newRawSender(t, w.middle, "left")
	for i := range 20 {
		raw.send(t, udpFrame(uint32(i), 100))
	}
	writer := l.NewWriter()
	p := new(packet.Packet)
	frame := udpFrame(99, 100)
	p.Reset(append(make([]byte, packet.Headroom), frame[14:]...), packet.Headroom, 100)
	p.EtherType, p.DstMAC = packet.EtherIPv4, clientMAC
	writer.Write([]*packet.Packet{p})
	if !p.Sent {
		t.Fatal("the link did not take a packet")
	}
	newRawSender(t, w.client, "eth0").send(t, udpFrame(7, 100))
	seen := []uint32{}
	read(t, l.Readers()[0], 1, isUDP, func(p *packet.Packet) { seen = append(seen, mark(p)) })
	if !slices.Equal(seen, []uint32{7}) {
		t.Errorf("packets %d were read, want only 7, which came from outside", seen)
	}
}

func TestClassOfFrames(t *testing.T) {
	w := newWire(t, 1500)
	l := open(t, w.middle, "left", link.AFPacketOptions{Promiscuous: true})
	raw := newRawSender(t, w.client, "eth0")
	for name, c := range map[string]struct {
		to   packet.MAC
		want packet.Class
	}{
		"to us":              {leftMAC, packet.ToUs},
		"to another machine": {packet.MAC{2, 9, 9, 9, 9, 9}, packet.OtherHost},
		"broadcast":          {packet.Broadcast, packet.Broadcasted},
		"multicast":          {packet.MAC{1, 0, 0x5e, 0, 0, 1}, packet.Multicasted},
	} {
		frame := udpFrame(1, 60)
		copy(frame, c.to[:])
		raw.send(t, frame)
		n := read(t, l.Readers()[0], 1, isUDP, func(p *packet.Packet) {
			if p.Class != c.want || p.DstMAC != c.to || p.SrcMAC != clientMAC {
				t.Errorf("%s: class %d from %s to %s, want %d from %s to %s", name, p.Class, p.SrcMAC, p.DstMAC, c.want, clientMAC, c.to)
			}
			if p.Start < packet.Headroom {
				t.Errorf("%s: %d bytes of headroom, want %d", name, p.Start, packet.Headroom)
			}
		})
		if n != 1 {
			t.Errorf("%s: %d frames, want 1", name, n)
		}
	}
}

// Field case 20: a lone packet does not wait for others.
func TestLonePacketIsDeliveredAtOnce(t *testing.T) {
	w := newWire(t, 1500)
	l := open(t, w.middle, "left", link.AFPacketOptions{})
	raw := newRawSender(t, w.client, "eth0")
	// A busy machine delays one or the other; a ring that waits delays all.
	var slow time.Duration
	for range 3 {
		var delays []time.Duration
		sent := make(chan time.Time, 1)
		var sender sync.WaitGroup
		sender.Go(func() {
			for i := range 40 {
				time.Sleep(30 * time.Millisecond) // longer than a Read waits
				sent <- time.Now()
				raw.send(t, udpFrame(uint32(i), 60))
			}
		})
		read(t, l.Readers()[0], 40, isUDP, func(*packet.Packet) { delays = append(delays, time.Since(<-sent)) })
		if len(delays) != 40 {
			t.Fatalf("%d packets, want 40", len(delays))
		}
		sender.Wait()
		slices.Sort(delays)
		t.Logf("median %v, largest %v", delays[20], delays[39])
		if slow = delays[39]; slow < 2*time.Millisecond {
			return
		}
	}
	t.Errorf("a lone packet waited %v, want less than 2 ms", slow)
}

// tagged puts an 802.1Q tag into an Ethernet frame.
func tagged(frame []byte, tci uint16) []byte {
	return slices.Concat(frame[:12], []byte{0x81, 0, byte(tci >> 8), byte(tci)}, frame[12:])
}

// Field case 21: the tag that the kernel took out of the bytes is kept, sent
// again, and decides to whom a frame belongs.
func TestVLAN(t *testing.T) {
	send := func(t *testing.T, w *wire) {
		t.Helper()
		raw := newRawSender(t, w.client, "eth0")
		raw.send(t, udpFrame(0, 60))
		raw.send(t, tagged(udpFrame(0x2064, 60), 0x2064)) // VLAN 100, priority 1
		raw.send(t, tagged(udpFrame(0x00c8, 60), 0x00c8)) // VLAN 200
	}
	t.Run("a link of the whole interface keeps the tag", func(t *testing.T) {
		w := newWire(t, 1500)
		l := open(t, w.middle, "left", link.AFPacketOptions{})
		send(t, w)
		n := read(t, l.Readers()[0], 3, isUDP, func(p *packet.Packet) {
			want := uint16(mark(p))
			if p.VLAN != want || p.Tagged != (want != 0) || p.Tagged && p.VLANType != packet.EtherVLAN {
				t.Errorf("frame sent with tag %04x has tag %04x (type %04x, tagged %t)", want, p.VLAN, p.VLANType, p.Tagged)
			}
		})
		if n != 3 {
			t.Errorf("%d frames, want 3", n)
		}
	})
	t.Run("a link of VLAN 100 sees its own frames only", func(t *testing.T) {
		w := newWire(t, 1500)
		l := open(t, w.middle, "left", link.AFPacketOptions{VLAN: 100})
		send(t, w)
		n := read(t, l.Readers()[0], 1, isUDP, func(p *packet.Packet) {
			if mark(p) != 0x2064 {
				t.Errorf("the frame with tag %04x was read", mark(p))
			}
		})
		eventually(t, "two frames of other VLANs counted", func() bool {
			l.Readers()[0].Read(newBatch(4))
			return l.Stats().RxOtherVLAN >= 2
		})
		if n != 1 {
			t.Errorf("%d frames, want 1; %+v", n, l.Stats())
		}
	})
	for name, c := range map[string]struct {
		link   uint16
		tagged bool
		tci    uint16
		want   uint16 // 0: no tag
	}{
		"the link's tag": {100, false, 0x00c8, 100},
		"the link's tag and the packet's priority":   {100, true, 0xa0c8, 0xa064},
		"the packet's own tag on a link without one": {0, true, 0x2064, 0x2064},
		"no tag": {0, false, 0, 0},
	} {
		t.Run("frames leave with "+name, func(t *testing.T) {
			w := newWire(t, 1500)
			out, at := open(t, w.middle, "left", link.AFPacketOptions{VLAN: c.link}), open(t, w.client, "eth0", link.AFPacketOptions{})
			p := new(packet.Packet)
			frame := udpFrame(1, 1500) // full size, with a tag on top
			p.Reset(append(make([]byte, packet.Headroom), frame[14:]...), packet.Headroom, 1500)
			p.EtherType, p.DstMAC, p.Tagged, p.VLAN = packet.EtherIPv4, clientMAC, c.tagged, c.tci
			out.NewWriter().Write([]*packet.Packet{p})
			n := read(t, at.Readers()[0], 1, isUDP, func(p *packet.Packet) {
				if p.Tagged != (c.want != 0) || p.VLAN != c.want {
					t.Errorf("tagged %t with %04x, want %04x", p.Tagged, p.VLAN, c.want)
				}
			})
			if !p.Sent || n != 1 {
				t.Errorf("sent %t, %d frames arrived, want 1; %+v", p.Sent, n, out.Stats())
			}
		})
	}
	t.Run("super-frames pass with the tag", func(t *testing.T) {
		leakCheck(t)
		between := newBetween(t)
		o := link.AFPacketOptions{VLAN: 100}
		left, out := open(t, between.first, "left", link.AFPacketOptions{}), open(t, between.first, "between", o)
		in, right := open(t, between.second, "between", o), open(t, between.second, "right", link.AFPacketOptions{})
		untag := func(p *packet.Packet) bool { p.Tagged = false; return true }
		forward(t, left, out, secondMAC, nil)
		forward(t, in, right, serverMAC, untag)
		forward(t, right, in, firstMAC, nil)
		forward(t, out, left, clientMAC, untag)
		between.transferBoth(t, bulk/4)
		checkTransfer(t, &between.wire, left, out, in, right)
		if s := in.Stats(); s.RxPackets > bulk/1500 {
			t.Errorf("%d frames for %d bytes: no super-frames passed", s.RxPackets, bulk/2)
		}
	})
}

// Field case 22: what Read handed out does not change before the next Read,
// however full the ring gets meanwhile.
func TestPacketsStayUntilTheNextRead(t *testing.T) {
	for name, size := range map[string]int{"in the ring": 200, "larger than a slot": 1400} {
		t.Run(name, func(t *testing.T) {
			w := newWire(t, 1500)
			l := open(t, w.middle, "left", link.AFPacketOptions{Slots: 32, SlotSize: 1024})
			raw := newRawSender(t, w.client, "eth0")
			for i := range 32 {
				raw.send(t, udpFrame(uint32(i), size))
			}
			r := l.Readers()[0]
			batch := newBatch(32)
			var kept []*packet.Packet
			for len(kept) < 16 {
				n, err := r.Read(batch)
				if err != nil {
					t.Fatal(err)
				}
				kept = kept[:0]
				for _, p := range batch[:n] {
					if isUDP(p) {
						kept = append(kept, p)
					}
				}
			}
			first := mark(kept[0])
			for i := range 1000 {
				raw.send(t, udpFrame(uint32(1000+i), size))
			}
			for i, p := range kept {
				want := udpFrame(first+uint32(i), size)[14:]
				if string(p.Bytes()) != string(want) {
					t.Fatalf("packet %d of the batch changed under its reader's hands", i)
				}
			}
			r.Read(nil)
			if s := l.Stats(); s.RxRingDrops < 900 {
				t.Errorf("%d ring drops, want what did not fit: %+v", s.RxRingDrops, s)
			}
		})
	}
}

// Field case 22, the other half: stopping while reading.
func TestStartAndStopUnderTraffic(t *testing.T) {
	leakCheck(t)
	w := newWire(t, 1500)
	raw := newRawSender(t, w.client, "eth0")
	stop := make(chan struct{})
	var traffic sync.WaitGroup
	traffic.Go(func() {
		for i := uint32(0); ; i++ {
			select {
			case <-stop:
				return
			default:
				unix.Sendto(raw.fd, udpFrame(i, 100+int(i%1300)), 0, &raw.to)
			}
		}
	})
	cycles := 1000
	if testing.Short() {
		cycles = 40
	}
	// Most of a cycle is waiting for the kernel, so several go on at once.
	const abreast = 8
	var total atomic.Int64
	var all sync.WaitGroup
	for range abreast {
		all.Go(func() {
			for range cycles / abreast {
				total.Add(startAndStop(t, w))
			}
		})
	}
	all.Wait()
	close(stop)
	traffic.Wait()
	if total.Load() == 0 {
		t.Error("no packet was read at all")
	}
}

// startAndStop opens a link, reads and writes, closes it while that goes on,
// and returns how many packets were read.
func startAndStop(t *testing.T, w *wire) (total int64) {
	var l *link.AFPacket
	if err := w.middle.Do(func() (err error) {
		l, err = link.OpenAFPacket("left", link.AFPacketOptions{Slots: 64, SlotSize: 1024})
		return err
	}); err != nil {
		t.Error(err)
		return 0
	}
	var reader sync.WaitGroup
	started := make(chan struct{})
	reader.Go(func() {
		once := sync.OnceFunc(func() { close(started) })
		r, wr, batch := l.Readers()[0], l.NewWriter(), newBatch(8)
		for {
			n, err := r.Read(batch)
			once()
			if err != nil {
				if err != net.ErrClosed {
					t.Errorf("Read: %v", err)
				}
				return
			}
			total += int64(n)
			for _, p := range batch[:n] {
				p.DstMAC = clientMAC
			}
			wr.Write(batch[:n])
		}
	})
	<-started
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	reader.Wait()
	return total
}

// Field case 47: down and up.
func TestInterfaceGoesDownAndComesBack(t *testing.T) {
	w := newWire(t, 1500)
	log, lines := newLog()
	l := open(t, w.middle, "left", link.AFPacketOptions{Log: log})
	r := l.Readers()[0]
	edit(t, w.middle, "left", netlink.LinkSetDown)
	used := cpuTime(t)
	batch, reads := newBatch(8), 0
	for end := time.Now().Add(time.Second); time.Now().Before(end); reads++ {
		if _, err := r.Read(batch); err != nil {
			t.Fatalf("Read while the interface is down: %v", err)
		}
	}
	if used = cpuTime(t) - used; used > 50*time.Millisecond || reads > 100 {
		t.Errorf("waiting for a second took %v of processor time and %d reads", used, reads)
	}
	p := new(packet.Packet)
	p.Reset(make([]byte, 300), packet.Headroom, 60)
	p.EtherType = packet.EtherIPv4
	l.NewWriter().Write([]*packet.Packet{p})
	if s := l.Stats(); p.Sent || s.TxDown != 1 {
		t.Errorf("a packet to an interface that is down: sent %t, %+v", p.Sent, s)
	}
	edit(t, w.middle, "left", netlink.LinkSetUp)
	begin := time.Now()
	raw := newRawSender(t, w.client, "eth0")
	raw.send(t, udpFrame(1, 60))
	if n := read(t, r, 1, isUDP, nil); n != 1 || time.Since(begin) > time.Second {
		t.Errorf("%d packets %v after the interface came up, want 1 within a second", n, time.Since(begin))
	}
	eventually(t, "up is logged", func() bool { r.Read(batch); return lines.count("is up") > 0 })
	if lines.count("the link is down") != 1 || lines.count("is up") != 1 {
		t.Errorf("want one line about down and one about up:\n%s", lines)
	}
}

func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Field case 47: the interface is deleted and made anew.
func TestInterfaceIsMadeAnew(t *testing.T) {
	w := newWire(t, 1500)
	log, lines := newLog()
	l := open(t, w.middle, "left", link.AFPacketOptions{Log: log, Promiscuous: true})
	r, writer, batch := l.Readers()[0], l.NewWriter(), newBatch(8)
	was := l.Info().Index
	edit(t, w.middle, "left", netlink.LinkDel)
	eventually(t, "gone is logged", func() bool {
		if _, err := r.Read(batch); err != nil {
			t.Fatal(err)
		}
		return lines.count("is gone") > 0
	})
	// Another interface in between, so that the index is surely another one.
	newMAC := packet.MAC{2, 0, 0, 0, 1, 9}
	join(t, end{w.middle, "other", packet.MAC{2, 0, 0, 0, 9, 1}}, end{w.client, "other", packet.MAC{2, 0, 0, 0, 9, 2}}, 1500)
	join(t, end{w.middle, "left", newMAC}, end{w.client, "eth0", clientMAC}, 1500)
	eventually(t, "back is logged", func() bool {
		if _, err := r.Read(batch); err != nil {
			t.Fatal(err)
		}
		return lines.count("is back") > 0
	})
	if i := l.Info(); i.Index == was || i.MAC != newMAC {
		t.Errorf("info %+v, want a new index and MAC", i)
	}
	raw := newRawSender(t, w.client, "eth0")
	frame := udpFrame(5, 60)
	copy(frame, newMAC[:])
	raw.send(t, frame)
	back := open(t, w.client, "eth0", link.AFPacketOptions{})
	if n := read(t, r, 1, isUDP, func(p *packet.Packet) {
		p.DstMAC = clientMAC
		writer.Write([]*packet.Packet{p})
		if !p.Sent {
			t.Error("the new interface does not take a packet")
		}
	}); n != 1 {
		t.Fatalf("%d packets from the new interface, want 1", n)
	}
	if n := read(t, back.Readers()[0], 1, isUDP, func(p *packet.Packet) {
		if p.SrcMAC != newMAC {
			t.Errorf("sent from %s, want %s", p.SrcMAC, newMAC)
		}
	}); n != 1 {
		t.Errorf("%d packets sent by the new interface, want 1", n)
	}
	if lines.count("is gone") != 1 || lines.count("is back") != 1 {
		t.Errorf("want one line each:\n%s", lines)
	}
}

func TestOpenWaitsForAnInterfaceThatIsDown(t *testing.T) {
	w := newWire(t, 1500)
	edit(t, w.middle, "left", netlink.LinkSetDown)
	log, lines := newLog()
	l := open(t, w.middle, "left", link.AFPacketOptions{Log: log})
	if lines.count("is down") != 1 {
		t.Errorf("want one line that the link is down:\n%s", lines)
	}
	edit(t, w.middle, "left", netlink.LinkSetUp)
	newRawSender(t, w.client, "eth0").send(t, udpFrame(1, 60))
	if n := read(t, l.Readers()[0], 1, isUDP, nil); n != 1 {
		t.Errorf("%d packets after the interface came up, want 1", n)
	}
}

func TestOpenRefuses(t *testing.T) {
	w := newWire(t, 1500)
	for name, c := range map[string]struct {
		link string
		o    link.AFPacketOptions
		want string
	}{
		"an unknown interface":   {"nosuch0", link.AFPacketOptions{}, `"left"`},
		"a VLAN id out of range": {"left", link.AFPacketOptions{VLAN: 4095}, "1 to 4094"},
		"an odd slot size":       {"left", link.AFPacketOptions{SlotSize: 3000}, "power of two"},
		"a ring of terabytes":    {"left", link.AFPacketOptions{Slots: 1 << 30}, "at most 1 GB"},
		"too many queues":        {"left", link.AFPacketOptions{Queues: 99}, "1 to 16"},
	} {
		do(t, w.middle, func() error {
			_, err := link.OpenAFPacket(c.link, c.o)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.link) {
				t.Errorf("%s: error %v, want one that names %s and says %q", name, err, c.link, c.want)
			}
			return nil
		})
	}
}

// Field case 55: the kernel has no room, or the frame is too large.
func TestSendErrors(t *testing.T) {
	w := newWire(t, 1500)
	log, lines := newLog()
	l := open(t, w.middle, "left", link.AFPacketOptions{Log: log})
	batch := newBatch(10)
	write := func() (sent int) {
		for _, p := range batch {
			p.Reset(make([]byte, 300), packet.Headroom, 60)
			p.EtherType = packet.EtherIPv4
		}
		l.NewWriter().Write(batch)
		for _, p := range batch {
			if p.Sent {
				sent++
			}
		}
		return sent
	}
	failing := func(err error) func(int) (int, error) { return func(int) (int, error) { return 0, err } }

	l.SetSend(failing(unix.ENOBUFS))
	for range 100 {
		if write() != 0 {
			t.Fatal("a packet counts as sent in spite of ENOBUFS")
		}
	}
	if s := l.Stats(); s.TxNoBuffer != 1000 || s.TxPackets != 0 {
		t.Errorf("1000 times ENOBUFS: %+v", s)
	}
	if n := lines.count("not sent"); n != 1 {
		t.Errorf("%d log lines within a second, want 1:\n%s", n, lines)
	}
	l.SetSend(func(n int) (int, error) { return n, nil })
	if n := write(); n != 10 {
		t.Errorf("%d of 10 packets sent after the errors", n)
	}

	// The fourth of ten is too large; all others go out.
	var calls int
	l.SetSend(func(n int) (int, error) {
		switch calls++; calls {
		case 1:
			return 3, nil
		case 2:
			return 0, unix.EMSGSIZE
		}
		return n, nil
	})
	if n := write(); n != 9 || batch[3].Sent {
		t.Errorf("%d of 10 packets sent, the fourth %t; want 9 and false", n, batch[3].Sent)
	}
	if s := l.Stats(); s.TxTooBig != 1 || s.TxNoBuffer != 1000 {
		t.Errorf("one EMSGSIZE: %+v", s)
	}

	for _, err := range []error{unix.EAGAIN, unix.EINTR} {
		calls = 0
		l.SetSend(func(n int) (int, error) {
			if calls++; calls < 4 {
				return 0, err
			}
			return n, nil
		})
		if n := write(); n != 10 {
			t.Errorf("%v three times: %d of 10 packets sent, want all", err, n)
		}
	}
	before := l.Stats()
	l.SetSend(failing(unix.ENETDOWN))
	write()
	l.SetSend(failing(unix.EPERM))
	write()
	if s := l.Stats(); s.TxDown-before.TxDown != 10 || s.TxError-before.TxError != 10 {
		t.Errorf("ten times ENETDOWN and EPERM: %+v", s)
	}
	// A device that never takes anything again does not stop the director.
	l.SetSend(failing(unix.EAGAIN))
	begin := time.Now()
	if write() != 0 || time.Since(begin) > time.Second {
		t.Errorf("a stuck interface held the director for %v", time.Since(begin))
	}
}

// Field case 55 with the real kernel.
func TestSendTooLarge(t *testing.T) {
	w := newWire(t, 1500)
	l := open(t, w.middle, "left", link.AFPacketOptions{})
	p := new(packet.Packet)
	p.Reset(make([]byte, 3000), packet.Headroom, 1600)
	p.EtherType = packet.EtherIPv4
	l.NewWriter().Write([]*packet.Packet{p})
	if s := l.Stats(); p.Sent || s.TxTooBig != 1 {
		t.Errorf("1600 bytes on an MTU of 1500: sent %t, %+v", p.Sent, s)
	}
}

// Field case 62: jumbo frames, rings too small for them, and another MTU.
func TestRingSlotsAndMTU(t *testing.T) {
	jumbo := func(t *testing.T, mtu, size int, o link.AFPacketOptions) (*link.AFPacket, int) {
		w := newWire(t, mtu)
		l := open(t, w.middle, "left", o)
		newRawSender(t, w.client, "eth0").send(t, udpFrame(77, size))
		whole := 0
		read(t, l.Readers()[0], 1, isUDP, func(p *packet.Packet) {
			if string(p.Bytes()) == string(udpFrame(77, size)[14:]) && !p.Truncated {
				whole++
			} else if !p.Truncated {
				t.Errorf("a packet of %d bytes came with %d and is not marked truncated", size, p.Len())
			}
		})
		return l, whole
	}
	t.Run("a jumbo frame arrives whole", func(t *testing.T) {
		for _, o := range []link.AFPacketOptions{{}, {NoCopy: true}, {SlotSize: 2048}, {SlotSize: 16384}} {
			if l, n := jumbo(t, 9000, 9000, o); n != 1 || l.Stats().RxTruncated != 0 {
				t.Errorf("%+v: %d whole packets, want 1; %+v", o, n, l.Stats())
			}
		}
	})
	t.Run("one that does not fit is counted", func(t *testing.T) {
		l, n := jumbo(t, 9000, 9000, link.AFPacketOptions{SlotSize: 2048, NoCopy: true})
		if s := l.Stats(); n != 0 || s.RxTruncated != 1 {
			t.Errorf("%d whole packets, want 0; %+v", n, s)
		}
	})
	t.Run("the largest MTU", func(t *testing.T) {
		for _, o := range []link.AFPacketOptions{{}, {NoCopy: true}} {
			if l, n := jumbo(t, 65485, 65485, o); n != 1 {
				t.Errorf("%+v: %d whole packets, want 1; %+v", o, n, l.Stats())
			}
		}
	})
	t.Run("the MTU is raised while running", func(t *testing.T) {
		for _, noCopy := range []bool{false, true} {
			w := newWire(t, 1500)
			log, lines := newLog()
			l := open(t, w.middle, "left", link.AFPacketOptions{NoCopy: noCopy, Log: log})
			r, batch := l.Readers()[0], newBatch(4)
			raise := func(l netlink.Link) error { return netlink.LinkSetMTU(l, 9000) }
			edit(t, w.middle, "left", raise)
			edit(t, w.client, "eth0", raise)
			eventually(t, "the link knows its MTU", func() bool { r.Read(batch); return l.Info().MTU == 9000 })
			if lines.count("MTU changed") != 1 {
				t.Errorf("want one line about the MTU:\n%s", lines)
			}
			newRawSender(t, w.client, "eth0").send(t, udpFrame(1, 9000))
			read(t, r, 1, isUDP, func(p *packet.Packet) {
				if p.Truncated != noCopy {
					t.Errorf("NoCopy %t: truncated %t", noCopy, p.Truncated)
				}
			})
			if noCopy && (l.Stats().RxTruncated != 1 || lines.count("not forwarded") != 1) {
				t.Errorf("%+v, want one truncated frame and a line about it:\n%s", l.Stats(), lines)
			}
		}
	})
}

func TestReadAndWriteAllocateNothing(t *testing.T) {
	w := newWire(t, 1500)
	l := open(t, w.middle, "left", link.AFPacketOptions{})
	raw := newRawSender(t, w.client, "eth0")
	r, wr, batch := l.Readers()[0], l.NewWriter(), newBatch(4)
	frame := udpFrame(1, 100)
	for range 300 {
		raw.send(t, frame)
	}
	if n := testing.AllocsPerRun(50, func() {
		n, err := r.Read(batch)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range batch[:n] {
			p.DstMAC = clientMAC
		}
		wr.Write(batch[:n])
	}); n > 0 {
		t.Errorf("%v allocations a batch, want 0", n)
	}
}
