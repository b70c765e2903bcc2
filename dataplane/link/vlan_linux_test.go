package link_test

import (
	"testing"

	"pktdirector/dataplane/link"
	"pktdirector/packet"
)

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
