package link

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"pktdirector/packet"
)

// ring is a TPACKET_V2 receive ring (packet_mmap in the kernel's
// documentation). Its slots are handed out in place, and go back to the kernel
// when the next batch is read.
type ring struct {
	mem      []byte
	slotSize int
	slots    int
	perBlock int
	block    int  // bytes a block
	at       int  // index of the next slot to look at
	lent     int  // slots before at that the kernel does not have back
	lost     bool // at may not be where the kernel goes on: see find
}

// A slot begins with struct tpacket2_hdr, then struct sockaddr_ll, then free
// room (ringReserve and some), then the virtio-net header right in front of
// the frame.
const (
	slotStatus   = 0
	slotLen      = 4
	slotSnaplen  = 8
	slotMAC      = 12
	slotVLAN     = 24
	slotVLANType = 26
	slotPacketTo = 32 + 10 // sll_pkttype

	// ringReserve is the room that the kernel leaves in a slot before the
	// frame, so that the packet has its headroom.
	ringReserve = packet.Headroom

	// slotOverhead is what of a slot is not IP packet.
	slotOverhead = 80 + ringReserve + vnetLen + vlanLen
)

// packetReq is struct tpacket_req.
type packetReq struct{ blockSize, blocks, frameSize, frames uint32 }

// newRing sets the ring of the packet socket fd up and maps it.
func newRing(fd, slots, slotSize int) (*ring, error) {
	// Slots share blocks of about 1 MB: few allocations and yet obtainable.
	perBlock := max(1, min(slots, 1<<20/slotSize))
	r := &ring{slotSize: slotSize, perBlock: perBlock}
	page := os.Getpagesize()
	r.block = (perBlock*slotSize + page - 1) / page * page
	blocks := max(1, (slots+perBlock-1)/perBlock)
	r.slots = blocks * perBlock
	req := packetReq{uint32(r.block), uint32(blocks), uint32(slotSize), uint32(r.slots)}
	_, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_PACKET, unix.PACKET_RX_RING,
		uintptr(unsafe.Pointer(&req)), unsafe.Sizeof(req), 0)
	if errno != 0 {
		return nil, fmt.Errorf("receive ring of %d slots of %d bytes: %w", r.slots, slotSize, errno)
	}
	return r, r.mapInto(fd)
}

// mapInto maps the ring of the packet socket fd.
func (r *ring) mapInto(fd int) error {
	size := r.slots / r.perBlock * r.block
	mem, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("mapping the receive ring of %d bytes: %w", size, err)
	}
	r.mem = mem
	return nil
}

// unmap ends the ring; no slot may be touched any more.
func (r *ring) unmap() error {
	mem := r.mem
	r.mem = nil
	if mem == nil {
		return nil
	}
	return unix.Munmap(mem)
}

// slot returns the memory of slot i.
func (r *ring) slot(i int) []byte {
	from := i/r.perBlock*r.block + i%r.perBlock*r.slotSize
	return r.mem[from : from+r.slotSize : from+r.slotSize]
}

// status returns the word by which kernel and director hand a slot to each
// other.
func status(slot []byte) *uint32 { return (*uint32)(unsafe.Pointer(&slot[slotStatus])) }

// next returns the next slot that the kernel filled, with its status, or nil.
// The slot is lent until the next giveBack.
func (r *ring) next() ([]byte, uint32) {
	if r.lost {
		r.find()
	}
	s := r.slot(r.at)
	st := atomic.LoadUint32(status(s))
	if st&unix.TP_STATUS_USER == 0 || r.lent == r.slots {
		return nil, 0
	}
	r.lent++
	if r.at++; r.at == r.slots {
		r.at = 0
	}
	return s, st
}

// find looks where the kernel's frames begin, when another process may have read some:
// at the slot that is full behind one that is not. Nothing is lent.
func (r *ring) find() {
	full := func(i int) bool { return atomic.LoadUint32(status(r.slot(i)))&unix.TP_STATUS_USER != 0 }
	for i := range r.slots {
		at := (r.at + i) % r.slots
		if full(at) && !full((at+r.slots-1)%r.slots) {
			r.at, r.lost = at, false
			return
		}
	}
	r.lost = !full(r.at) // either all are full, or none is
}

// giveBack gives all lent slots back to the kernel.
func (r *ring) giveBack() {
	i := r.at - r.lent
	if i < 0 {
		i += r.slots
	}
	for ; r.lent > 0; r.lent-- {
		atomic.StoreUint32(status(r.slot(i)), unix.TP_STATUS_KERNEL)
		if i++; i == r.slots {
			i = 0
		}
	}
}

// describe fills p with the frame in slot: all but the offload state, which
// stands in the virtio-net header at the returned place in p.Buf.
func describe(p *packet.Packet, slot []byte, st uint32) (vnet int) {
	mac := int(binary.NativeEndian.Uint16(slot[slotMAC:]))
	snaplen := int(binary.NativeEndian.Uint32(slot[slotSnaplen:]))
	*p = packet.Packet{Buf: slot, Start: mac + etherLen, End: mac + snaplen}
	if p.End < p.Start { // cannot be: the kernel delivers whole Ethernet headers
		p.End = p.Start
		p.Truncated = true
	}
	p.Truncated = p.Truncated || binary.NativeEndian.Uint32(slot[slotLen:]) > uint32(snaplen)
	copy(p.DstMAC[:], slot[mac:])
	copy(p.SrcMAC[:], slot[mac+6:])
	p.EtherType = packet.EtherType(binary.BigEndian.Uint16(slot[mac+12:]))
	p.Class = class(slot[slotPacketTo])
	if st&unix.TP_STATUS_VLAN_VALID != 0 {
		p.Tagged = true
		p.VLAN = binary.NativeEndian.Uint16(slot[slotVLAN:])
		p.VLANType = packet.EtherVLAN
		if st&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
			p.VLANType = packet.EtherType(binary.NativeEndian.Uint16(slot[slotVLANType:]))
		}
	}
	return mac - vnetLen
}

// class translates a sockaddr_ll's sll_pkttype (packet(7)).
func class(to uint8) packet.Class {
	switch to {
	case unix.PACKET_HOST:
		return packet.ToUs
	case unix.PACKET_BROADCAST:
		return packet.Broadcasted
	case unix.PACKET_MULTICAST:
		return packet.Multicasted
	case unix.PACKET_OUTGOING:
		return packet.Outgoing
	}
	return packet.OtherHost
}
