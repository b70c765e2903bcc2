package sched

import (
	"math/bits"

	"pktdirector/packet"
)

// goldenRatio is the multiplier of the kernel's 32-bit hash: 2^32 divided by
// the square of the golden ratio.
const goldenRatio = 0x61C88647

// hash32 keeps the top n bits of v times the golden ratio.
func hash32(v uint32, n int) uint32 { return v * goldenRatio >> (32 - n) }

// fold makes one 32-bit number of an address: an IPv4 address as it is, an IPv6
// address by the exclusive or of its four words.
func fold(a packet.Addr) uint32 {
	if a.Is4() {
		return a.V4()
	}
	hi, lo := a.Words()
	return uint32(hi>>32) ^ uint32(hi) ^ uint32(lo>>32) ^ uint32(lo)
}

// sipHash13 is SipHash with one compression and three finalisation rounds of
// one 32-bit word, cut to 32 bits: the kernel's hsiphash on 64-bit machines
// (Aumasson and Bernstein, "SipHash: a fast short-input PRF").
func sipHash13(word uint32, key uint64) uint32 {
	v0, v1 := uint64(0x736f6d6570736575)^key, uint64(0x646f72616e646f6d)^key
	v2, v3 := uint64(0x6c7967656e657261)^key, uint64(0x7465646279746573)^key
	round := func() {
		v0 += v1
		v1 = bits.RotateLeft64(v1, 13) ^ v0
		v0 = bits.RotateLeft64(v0, 32)
		v2 += v3
		v3 = bits.RotateLeft64(v3, 16) ^ v2
		v0 += v3
		v3 = bits.RotateLeft64(v3, 21) ^ v0
		v2 += v1
		v1 = bits.RotateLeft64(v1, 17) ^ v2
		v2 = bits.RotateLeft64(v2, 32)
	}
	block := uint64(4)<<56 | uint64(word)
	v3 ^= block
	round()
	v0 ^= block
	v2 ^= 0xff
	round()
	round()
	round()
	return uint32(v0 ^ v1 ^ v2 ^ v3)
}
