package packet

import (
	"bytes"
	"encoding/binary"
	"slices"
	"time"
)

// Assembled tells how a reassembled packet came: it goes on in the same pieces,
// as far as they fit. An IPv6 packet may have come in one piece, behind a fragment
// header all the same.
type Assembled struct {
	Pieces  []int // payload bytes of each fragment, in order
	Largest int   // the largest fragment's length with its header
	Header  int   // the first fragment's header bytes, without a fragment header
}

// Datagram is a datagram of which some pieces are there.
type Datagram struct {
	key      FragmentKey
	began    time.Duration
	runs     []run // by offset; they touch at most
	count    int
	have     int // bytes
	end      int // length, once known
	ended    bool
	marks    uint8 // set of congestion marks seen: bit n for mark n
	largest  int   // length of the largest fragment
	largestD int   // the same among those with don't-fragment
	bytes    int   // charged
}

// run is pieces that came in order, one behind the other. A piece within a run
// is a duplicate; one across the borders of runs is an overlap, as in the kernel.
type run struct {
	start, end int
	pieces     []piece
}

// piece is one fragment: a copy of its packet.
type piece struct {
	raw           []byte // from the IP header on
	header        int    // bytes in front of the payload, the fragment header left out
	skip          int    // bytes of the fragment header
	nextAt        int    // IPv6: where the header before the fragment header names what follows
	link          int
	tagged        bool
	vlan          uint16
	vlanType, eth EtherType
}

func (x *piece) payload() []byte { return x.raw[x.header+x.skip:] }

// add enters a copy of a fragment's piece, which f then has, too; FragmentHeld
// says that it is in.
func (d *Datagram) add(f *fragment) FragmentOutcome {
	end := f.offset + f.length
	switch {
	case d.count >= ReassemblyPieces,
		d.ended && (end > d.end || !f.more && end != d.end),
		!f.more && len(d.runs) > 0 && d.runs[len(d.runs)-1].end > end:
		return FragmentBroken
	}
	at := len(d.runs) // where a new run would stand
	for at > 0 && d.runs[at-1].start > f.offset {
		at--
	}
	if at > 0 {
		before := &d.runs[at-1]
		switch {
		case end <= before.end:
			return FragmentDuplicate
		case f.offset < before.end:
			return FragmentOverlaps
		}
	}
	if at < len(d.runs) && end > d.runs[at].start {
		return FragmentOverlaps
	}
	f.piece.raw = bytes.Clone(f.piece.raw)
	if at == len(d.runs) && at > 0 && d.runs[at-1].end == f.offset {
		tail := &d.runs[at-1]
		tail.end, tail.pieces = end, append(tail.pieces, f.piece)
	} else {
		d.runs = slices.Insert(d.runs, at, run{f.offset, end, []piece{f.piece}})
	}
	d.count++
	d.have += f.length
	d.marks |= 1 << f.congestion
	size := len(f.piece.raw)
	d.largest = max(d.largest, size)
	if f.df {
		d.largestD = max(d.largestD, size)
	}
	if !f.more {
		d.ended, d.end = true, end
	}
	return FragmentHeld
}

// Marks of the ECN field (RFC 3168 section 5).
const (
	markNotECT = 0
	markCE     = 3
)

// congestionAllowed reports whether pieces with this set of marks make one
// datagram: those that understand congestion marks do not mix with those that
// do not.
func congestionAllowed(marks uint8) bool {
	return marks == 1<<markNotECT || marks&(1<<markNotECT) == 0
}

// Count returns how many pieces of the datagram are there.
func (d *Datagram) Count() int { return d.count }

// First points p at the fragment with offset 0 and reports whether it is there.
// p is parsed; its bytes are the datagram's.
func (d *Datagram) First(p *Packet) bool {
	if len(d.runs) == 0 || d.runs[0].start != 0 {
		return false
	}
	first := &d.runs[0].pieces[0]
	p.Reset(first.raw, 0, len(first.raw))
	first.describe(p)
	return Parse(p) == ParseOK
}

func (x *piece) describe(p *Packet) {
	p.EtherType, p.Link, p.Tagged, p.VLAN, p.VLANType = x.eth, x.link, x.tagged, x.vlan, x.vlanType
}

// Packet makes p, which it gives a buffer of its own, the complete datagram: the
// first fragment's header and the payload of all. It is not parsed.
func (d *Datagram) Packet(p *Packet) {
	first := &d.runs[0].pieces[0]
	n := first.header + d.end
	buf := make([]byte, Headroom+n)
	p.Reset(buf, Headroom, n)
	first.describe(p)
	b := p.Bytes()
	at := copy(b, first.raw[:first.header])
	a := &Assembled{Pieces: make([]int, 0, d.count), Largest: d.largest, Header: first.header}
	for _, r := range d.runs {
		for i := range r.pieces {
			payload := r.pieces[i].payload()
			at += copy(b[at:], payload)
			a.Pieces = append(a.Pieces, len(payload))
		}
	}
	p.Assembled = a
	if first.eth == EtherIPv6 {
		b[first.nextAt] = first.raw[first.header]
		binary.BigEndian.PutUint16(b[4:], uint16(n-IPv6HeaderLen))
		if d.marks&(1<<markCE) != 0 {
			b[1] |= markCE << 4
		}
		return
	}
	binary.BigEndian.PutUint16(b[2:], uint16(n))
	var field uint16
	if d.largestD == d.largest {
		field = ipv4DontFragment // the path must take the largest piece whole
	}
	binary.BigEndian.PutUint16(b[6:], field)
	if d.marks&(1<<markCE) != 0 {
		b[1] |= markCE
	}
	PutIPv4Checksum(b[:first.header])
}
