package capture

import "encoding/binary"

// byteOrder reads numbers in either order. Its calls are inlined, which those of a
// binary.ByteOrder are not: of small packets, they would be half of the work.
type byteOrder bool

const (
	littleEndian byteOrder = false
	bigEndian    byteOrder = true
)

// String names the order as errors and File do.
func (o byteOrder) String() string {
	if o == bigEndian {
		return "big-endian"
	}
	return "little-endian"
}

func (o byteOrder) u16(b []byte) uint16 {
	if o == bigEndian {
		return binary.BigEndian.Uint16(b)
	}
	return binary.LittleEndian.Uint16(b)
}

func (o byteOrder) u32(b []byte) uint32 {
	if o == bigEndian {
		return binary.BigEndian.Uint32(b)
	}
	return binary.LittleEndian.Uint32(b)
}

func (o byteOrder) u64(b []byte) uint64 {
	if o == bigEndian {
		return binary.BigEndian.Uint64(b)
	}
	return binary.LittleEndian.Uint64(b)
}
