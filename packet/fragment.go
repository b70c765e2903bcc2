package packet

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// minIPv6MTU is the smallest MTU that IPv6 links have (RFC 8200 section 5).
const minIPv6MTU = 1280

// fragmentHeaderLen is the length of IPv6's fragment header (RFC 8200 section
// 4.5).
const fragmentHeaderLen = 8

// fragmentUnit is what offsets of fragments count in: bytes.
const fragmentUnit = 8

// ErrFragment is returned for packets that cannot be cut into fragments.
var ErrFragment = errors.New("cannot be cut into fragments")

// A Fragmenter cuts one packet into IP fragments, as a router does for IPv4 (RFC
// 791 section 3.2) and only a source does for IPv6 (RFC 8200 section 4.5). The
// outermost header is the one that is repeated. Like a Segmenter it hands out a
// header and a part of the packet's own buffer, and allocates nothing. The zero
// Fragmenter is ready for Reset.
//
// A packet that was reassembled goes on in the pieces it came in, as far as they
// fit; the kernel does the same.
type Fragmenter struct {
	packet   *Packet
	header   int // bytes of the header that each fragment repeats
	nextAt   int // IPv6: where the last of these headers names what follows
	payload  []byte
	pieces   []int // lengths to cut; nil: room each
	first    int   // length of the first piece, when there are pieces
	room     int   // the most payload bytes a fragment takes, a multiple of 8
	id       uint32
	v6       bool
	at, next int
}

// Reset prepares to cut p into fragments of at most limit bytes each, header
// included; id is the identification of IPv6 fragments, IPv4's stand in the
// packet. p must be whole, no super-frame, and have a finished checksum. An IPv4
// packet's don't-fragment bit is the caller's to heed.
func (f *Fragmenter) Reset(p *Packet, limit int, id uint32) error {
	*f = Fragmenter{packet: p, id: id}
	b := p.Bytes()
	if p.GSO != GSONone || p.CsumPartial || len(b) < IPv4HeaderLen {
		return fmt.Errorf("%w: %d bytes, super-frame %d, checksum unfinished %t", ErrFragment, len(b), p.GSO, p.CsumPartial)
	}
	extra := 0
	if f.v6 = b[0]>>4 == 6; f.v6 {
		f.header, f.nextAt = unfragmentable(b)
		extra = fragmentHeaderLen
	} else {
		f.header = int(b[0]&15) * 4
	}
	if f.header == 0 || f.header > len(b) || f.header > MaxSegmentHeader-fragmentHeaderLen {
		return fmt.Errorf("%w: a header of %d bytes in %d", ErrFragment, f.header, len(b))
	}
	f.payload = b[f.header:]
	if a := p.Assembled; a != nil && len(a.Pieces) > 1 && !f.keep(a, limit-f.header-extra) {
		largest := a.Largest
		if f.v6 {
			largest = max(largest, minIPv6MTU)
		}
		limit = min(limit, largest)
	}
	if f.room = (limit - f.header - extra) / fragmentUnit * fragmentUnit; f.room <= 0 {
		return fmt.Errorf("%w: no room for payload behind a header of %d bytes in %d", ErrFragment, f.header+extra, limit)
	}
	return nil
}

// keep decides whether the packet is cut where it was cut before: each fragment
// must fit, and all but the last must end on a multiple of 8. An outer header
// makes the first fragment longer.
func (f *Fragmenter) keep(a *Assembled, room int) bool {
	if !f.v6 {
		room = min(room, a.Largest-f.header)
	} else if f.packet.Start == f.packet.L3 && f.header != a.Header {
		return false // headers that were behind the fragment header come before it now
	}
	rest := 0
	for i, n := range a.Pieces[1:] {
		if n > room || n%fragmentUnit != 0 && i < len(a.Pieces)-2 {
			return false
		}
		rest += n
	}
	first := len(f.payload) - rest
	if first <= 0 || first > room || first%fragmentUnit != 0 && rest > 0 {
		return false
	}
	f.pieces, f.first = a.Pieces, first
	return true
}

// unfragmentable returns the length of the headers that come before a fragment
// header: the IPv6 header and the extension headers that routers read, as the
// kernel counts them, and where the last of them names what follows. The length
// is 0 for a chain that cannot be walked.
func unfragmentable(b []byte) (length, nextAt int) {
	if len(b) < IPv6HeaderLen {
		return 0, 0
	}
	at, nextAt := IPv6HeaderLen, 6
	for range maxExtensions {
		if next := b[nextAt]; next != extHopByHop && next != extRouting && next != extDestOptions {
			return at, nextAt
		}
		if len(b) < at+8 {
			return 0, 0
		}
		at, nextAt = at+(int(b[at+1])+1)*8, at
	}
	return 0, 0
}

// Next builds the next fragment's header in the front of buf, which must hold
// MaxSegmentHeader bytes, and returns it with the payload that follows it.
// After the last fragment it returns nil for both.
func (f *Fragmenter) Next(buf []byte) (header, payload []byte) {
	if f.packet == nil || f.Done() {
		return nil, nil
	}
	n := f.room
	switch {
	case f.pieces != nil && f.next == 0:
		n = f.first
	case f.pieces != nil:
		n = f.pieces[f.next]
	}
	n = min(n, len(f.payload)-f.at)
	payload = f.payload[f.at : f.at+n]
	header = buf[:copy(buf, f.packet.Bytes()[:f.header])]
	last := f.at+n == len(f.payload)
	if f.v6 {
		header = f.putIPv6(buf, n, last)
	} else {
		f.putIPv4(header, n, last)
	}
	f.at += n
	f.next++
	return header, payload
}

// Done reports whether Next has returned the last fragment.
func (f *Fragmenter) Done() bool { return f.at >= len(f.payload) }

func (f *Fragmenter) putIPv4(header []byte, n int, last bool) {
	binary.BigEndian.PutUint16(header[2:], uint16(len(header)+n))
	field := uint16(f.at / fragmentUnit)
	if !last {
		field |= ipv4MoreFragments
	}
	binary.BigEndian.PutUint16(header[6:], field)
	if f.at > 0 {
		blankOptions(header[IPv4HeaderLen:])
	}
	PutIPv4Checksum(header)
}

func (f *Fragmenter) putIPv6(buf []byte, n int, last bool) []byte {
	header := buf[:f.header+fragmentHeaderLen]
	b := header[f.header:]
	b[0], b[1] = header[f.nextAt], 0
	header[f.nextAt] = extFragment
	field := uint16(f.at)
	if !last {
		field |= 1
	}
	binary.BigEndian.PutUint16(b[2:], field)
	binary.BigEndian.PutUint32(b[4:], f.id)
	binary.BigEndian.PutUint16(header[4:], uint16(len(header)-IPv6HeaderLen+n))
	return header
}
