package link_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pktdirector/dataplane/link"
	"pktdirector/packet"
)

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
	peer := newPlainSocket(t, w.middle, "left", leftMAC[:])
	notHeldBack(t, "a lone packet", 3, func() (delays, plain []time.Duration) {
		for i := range 40 {
			time.Sleep(30 * time.Millisecond) // longer than a Read waits
			sent := make(chan time.Time, 1)
			var sender sync.WaitGroup
			sender.Go(func() { // while Read waits
				time.Sleep(5 * time.Millisecond)
				sent <- time.Now()
				raw.send(t, udpFrame(uint32(i), 60))
			})
			var begin time.Time
			if n := read(t, l.Readers()[0], 1, isUDP, func(*packet.Packet) {
				begin = <-sent
				delays = append(delays, time.Since(begin))
			}); n != 1 {
				t.Fatalf("%d packets, want 1", n)
			}
			plain = append(plain, peer.since(t, begin))
			sender.Wait()
		}
		return delays, plain
	})
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
