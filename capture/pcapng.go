package capture

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Blocks of pcapng files (draft-ietf-opsawg-pcapng section 4).
const (
	ngSection        = 0x0a0d0d0a // the same in both byte orders
	ngInterface      = 1
	ngOldPacket      = 2
	ngSimplePacket   = 3
	ngStatistics     = 5
	ngEnhancedPacket = 6

	ngHead = 8 // type and length of a block
	ngTail = 4 // its length again

	ngMagic = 0x1a2b3c4d // of a section: tells the byte order

	// maxBlock is the largest block that is passed over, as in libpcap and
	// Wireshark. Only windowMost bytes of one are ever held.
	maxBlock = 16 << 20
)

// Options of blocks.
const (
	optEnd     = 0
	optComment = 1

	ifName     = 2
	ifDesc     = 3
	ifTsresol  = 9
	ifFilter   = 11
	ifOS       = 12
	ifTsoffset = 14

	epbFlags     = 2
	epbDropCount = 4
	epbPacketID  = 5

	isbIfDrop = 5
	isbOSDrop = 7
)

// ngFile reads the blocks of a pcapng file.
type ngFile struct {
	byteOrder
	section int
	unknown bool // the section is of a version that nobody knows
	ifaces  []*Interface
	last    int64 // ns, of the packet before
}

// openNg reads the first block.
func openNg(s *source) (*ngFile, error) {
	f := &ngFile{section: -1}
	h, err := s.win.peek(12)
	if len(h) < 12 {
		return nil, fmt.Errorf("%d bytes of a pcapng file's header: nothing to read", len(h))
	}
	if err == nil {
		err = f.turn(h)
	}
	if err != nil {
		return nil, err
	}
	s.Format = "pcapng, " + f.String()
	return f, nil
}

// turn reads in which order the section that h begins is to be read.
func (f *ngFile) turn(h []byte) error {
	switch {
	case binary.BigEndian.Uint32(h[ngHead:]) == ngMagic:
		f.byteOrder = bigEndian
	case binary.LittleEndian.Uint32(h[ngHead:]) == ngMagic:
		f.byteOrder = littleEndian
	default:
		return fmt.Errorf("a pcapng section with the byte-order magic % x, must be 1a 2b 3c 4d or the reverse: %w", h[ngHead:ngHead+4], errRecord)
	}
	return nil
}

// next implements source.format.
func (f *ngFile) next(s *source, rec *Record) error {
	for {
		h, err := s.win.peek(12)
		if len(h) < 12 {
			if len(h) == 0 && err == io.EOF {
				return io.EOF
			}
			return s.cut("a block's header", len(h), err)
		}
		section := binary.BigEndian.Uint32(h) == ngSection
		if section {
			if err := f.turn(h); err != nil {
				return err
			}
		}
		kind, n := f.u32(h), int64(f.u32(h[4:]))
		if n < ngHead+ngTail || n > maxBlock || n%4 != 0 {
			return fmt.Errorf("a block of %d bytes, must be a multiple of 4 from %d to %d: %w", n, ngHead+ngTail, maxBlock, errRecord)
		}
		if n > windowMost || !f.wanted(kind, section) {
			if err := f.pass(s, kind, int(n)); err != nil {
				return err
			}
			continue
		}
		b, err := s.win.peek(int(n))
		if len(b) < int(n) {
			return s.cut("a block", len(b), err)
		}
		if again := f.u32(b[n-ngTail:]); int64(again) != n {
			return fmt.Errorf("a block of %d bytes that ends with a length of %d: %w", n, again, errRecord)
		}
		s.win.take(int(n))
		body := b[ngHead : n-ngTail]
		switch kind {
		case ngSection:
			err = f.begin(s, body)
		case ngInterface:
			f.describe(s, body)
		case ngStatistics:
			f.statistics(s, body)
		default:
			if f.packet(s, kind, body, rec) {
				return nil
			}
		}
		if err != nil {
			return err
		}
	}
}

// wanted tells the blocks that are read from those that are passed over: names of
// hosts, secrets, events, custom and unknown ones.
func (f *ngFile) wanted(kind uint32, section bool) bool {
	switch kind {
	case ngSection:
		return section
	case ngInterface, ngOldPacket, ngSimplePacket, ngEnhancedPacket, ngStatistics:
		return !f.unknown
	}
	return false
}

