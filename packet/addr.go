package packet

import (
	"encoding/binary"
	"net/netip"
)

// Addr is an IPv4 or IPv6 address in 16 bytes without pointers, so that keys
// and table entries of both families have one shape and the garbage collector
// never scans them. An IPv4 address is held in its IPv4-mapped IPv6 form
// (RFC 4291 section 2.5.5.2). The zero Addr is "no address".
type Addr struct{ hi, lo uint64 }

// mapped is the upper half of the low word of an IPv4-mapped address.
const mapped = 0xffff << 32

// AddrFrom4 reads an IPv4 address from the first 4 bytes of b.
func AddrFrom4(b []byte) Addr {
	return Addr{lo: mapped | uint64(binary.BigEndian.Uint32(b))}
}

// AddrFrom16 reads an IPv6 address from the first 16 bytes of b.
func AddrFrom16(b []byte) Addr {
	return Addr{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:16])}
}

// AddrFrom converts a netip.Addr. A zone is dropped; the invalid address
// becomes the zero Addr.
func AddrFrom(a netip.Addr) Addr {
	if !a.IsValid() {
		return Addr{}
	}
	b := a.As16()
	return AddrFrom16(b[:])
}

// MustParseAddr parses s and panics when it is no address; for tests and
// constants.
func MustParseAddr(s string) Addr { return AddrFrom(netip.MustParseAddr(s)) }

// IsValid reports whether a is an address at all.
func (a Addr) IsValid() bool { return a != Addr{} }

// Is4 reports whether a is an IPv4 address.
func (a Addr) Is4() bool { return a.hi == 0 && a.lo>>32 == 0xffff }

// V4 returns an IPv4 address as a number in host order; 0 for IPv6.
func (a Addr) V4() uint32 {
	if !a.Is4() {
		return 0
	}
	return uint32(a.lo)
}

// Words returns the two halves of the 16-byte form, for hashing.
func (a Addr) Words() (hi, lo uint64) { return a.hi, a.lo }

// Put4 writes an IPv4 address into the first 4 bytes of b.
func (a Addr) Put4(b []byte) { binary.BigEndian.PutUint32(b, uint32(a.lo)) }

// Put16 writes the 16-byte form into the first 16 bytes of b.
func (a Addr) Put16(b []byte) {
	binary.BigEndian.PutUint64(b, a.hi)
	binary.BigEndian.PutUint64(b[8:16], a.lo)
}

// Netip converts to the standard library's type, unmapped; the zero Addr
// becomes the invalid netip.Addr.
func (a Addr) Netip() netip.Addr {
	if !a.IsValid() {
		return netip.Addr{}
	}
	var b [16]byte
	a.Put16(b[:])
	return netip.AddrFrom16(b).Unmap()
}

// String formats a as netip does; "-" for the zero Addr.
func (a Addr) String() string {
	if !a.IsValid() {
		return "-"
	}
	return a.Netip().String()
}

// Less orders addresses: IPv4 before IPv6, then numerically.
func (a Addr) Less(b Addr) bool {
	if a4, b4 := a.Is4(), b.Is4(); a4 != b4 {
		return a4
	}
	if a.hi != b.hi {
		return a.hi < b.hi
	}
	return a.lo < b.lo
}

// MAC is an Ethernet hardware address (EUI-48).
type MAC [6]byte

// Broadcast is the Ethernet broadcast address.
var Broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// IsZero reports whether m is the zero address: "not known".
func (m MAC) IsZero() bool { return m == MAC{} }

// IsMulticast reports whether the group bit is set (broadcast included).
func (m MAC) IsMulticast() bool { return m[0]&1 != 0 }

// String formats m as 02:00:00:00:01:fe.
func (m MAC) String() string {
	const hex = "0123456789abcdef"
	b := make([]byte, 0, 17)
	for i, x := range m {
		if i > 0 {
			b = append(b, ':')
		}
		b = append(b, hex[x>>4], hex[x&15])
	}
	return string(b)
}
