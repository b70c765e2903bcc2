package link

import (
	"encoding/binary"

	"pktdirector/packet"
)

// SetSend replaces the system call that sends, by a function that is told how
// many frames there are and returns how many it takes.
func (l *AFPacket) SetSend(send func(frames int) (int, error)) {
	l.sendmmsg = func(_ int, msgs []mmsghdr) (int, error) { return send(len(msgs)) }
}

// SlotSize returns the size of the ring's slots.
func (l *AFPacket) SlotSize() int { return l.slotSize }

// TundevRemedy is tundevRemedy.
var TundevRemedy = tundevRemedy

// Describe is describe.
func Describe(p *packet.Packet, slot []byte, status uint32) (vnet int) {
	return describe(p, slot, status)
}

// FillSlot writes a slot's header as the kernel does.
func FillSlot(slot []byte, mac, snaplen, missing int, tag uint16, to uint8) {
	binary.NativeEndian.PutUint16(slot[slotMAC:], uint16(mac))
	binary.NativeEndian.PutUint32(slot[slotSnaplen:], uint32(snaplen))
	binary.NativeEndian.PutUint32(slot[slotLen:], uint32(snaplen+missing))
	binary.NativeEndian.PutUint16(slot[slotVLAN:], tag)
	slot[slotPacketTo] = to
}