// pass takes a block without reading it.
func (f *ngFile) pass(s *source, kind uint32, n int) error {
	had, err := s.win.discard(n)
	if had < n {
		return s.cut("a block", had, err)
	}
	if kind == ngEnhancedPacket || kind == ngOldPacket || kind == ngSimplePacket {
		if !f.unknown {
			s.Packets++
			s.warning(SkippedPacket, 1, func() string { return fmt.Sprintf("skipped: a block of %d bytes, at most %d are read", n, windowMost) })
		}
	}
	return nil
}

// begin starts a section. What is of another major version is passed over.
func (f *ngFile) begin(s *source, b []byte) error {
	if len(b) < 16 {
		return fmt.Errorf("a section header of %d bytes, must be 28 at least: %w", len(b)+ngHead+ngTail, errRecord)
	}
	f.section++
	f.ifaces = nil
	major, minor := f.u16(b[4:]), f.u16(b[6:])
	if f.unknown = major != 1; f.unknown {
		s.warnAt(SkippedSection, 0, s.Packets+1, func() string {
			return fmt.Sprintf("a section of version %d.%d of the pcapng format is skipped: only 1 is read", major, minor)
		})
	}
	return nil
}

// describe takes an interface description.
func (f *ngFile) describe(s *source, b []byte) {
	if len(f.ifaces) >= maxInterfaces {
		s.warnAt(TooMany, 0, s.Packets+1, func() string { return fmt.Sprintf("more than %d interfaces in a section", maxInterfaces) })
		return
	}
	i := &Interface{File: s.index, Section: f.section, Index: len(f.ifaces), clock: microseconds()}
	f.ifaces = append(f.ifaces, i)
	if len(f.ifaces) > 1 && s.reorder == nil {
		s.reorder = newReorder()
	}
	if len(b) < 8 {
		i.LinkType = 0xffff
		s.warnAt(SkippedPacket, 2, s.Packets+1, func() string { return "an interface description without a link type" })
		return
	}
	i.LinkType, i.Snaplen = LinkType(f.u16(b)), f.u32(b[4:])
	b = b[8:]
	for code, value, ok := f.option(&b); ok; code, value, ok = f.option(&b) {
		switch {
		case code == ifName:
			i.Name = text(value, maxText)
		case code == ifDesc:
			i.Description = text(value, maxText)
		case code == ifOS:
			i.OS = text(value, maxText)
		case code == ifFilter && len(value) > 1 && value[0] == 0: // a libpcap filter string
			i.Filter = text(value[1:], maxText)
		case code == ifTsresol && len(value) == 1:
			i.clock.resolution(value[0])
		case code == ifTsoffset && len(value) == 8:
			i.clock.offset = int64(f.u64(value))
		}
	}
}

// statistics says what an interface lost.
func (f *ngFile) statistics(s *source, b []byte) {
	if len(b) < 12 {
		return
	}
	index := f.u32(b)
	if int64(index) >= int64(len(f.ifaces)) {
		return
	}
	lost := uint64(0)
	b = b[12:]
	for code, value, ok := f.option(&b); ok; code, value, ok = f.option(&b) {
		if (code == isbIfDrop || code == isbOSDrop) && len(value) == 8 {
			lost += f.u64(value)
		}
	}
	if lost > 0 {
		name := f.ifaces[index].Name
		s.warnAt(LostPackets, uint32(f.section)<<16|index, 0, func() string {
			return fmt.Sprintf("%d packets of interface %d %s were not captured, says the file (isb_ifdrop, isb_osdrop)", lost, index, name)
		})
	}
}

// Where the fields of packet blocks stand, behind type and length.
const (
	epbHead = 20 // interface, time (2), captured, original length
	spbHead = 4  // original length
)

