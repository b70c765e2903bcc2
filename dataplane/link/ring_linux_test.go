package link_test

import (
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mdl "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"pktdirector/dataplane/link"
	"pktdirector/packet"
)

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

// Field case 22, the other half: 1000 times stopping while reading, with the
// race detector too.
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
	const cycles = 1000
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

// Frames that do not fit their slots come beside the ring, in order. An error
// that waits on the socket, as when the interface goes down, must not put the
// two out of step: then every later big frame would have another one's bytes.
func TestBigFramesStayInStepAfterAnError(t *testing.T) {
	w := newWire(t, 9000)
	l := open(t, w.middle, "left", link.AFPacketOptions{SlotSize: 2048})
	r := l.Readers()[0]
	arrive := func(first uint32) {
		t.Helper()
		raw := newRawSender(t, w.client, "eth0")
		was := l.Stats()
		for i := range uint32(5) {
			raw.send(t, udpFrame(first+i, 8000))
		}
		if first == 1 {
			time.Sleep(100 * time.Millisecond) // all five wait in ring and socket
			edit(t, w.middle, "left", netlink.LinkSetDown)
		}
		next := first
		if n := read(t, r, 5, isUDP, func(p *packet.Packet) {
			if p.Truncated || string(p.Bytes()) != string(udpFrame(next, 8000)[14:]) {
				t.Errorf("frame %d came with other bytes, or cut (%t)", next, p.Truncated)
			}
			next++
		}); n != 5 {
			t.Errorf("%d frames from %d on, want 5", n, first)
		}
		if cut := l.Stats().RxTruncated - was.RxTruncated; cut != 0 {
			t.Errorf("%d frames were cut", cut)
		}
	}
	arrive(1)
	edit(t, w.middle, "left", netlink.LinkSetUp)
	eventually(t, "the sender has carrier", func() (up bool) {
		edit(t, w.client, "eth0", func(l netlink.Link) error {
			up = l.Attrs().OperState == netlink.OperUp
			return nil
		})
		return up
	})
	arrive(11)
}

// Solicitations for an IPv6 VIP go to a group that the host is not in; the
// interface is asked for all groups, and left as it was at the end.
func TestMulticastIsAskedForAndGivenBack(t *testing.T) {
	w := newWire(t, 1500)
	allmulti := func() (n uint32) {
		edit(t, w.middle, "left", func(l netlink.Link) (err error) {
			n, err = allmultiOf(l.Attrs().Index)
			return err
		})
		return n
	}
	before := allmulti()
	l := open(t, w.middle, "left", link.AFPacketOptions{})
	if n := allmulti(); n != before+1 {
		t.Errorf("allmulti %d with the link open, want %d", n, before+1)
	}
	l.Close()
	l.Readers()[0].Read(nil)
	if n := allmulti(); n != before {
		t.Errorf("allmulti %d after the link was closed, want %d", n, before)
	}
}

// allmultiOf counts who asked an interface for all multicast (IFLA_ALLMULTI);
// its flags do not show what sockets ask for.
func allmultiOf(index int) (uint32, error) {
	c, err := mdl.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	request := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(request[4:], uint32(index))
	answers, err := c.Execute(mdl.Message{Header: mdl.Header{Type: unix.RTM_GETLINK, Flags: mdl.Request}, Data: request})
	if err != nil {
		return 0, err
	}
	attributes, err := mdl.NewAttributeDecoder(answers[0].Data[unix.SizeofIfInfomsg:])
	if err != nil {
		return 0, err
	}
	for attributes.Next() {
		if attributes.Type() == unix.IFLA_ALLMULTI {
			return attributes.Uint32(), nil
		}
	}
	return 0, errors.New("the kernel does not tell IFLA_ALLMULTI: it came with Linux 6.0")
}
