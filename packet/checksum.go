package packet

import (
	"encoding/binary"
	"math/bits"
)

// Sum adds b to a ones'-complement sum (RFC 1071), as big-endian 16-bit words,
// an odd last byte padded with zero. Sums of pieces add up when every piece but
// the last has an even length. Fold turns the result into 16 bits.
func Sum(b []byte, initial uint64) uint64 {
	sum, carry := initial, uint64(0)
	for len(b) >= 32 {
		sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(b), carry)
		sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(b[8:]), carry)
		sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(b[16:]), carry)
		sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(b[24:]), carry)
		b = b[32:]
	}
	for len(b) >= 8 {
		sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(b), carry)
		b = b[8:]
	}
	var tail uint64
	if len(b) >= 4 {
		tail = uint64(binary.BigEndian.Uint32(b))
		b = b[4:]
	}
	if len(b) >= 2 {
		tail += uint64(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		tail += uint64(b[0]) << 8
	}
	sum, carry = bits.Add64(sum, tail, carry)
	return addCarry(sum, carry)
}

func addCarry(sum, carry uint64) uint64 {
	sum, carry = bits.Add64(sum, carry, 0)
	return sum + carry
}

// add64 adds two ones'-complement sums.
func add64(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	return sum + carry
}

// Fold reduces a sum to 16 bits, uncomplemented.
func Fold(sum uint64) uint16 {
	sum = sum>>32 + sum&0xffffffff
	sum = sum>>32 + sum&0xffffffff
	sum = sum>>16 + sum&0xffff
	sum = sum>>16 + sum&0xffff
	return uint16(sum>>16 + sum&0xffff)
}

// PseudoSum sums the pseudo-header of TCP, UDP and ICMPv6 (RFC 9293 section
// 3.1, RFC 8200 section 8.1); length is that of the transport header and
// payload.
func PseudoSum(src, dst Addr, proto Proto, length int) uint64 {
	sum := uint64(proto) + uint64(length)
	return add64(sum, add64(addrSum(src), addrSum(dst)))
}

// addrSum sums an address as it stands in its own family's header.
func addrSum(a Addr) uint64 {
	if a.Is4() {
		return a.lo & 0xffffffff
	}
	return add64(a.hi, a.lo)
}

// Delta is a change to apply to a checksum: the ones'-complement sum of
// new minus old words (RFC 1624).
type Delta uint64

// Addr returns d extended by the change of an address.
func (d Delta) Addr(from, to Addr) Delta {
	return Delta(add64(uint64(d), add64(^addrSum(from), addrSum(to))))
}

// Word returns d extended by the change of a 16-bit word.
func (d Delta) Word(from, to uint16) Delta {
	return Delta(add64(uint64(d), add64(^uint64(from), uint64(to))))
}

// Apply changes the complemented checksum in the first 2 bytes of field, as
// headers hold it (RFC 1624 equation 3). What was wrong before stays wrong.
func (d Delta) Apply(field []byte) {
	old := ^binary.BigEndian.Uint16(field)
	binary.BigEndian.PutUint16(field, ^Fold(add64(uint64(old), uint64(d))))
}

// ApplyPartial changes the uncomplemented pseudo-header sum that an
// unfinished checksum field holds.
func (d Delta) ApplyPartial(field []byte) {
	old := binary.BigEndian.Uint16(field)
	binary.BigEndian.PutUint16(field, Fold(add64(uint64(old), uint64(d))))
}

// PutIPv4Checksum computes the header checksum of the IPv4 header hdr, whose
// length is exactly the header's, and writes it in place.
func PutIPv4Checksum(hdr []byte) {
	hdr[10], hdr[11] = 0, 0
	binary.BigEndian.PutUint16(hdr[10:], ^Fold(Sum(hdr, 0)))
}