// packet reads a packet block of any kind, and reports false where it contradicts
// itself: the next block is found all the same.
func (f *ngFile) packet(s *source, kind uint32, b []byte, rec *Record) bool {
	s.Packets++
	if kind == ngSimplePacket {
		return f.simple(s, b, rec)
	}
	if len(b) < epbHead {
		return f.skip(s, 3, "a packet block without room for a packet's header")
	}
	index := f.u32(b)
	if kind == ngOldPacket {
		index = uint32(f.u16(b))
		if lost := f.u16(b[2:]); lost != 0xffff {
			rec.Dropped = uint64(lost)
		}
	}
	if int64(index) >= int64(len(f.ifaces)) {
		return f.skip(s, 4, "of an interface that the section does not describe before")
	}
	captured, orig := f.u32(b[12:]), f.u32(b[16:])
	if int64(captured) > int64(len(b)-epbHead) || captured > maxRecord {
		return f.skip(s, 5, "a captured length beyond its block, or above 262144")
	}
	rec.Interface = f.ifaces[index]
	var ok bool
	if rec.Time, ok = rec.Interface.clock.at(uint64(f.u32(b[4:]))<<32 | uint64(f.u32(b[8:]))); !ok {
		rec.Time = f.last
		s.oddTime()
	}
	f.last = rec.Time
	s.lengths(rec, b[epbHead:epbHead+captured], orig)
	if options := epbHead + (int(captured)+3)/4*4; options < len(b) {
		f.packetOptions(b[options:], rec)
	}
	if rec.Dropped > 0 {
		s.warning(LostPackets, 0xffffffff, func() string {
			return fmt.Sprintf("%d packets before this one were not captured, says the file (epb_dropcount)", rec.Dropped)
		})
	}
	return true
}

// simple reads a simple packet block, which is of the first interface.
func (f *ngFile) simple(s *source, b []byte, rec *Record) bool {
	if len(b) < spbHead {
		return f.skip(s, 3, "a packet block without room for a packet's header")
	}
	if len(f.ifaces) == 0 {
		return f.skip(s, 4, "of an interface that the section does not describe before")
	}
	rec.Interface = f.ifaces[0]
	orig := f.u32(b)
	n := min(int64(orig), int64(len(b)-spbHead))
	if snap := int64(rec.Interface.Snaplen); snap > 0 {
		n = min(n, snap)
	}
	if n > maxRecord {
		return f.skip(s, 5, "a captured length beyond its block, or above 262144")
	}
	rec.Time = f.last
	s.warning(NoTime, 0, func() string {
		return "a simple packet block bears no time: taken as captured with the packet before it"
	})
	s.lengths(rec, b[spbHead:spbHead+n], orig)
	return true
}

func (f *ngFile) skip(s *source, kind uint32, why string) bool {
	s.warning(SkippedPacket, kind, func() string { return "skipped: " + why })
	return false
}

// packetOptions reads the options of a packet.
func (f *ngFile) packetOptions(b []byte, rec *Record) {
	for code, value, ok := f.option(&b); ok; code, value, ok = f.option(&b) {
		switch {
		case code == optComment && len(rec.Comments) < maxComments:
			rec.Comments = append(rec.Comments, text(value, maxComment))
		case code == epbFlags && len(value) == 4:
			rec.flags(f.u32(value))
		case code == epbDropCount && len(value) == 8:
			rec.Dropped = f.u64(value)
		case code == epbPacketID && len(value) == 8:
			rec.PacketID = f.u64(value)
		}
	}
}

// flags reads epb_flags (section 4.3.1): direction in the lowest two bits, type of
// reception in the next three.
func (l *LinkLayer) flags(flags uint32) {
	switch flags & 3 {
	case 1:
		l.Direction = Incoming
	case 2:
		l.Direction = Outgoing
	}
	switch flags >> 2 & 7 {
	case 1:
		l.Kind = ToUs
	case 2:
		l.Kind = Multicast
	case 3:
		l.Kind = Broadcast
	case 4:
		l.Kind = OtherHost
	}
}

// option takes the next option off b, and reports false when there is none, or one
// that does not fit.
func (f *ngFile) option(b *[]byte) (code uint16, value []byte, ok bool) {
	if len(*b) < 4 {
		return 0, nil, false
	}
	code = f.u16(*b)
	end := 4 + int(f.u16((*b)[2:]))
	if code == optEnd || end > len(*b) {
		return 0, nil, false
	}
	value = (*b)[4:end]
	*b = (*b)[min(padded(end), len(*b)):]
	return code, value, true
}

// text is an option's text, without the zeros that some programs end it with.
func text(b []byte, most int) string {
	b = b[:min(len(b), most)]
	for len(b) > 0 && b[len(b)-1] == 0 {
		b = b[:len(b)-1]
	}
	return string(b)
}
