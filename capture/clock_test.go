package capture_test

import (
	"encoding/binary"
	"math/big"
	"math/rand/v2"
	"testing"

	"pktdirector/capture"
)

// slowTime is the time as the specification has it, in whole numbers of any size.
func slowTime(resolution byte, offset int64, t uint64) (int64, bool) {
	ns := new(big.Int).Mul(new(big.Int).SetUint64(t), big.NewInt(1e9))
	n := int64(resolution & 0x7f)
	if resolution&0x80 != 0 {
		unit := new(big.Int).Lsh(big.NewInt(1), uint(n))
		ns.Add(ns.Lsh(ns, 1), unit) // half a nanosecond up
		ns.Quo(ns, unit.Lsh(unit, 1))
	} else {
		ns.Quo(ns, new(big.Int).Exp(big.NewInt(10), big.NewInt(n), nil))
	}
	if !ns.IsInt64() {
		return 0, false
	}
	ns.Add(ns, new(big.Int).Mul(big.NewInt(offset), big.NewInt(1e9)))
	return ns.Int64(), ns.IsInt64()
}

func TestTimes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for resolution := range 256 {
		for range 200 {
			at := random.Uint64() >> random.IntN(64)
			offset := random.Int64N(1<<40) - 1<<39
			if random.IntN(2) == 0 {
				offset %= 9e9
			}
			got, ok := capture.ClockAt(byte(resolution), offset, at)
			want, fine := slowTime(byte(resolution), offset, at)
			// An offset that cannot be a time is none, whatever it is added to.
			if ok && (!fine || got != want) || !ok && fine && offset < 9e9 && offset > -9e9 {
				t.Fatalf("resolution %#x, %d units, offset %d s: %d, %t, want %d, %t", resolution, at, offset, got, ok, want, fine)
			}
		}
	}
	for _, c := range []struct {
		resolution byte
		offset     int64
		at         uint64
		want       int64
	}{
		{6, 0, 1_000_001, 1_000_001_000},
		{9, 0, 1_000_000_123, 1_000_000_123},
		{12, 0, 1_000_000_123_999, 1_000_000_123},
		{0, 0, 7, 7_000_000_000},
		{3, -1, 1500, 500_000_000},
		{0x80 | 32, 0, 1<<32 + 528, 1_000_000_123}, // 123 ns are 528.28 units of 2^-32 s
		{0x80 | 20, 0, 1 << 19, 500_000_000},
		{9, 1_700_000_000, 5, 1_700_000_000_000_000_005},
		{127, 0, 1 << 63, 0},
		{255, 0, 1 << 63, 0},
	} {
		if got, ok := capture.ClockAt(c.resolution, c.offset, c.at); got != c.want || !ok {
			t.Errorf("resolution %#x, %d units, offset %d s: %d, %t, want %d", c.resolution, c.at, c.offset, got, ok, c.want)
		}
	}
}

// Interfaces of one file with different clocks show the same moment.
func TestInterfacesWithClocks(t *testing.T) {
	for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		n := newNg(order)
		offset := order.AppendUint64(nil, 1_700_000_000)
		early := order.AppendUint64(nil, uint64(0xffffffffffffffff)) // -1 s
		n.iface(1, 0).
			iface(1, 0, option{9, []byte{9}}, option{14, offset}).
			iface(1, 0, option{9, []byte{0x80 | 30}}).
			iface(1, 0, option{9, []byte{3}}, option{14, early})
		n.packet(0, 1_700_000_001_500_000, 60, bytesOf(60, 1)).
			packet(1, 1_500_000_000, 60, bytesOf(60, 2)).
			packet(2, 1_700_000_001<<30+1<<29, 60, bytesOf(60, 3)).
			packet(3, 1_700_000_002_500, 60, bytesOf(60, 4))
		got, warned, err := fromBytes(t, n.b)
		if err != nil || len(warned) > 0 || len(got) != 4 {
			t.Fatalf("%d packets, %v, %v", len(got), warned, err)
		}
		for i, k := range got {
			if k.Time != 1_700_000_001_500_000_000 || k.Interface.Index != i {
				t.Errorf("interface %d: %d", k.Interface.Index, k.Time)
			}
		}
	}
}
