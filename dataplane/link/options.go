package link

import (
	"fmt"
	"log/slog"
)

// AFPacketOptions say how to open an AF_PACKET link. The zero value suits an
// untagged interface.
type AFPacketOptions struct {
	// VLAN is the 802.1Q id of the link's frames, 1 to 4094; 0: all frames
	// of the interface belong to the link, and a tag is kept.
	VLAN uint16
	// Slots is the number of frames the receive ring holds; 0 means 4096,
	// or 1024 large ones.
	Slots int
	// SlotSize is the ring's room for one frame, bytes. Larger frames are
	// read by a system call of their own. 0 means 2048; where the process
	// may not enlarge the socket's buffer, which such reads need, it means
	// enough for the largest frame.
	SlotSize int
	// NoCopy gives up the reading of frames larger than a slot: they are
	// counted as truncated and not forwarded. SlotSize 0 then means enough
	// for the interface's MTU.
	NoCopy bool
	// Queues is how many sockets share the interface's traffic, by flow; 0
	// means 1.
	Queues int
	// Promiscuous asks the interface for all frames of the wire, which an
	// interface that filters VLAN ids may need.
	Promiscuous bool
	// Log takes events of the link: down, up, gone, frames not sent. Nil: none.
	Log *slog.Logger
}

// Ring slots: the usual size, and the steps in which sizes are rounded.
const (
	usualSlot    = 2048
	usualSlots   = 4096
	largeSlots   = 1024
	maxSlot      = 1 << 18
	maxRingBytes = 1 << 30
	maxQueues    = 16
)

func (o *AFPacketOptions) check(name string) error {
	switch {
	case o.VLAN >= vlanIDs:
		return fmt.Errorf("link %s: VLAN id %d is out of range: 1 to 4094, or 0 for none", name, o.VLAN)
	case o.SlotSize != 0 && (o.SlotSize < 512 || o.SlotSize > maxSlot || o.SlotSize&(o.SlotSize-1) != 0):
		return fmt.Errorf("link %s: ring slot size %d: it must be a power of two from 512 to %d, or 0", name, o.SlotSize, maxSlot)
	case o.Slots < 0 || o.Slots*max(o.SlotSize, usualSlot) > maxRingBytes:
		return fmt.Errorf("link %s: %d ring slots of %d bytes: at most 1 GB together", name, o.Slots, max(o.SlotSize, usualSlot))
	case o.Queues < 0 || o.Queues > maxQueues:
		return fmt.Errorf("link %s: %d queues: 1 to %d", name, o.Queues, maxQueues)
	}
	return nil
}

// TundevOptions say how to open a TUN device.
type TundevOptions struct {
	// MTU is set on the device; 0 leaves what the kernel chose, 1500.
	MTU int
	// Host: the device leads to the host's own sockets, and what the host sends by it is
	// passed over.
	Host bool
	// Log takes events of the link. Nil: none.
	Log *slog.Logger
}
