package link_test

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"pktdirector/dataplane/link"
	"pktdirector/packet"
)

// FuzzRingSlot reads slots as the kernel fills them: the kernel keeps to its
// numbers, whatever the frame in the slot and its tag say.
func FuzzRingSlot(f *testing.F) {
	f.Add(tagged(udpFrame(1, 60), 100), uint32(unix.TP_STATUS_VLAN_VALID), uint16(100), uint8(0), uint16(0))
	f.Add(udpFrame(1, 60), uint32(0), uint16(0), uint8(4), uint16(10))
	f.Add(make([]byte, 14), uint32(unix.TP_STATUS_VLAN_VALID|unix.TP_STATUS_VLAN_TPID_VALID), uint16(7), uint8(1), uint16(0))
	f.Fuzz(func(t *testing.T, frame []byte, status uint32, tag uint16, to uint8, missing uint16) {
		if len(frame) < 14 || len(frame) > 1<<15 {
			return // the kernel delivers whole Ethernet headers
		}
		const mac = 96
		slot := make([]byte, mac+len(frame))
		copy(slot[mac:], frame)
		link.FillSlot(slot, mac, len(frame), int(missing), tag, to)
		var p packet.Packet
		vnet := link.Describe(&p, slot, status)
		switch {
		case vnet < 0 || vnet+link.VnetLen != mac:
			t.Fatalf("the offload header begins at %d", vnet)
		case p.Start != mac+14 || p.End != len(slot):
			t.Fatalf("a frame of %d bytes is a packet from %d to %d", len(frame), p.Start, p.End)
		case p.Truncated != (missing > 0):
			t.Fatalf("%d bytes are missing, and truncated is %v", missing, p.Truncated)
		case p.EtherType != packet.EtherType(binary.BigEndian.Uint16(frame[12:])):
			t.Fatalf("EtherType %#x", p.EtherType)
		case p.Class > packet.Outgoing:
			t.Fatalf("class %d", p.Class)
		}
		packet.Parse(&p)
	})
}
