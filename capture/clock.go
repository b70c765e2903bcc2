package capture

import (
	"math"
	"math/bits"
)

// clock turns the times of a pcapng interface into nanoseconds: units of 10^-n
// or 2^-n seconds since 1970, and an offset in seconds (if_tsresol, if_tsoffset).
type clock struct {
	binary bool
	n      uint8
	offset int64 // s
}

// microseconds is the clock of an interface that names no resolution.
func microseconds() clock { return clock{n: 6} }

// resolution is if_tsresol: the highest bit tells powers of two from powers of ten.
func (c *clock) resolution(b byte) { c.binary, c.n = b&0x80 != 0, b&0x7f }

const second = 1_000_000_000 // ns

// at returns the time t in ns. It is cut to whole nanoseconds where units are
// powers of ten, and rounded where they are powers of two: those cannot say what a
// nanosecond is. It reports false for times beyond the years 1678 to 2262.
func (c clock) at(t uint64) (int64, bool) {
	var hi, lo uint64 // ns, 128 bits
	switch {
	case !c.binary && c.n <= 9:
		hi, lo = bits.Mul64(t, pow10(9-c.n))
	case !c.binary && c.n-9 < 20: // 10^20 is beyond 64 bits, and what is left is 0
		lo = t / pow10(c.n-9)
	case c.binary:
		hi, lo = bits.Mul64(t, second)
		if c.n > 0 {
			hi, lo = shifted(hi, lo, c.n-1)
			var carry uint64
			lo, carry = bits.Add64(lo, 1, 0)
			hi, lo = shifted(hi+carry, lo, 1)
		}
	}
	if hi != 0 || lo > math.MaxInt64 {
		return 0, false
	}
	const most = math.MaxInt64 / second
	if c.offset > most || c.offset < -most {
		return 0, false
	}
	ns, off := int64(lo), c.offset*second
	if off > 0 && ns > math.MaxInt64-off {
		return 0, false
	}
	return ns + off, true
}

// shifted is the 128-bit number hi, lo without its n lowest bits.
func shifted(hi, lo uint64, n uint8) (uint64, uint64) {
	if n >= 64 {
		return 0, hi >> (n - 64)
	}
	return hi >> n, hi<<(64-n) | lo>>n
}

func pow10(n uint8) uint64 {
	p := uint64(1)
	for range n {
		p *= 10
	}
	return p
}
