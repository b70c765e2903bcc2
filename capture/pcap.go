package capture

import (
	"errors"
	"fmt"
	"io"
)

// Lengths of headers of pcap files (draft-ietf-opsawg-pcap sections 4 and 5).
const (
	pcapFileHeader   = 24
	pcapRecordHeader = 16
)

// Magic numbers of pcap files: times in µs and in ns.
const (
	pcapMicro = 0xa1b2c3d4
	pcapNano  = 0xa1b23c4d
)

// pcapFile reads the records of a pcap file.
type pcapFile struct {
	byteOrder
	unit    int64 // ns of the fraction of a second
	iface   Interface
	swapped bool // versions before 2.3 have the lengths the other way round
	maybe   bool // version 2.3 has them either way
}

// openPcap reads the file header.
func openPcap(s *source) (*pcapFile, error) {
	h, err := s.win.peek(pcapFileHeader)
	f := &pcapFile{}
	if big := bigEndian.u32(h); big == pcapMicro || big == pcapNano {
		f.byteOrder = bigEndian
	}
	magic := f.u32(h)
	switch magic {
	case pcapMicro:
		f.unit, s.Format = 1000, "pcap, "+f.String()+", microseconds"
	case pcapNano:
		f.unit, s.Format = 1, "pcap, "+f.String()+", nanoseconds"
	default:
		return nil, fmt.Errorf("starts with % x: neither a pcap nor a pcapng file", h[:4])
	}
	if len(h) < pcapFileHeader {
		if err != nil && !isCut(err) {
			return nil, s.damaged(err)
		}
		return nil, fmt.Errorf("%d bytes of a pcap file's header of %d: nothing to read", len(h), pcapFileHeader)
	}
	major, minor := f.u16(h[4:]), f.u16(h[6:])
	if major != 2 {
		return nil, fmt.Errorf("version %d.%d of the pcap format: only 2 is read", major, minor)
	}
	f.swapped, f.maybe = minor < 3, minor == 3
	// The high half tells whether frames bear their checksum (FCS), which is
	// behind what the network layer says is the packet's end.
	f.iface = Interface{File: s.index, Snaplen: f.u32(h[16:]), LinkType: LinkType(f.u32(h[20:]))}
	if !f.iface.LinkType.Supported() {
		return nil, fmt.Errorf("link type %v: %s", f.iface.LinkType, readable)
	}
	s.win.take(pcapFileHeader)
	return f, nil
}

// errRecord is of a length that only a damaged file has.
var errRecord = errors.New("the file is damaged here, and what follows cannot be found")

// next implements source.format. The file's snaplen counts for nothing: there are
// files whose records are longer.
func (f *pcapFile) next(s *source, rec *Record) error {
	for {
		h, err := s.win.peek(pcapRecordHeader)
		if len(h) < pcapRecordHeader {
			if len(h) == 0 && err == io.EOF {
				return io.EOF
			}
			return s.cut("a record's header", len(h), err)
		}
		sec, fraction, n, orig := f.u32(h), f.u32(h[4:]), f.u32(h[8:]), f.u32(h[12:])
		if f.swapped || f.maybe && n > orig {
			n, orig = orig, n
		}
		if n > maxRecord {
			return fmt.Errorf("a captured length of %d bytes, at most %d can be: %w", n, maxRecord, errRecord)
		}
		b, err := s.win.peek(pcapRecordHeader + int(n))
		if len(b) < pcapRecordHeader+int(n) {
			return s.cut("a record", len(b), err)
		}
		s.win.take(len(b))
		s.Packets++
		if n == 0 && orig == 0 {
			s.warning(EmptyRecord, 0, func() string { return "skipped: a record of no bytes" })
			continue
		}
		rec.Interface = &f.iface
		rec.Time = int64(sec)*second + int64(fraction)*f.unit
		if int64(fraction)*f.unit >= second {
			s.oddTime()
		}
		s.lengths(rec, b[pcapRecordHeader:], orig)
		return nil
	}
}
