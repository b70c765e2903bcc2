package sched_test

import (
	"encoding/binary"
	"math/big"
	"math/bits"
	"slices"
	"testing"
)

// ---- dh and sh

// slowBucket is the top 8 bits of a 32-bit product.
func slowBucket(v uint32) int {
	product := new(big.Int).Mul(big.NewInt(int64(v)), big.NewInt(0x61C88647))
	product.Mod(product, big.NewInt(1<<32))
	return int(product.Rsh(product, 24).Int64())
}

type slowHash struct {
	weighted, port, fallback, byDst bool
	table                           []*server
}

func (m *slowHash) changed(list []*server) {
	m.table = nil
	for len(list) > 0 && len(m.table) < 256 {
		for _, s := range list {
			n := int64(1)
			if m.weighted {
				n = max(1, s.weight)
			}
			for range n {
				m.table = append(m.table, s)
			}
		}
	}
	if len(m.table) > 256 {
		m.table = m.table[:256]
	}
}

func (m *slowHash) pick(_ []*server, c client) *server {
	if m.table == nil {
		return nil
	}
	key := c.src
	if m.byDst {
		key = c.dst
	}
	if m.port {
		key += uint32(c.port)
	}
	h := slowBucket(key)
	if s := m.table[h]; s.eligible() {
		return s
	}
	if m.fallback {
		for k := range 256 {
			if s := m.table[((h+k)%256+h)%256]; s.eligible() {
				return s
			}
		}
	}
	return nil
}

// ---- mh, after the Maglev paper's pseudocode

// slowSip is SipHash with c compression and d finalisation rounds over bytes.
func slowSip(data []byte, k0, k1 uint64, c, d int) uint64 {
	v := [4]uint64{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573}
	rounds := func(n int) {
		for range n {
			v[0] += v[1]
			v[2] += v[3]
			v[1] = bits.RotateLeft64(v[1], 13)
			v[3] = bits.RotateLeft64(v[3], 16)
			v[1] ^= v[0]
			v[3] ^= v[2]
			v[0] = bits.RotateLeft64(v[0], 32)
			v[2] += v[1]
			v[0] += v[3]
			v[1] = bits.RotateLeft64(v[1], 17)
			v[3] = bits.RotateLeft64(v[3], 21)
			v[1] ^= v[2]
			v[3] ^= v[0]
			v[2] = bits.RotateLeft64(v[2], 32)
		}
	}
	padded := append(slices.Clone(data), make([]byte, 7-len(data)%8)...)
	padded = append(padded, byte(len(data)))
	for i := 0; i < len(padded); i += 8 {
		m := binary.LittleEndian.Uint64(padded[i:])
		v[3] ^= m
		rounds(c)
		v[0] ^= m
	}
	v[2] ^= 0xff
	rounds(d)
	return v[0] ^ v[1] ^ v[2] ^ v[3]
}

// The test vector of the SipHash paper, appendix A: SipHash-2-4.
func TestTheSlowSipHashIsSipHash(t *testing.T) {
	key, data := make([]byte, 16), make([]byte, 15)
	for i := range key {
		key[i] = byte(i)
	}
	for i := range data {
		data[i] = byte(i)
	}
	if got := slowSip(data, binary.LittleEndian.Uint64(key), binary.LittleEndian.Uint64(key[8:]), 2, 4); got != 0xa129ca6149be45e5 {
		t.Errorf("%#x", got)
	}
}

func slowMaglevHash(v uint32, key uint64) int {
	return int(uint32(slowSip(binary.LittleEndian.AppendUint32(nil, v), key, key, 1, 3)))
}

type slowMaglev struct {
	port, fallback bool
	table          []*server
}

func (m *slowMaglev) changed(list []*server) {
	const size = 4093
	m.table = nil
	var g, top int64
	for _, s := range list {
		top = max(top, s.last)
	}
	for g = top; g > 1; g-- {
		if !slices.ContainsFunc(list, func(s *server) bool { return s.last%g != 0 }) {
			break
		}
	}
	if top == 0 {
		return
	}
	shift := max(0, bits.Len64(uint64(top/g))-6)
	// Where each server is in its permutation: the paper's offset, skip and next.
	next := make([]int, len(list))
	offset, skip := make([]int, len(list)), make([]int, len(list))
	for i, s := range list {
		key := s.addr.V4() + 80
		offset[i], skip[i] = slowMaglevHash(key, 2654435761)%size, slowMaglevHash(key, 2654446892)%(size-1)+1
	}
	permutation := func(i, n int) int { return (offset[i] + n*skip[i]) % size }
	m.table = make([]*server, size)
	for filled := 0; ; {
		for i, s := range list {
			turns := s.last / g >> shift
			if s.last > 0 {
				turns = max(turns, 1)
			}
			for range turns {
				at := permutation(i, next[i])
				for m.table[at] != nil {
					next[i]++
					at = permutation(i, next[i])
				}
				m.table[at] = s
				next[i]++
				if filled++; filled == size {
					return
				}
			}
		}
	}
}

func (m *slowMaglev) pick(_ []*server, c client) *server {
	if m.table == nil {
		return nil
	}
	key := c.src
	if m.port {
		key += uint32(c.port)
	}
	h := slowMaglevHash(key, 2654435761) % 4093
	if m.table[h].eligible() {
		return m.table[h]
	}
	if m.fallback {
		for k := range 4093 {
			offset := uint32((h + k) % 4093)
			if s := m.table[slowMaglevHash(key+offset, 2654435761)%4093]; s.eligible() {
				return s
			}
		}
	}
	return nil
}
