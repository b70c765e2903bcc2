package image

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"unsafe"

	"pktdirector/packet"
)

// Codec writes values one after the other, or reads them back in the same order.
// Numbers are little-endian and as long as their type, addresses 16 bytes.
type Codec struct {
	b       []byte
	reading bool
	err     error
}

// Writing returns a Codec that appends to b.
func Writing(b []byte) *Codec { return &Codec{b: b} }

// Reading returns a Codec that reads b.
func Reading(b []byte) *Codec { return &Codec{b: b, reading: true} }

// Reads reports whether values are read.
func (x *Codec) Reads() bool { return x.reading }

// Bytes returns what was written so far, or what is left to read.
func (x *Codec) Bytes() []byte { return x.b }

// errShort says that the bytes ended early.
var errShort = errors.New("the bytes end too early")

// Err returns the first thing that was wrong. Values read after it are zero.
func (x *Codec) Err() error { return x.err }

// End returns the first thing that was wrong; bytes that are left are wrong, too.
func (x *Codec) End() error {
	if x.err == nil && x.reading && len(x.b) > 0 {
		x.err = fmt.Errorf("%d bytes too many", len(x.b))
	}
	return x.err
}

// Fail notes that something is wrong; the first one counts.
func (x *Codec) Fail(format string, args ...any) {
	if x.err == nil {
		x.err = fmt.Errorf(format, args...)
	}
	if x.reading {
		x.b = nil
	}
}

// next returns the next n bytes to read, or nil.
func (x *Codec) next(n int) []byte {
	if n < 0 || n > len(x.b) {
		if x.err == nil {
			x.err = errShort
		}
		x.b = nil
		return nil
	}
	b := x.b[:n:n]
	x.b = x.b[n:]
	return b
}

// Integer is any type of number that Num takes.
type Integer interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

// Num writes or reads a number.
func Num[T Integer](x *Codec, v *T) {
	size := int(unsafe.Sizeof(*v))
	if !x.reading {
		n := uint64(*v)
		switch size {
		case 1:
			x.b = append(x.b, byte(n))
		case 2:
			x.b = binary.LittleEndian.AppendUint16(x.b, uint16(n))
		case 4:
			x.b = binary.LittleEndian.AppendUint32(x.b, uint32(n))
		default:
			x.b = binary.LittleEndian.AppendUint64(x.b, n)
		}
		return
	}
	*v = 0
	b := x.next(size)
	if b == nil {
		return
	}
	switch size {
	case 1:
		*v = T(b[0])
	case 2:
		*v = T(binary.LittleEndian.Uint16(b))
	case 4:
		*v = T(binary.LittleEndian.Uint32(b))
	default:
		*v = T(binary.LittleEndian.Uint64(b))
	}
}

// Bool writes or reads a truth value.
func (x *Codec) Bool(v *bool) {
	var n uint8
	if *v {
		n = 1
	}
	Num(x, &n)
	if n > 1 {
		x.Fail("%d is neither true nor false", n)
	}
	// Who writes may share v with others who read it.
	if x.reading {
		*v = n == 1
	}
}

// Addr writes or reads an address.
func (x *Codec) Addr(v *packet.Addr) {
	if x.reading {
		*v = packet.Addr{}
		if b := x.next(16); b != nil {
			*v = packet.AddrFrom16(b)
		}
		return
	}
	at := len(x.b)
	x.b = append(x.b, make([]byte, 16)...)
	v.Put16(x.b[at:])
}

// Count writes the length of a list, or reads it: no more than fit into the bytes
// that are left, each of least bytes.
func (x *Codec) Count(n, least int) int {
	count := uint32(n)
	Num(x, &count)
	if x.reading && uint64(count)*uint64(max(least, 1)) > uint64(len(x.b)) {
		x.Fail("a list of %d does not fit into %d bytes", count, len(x.b))
		return 0
	}
	return int(count)
}

// Text writes or reads a string.
func (x *Codec) Text(v *string) {
	n := x.Count(len(*v), 1)
	if !x.reading {
		x.b = append(x.b, *v...)
		return
	}
	*v = string(x.next(n))
}

// Prefix writes or reads a network.
func (x *Codec) Prefix(v *netip.Prefix) {
	a, bits := packet.AddrFrom(v.Addr()), int16(v.Bits())
	x.Addr(&a)
	Num(x, &bits)
	if !x.reading {
		return
	}
	// packet.Addr has no invalid address beside ::, of which there are networks.
	ip := a.Netip()
	if !a.IsValid() {
		ip = netip.IPv6Unspecified()
	}
	if *v = netip.PrefixFrom(ip, int(bits)); !v.IsValid() {
		x.Fail("%s has no prefix of %d bits", ip, bits)
	}
}

// List writes or reads a list, each of whose elements takes least bytes or more.
func List[T any](x *Codec, list *[]T, least int, each func(*Codec, *T)) {
	n := x.Count(len(*list), least)
	if x.reading {
		*list = nil
		if n > 0 {
			*list = make([]T, 0, min(n, listAtOnce))
		}
		for range n {
			var v T
			if each(x, &v); x.err != nil {
				return
			}
			*list = append(*list, v)
		}
		return
	}
	for i := range *list {
		each(x, &(*list)[i])
	}
}

// listAtOnce bounds what a list is given before its elements were read.
const listAtOnce = 1024
