package conntrack

import "time"

// beganUnit is the resolution, in ticks, of when an entry began: 128 ms, so that
// 32 bits last for 17 years.
const beganUnit = 32

// Began returns the engine time at which the entry was made, to 128 ms.
func (c *Conn) Began() time.Duration { return time.Duration(c.began) * beganUnit * Tick }

// The most that a connection counts each way; there it stays.
const (
	maxPackets = 1<<36 - 1
	maxBytes   = 1<<48 - 1
)

// Count adds packets of together bytes bytes, IP headers included, to what the
// connection counted in one direction.
func (c *Conn) Count(dir Direction, packets, bytes uint64) {
	packets += uint64(c.packets[dir])
	bytes += uint64(c.bytes[dir])
	c.packets[dir], c.bytes[dir] = uint32(packets), uint32(bytes)
	if (packets|bytes)>>32 != 0 {
		c.carry(dir, packets>>32, bytes>>32)
	}
}

// carry adds to the high bits of the counters.
func (c *Conn) carry(dir Direction, packets, bytes uint64) {
	shift := 4 * dir
	if high := packets + uint64(c.packetsHigh>>shift&15); high > maxPackets>>32 {
		c.packets[dir], c.packetsHigh = maxPackets&0xffffffff, c.packetsHigh|15<<shift
	} else {
		c.packetsHigh = c.packetsHigh&^(15<<shift) | uint8(high)<<shift
	}
	if high := bytes + uint64(c.bytesHigh[dir]); high > maxBytes>>32 {
		c.bytes[dir], c.bytesHigh[dir] = maxBytes&0xffffffff, maxBytes>>32
	} else {
		c.bytesHigh[dir] = uint16(high)
	}
}

// Counted returns how many packets of the connection passed the director in one
// direction, and their bytes, IP headers included: as the kernel counts them for
// services, with a super-frame as the packets it is on the wire.
func (c *Conn) Counted(dir Direction) (packets, bytes uint64) {
	packets = uint64(c.packetsHigh>>(4*dir)&15)<<32 | uint64(c.packets[dir])
	return packets, uint64(c.bytesHigh[dir])<<32 | uint64(c.bytes[dir])
}
