package capture

import (
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// maxRecord is the largest packet that is read, in bytes: libpcap's
// MAXIMUM_SNAPLEN. What claims to be larger is no packet.
const maxRecord = 262144

// maxZstdWindow is how much memory unpacking a zstd file may take, in bytes: what
// the zstd program itself takes unless told otherwise (--long). gzip needs 32 KiB.
const maxZstdWindow = 128 << 20

// File is what a Reader knows of one of its files.
type File struct {
	Name        string // as given; "-" is standard input
	Format      string // such as "pcapng, little-endian"
	Compression string // gzip, zstd or empty
	Packets     uint64 // read so far, skipped ones included
}

// source is one file that is being read.
type source struct {
	File
	index  int
	warn   *warnings
	win    window
	format interface {
		// next fills rec with the next packet, Number, File and time's order apart.
		next(s *source, rec *Record) error
	}
	closers []io.Closer

	delivered uint64
	refused   uint64   // packets skipped for their link type
	refusal   LinkType // of the first of them
	last      int64    // ns, of the packet before
	lastKnown bool
	rec       Record
	reorder   *reorder // of a file with several interfaces
	err       error    // why nothing comes any more; io.EOF: that was all
}

// magics of formats that are not read, as big-endian numbers, and what helps.
func otherFormat(magic []byte) string {
	const convert = "convert it: editcap -F pcapng OLD NEW"
	for _, f := range []struct{ magic, name string }{
		{"\xa1\xb2\xcd\x34", "a pcap file of the modified format (Kuznetzov's patch): " + convert},
		{"\x34\xcd\xb2\xa1", "a pcap file of the modified format (Kuznetzov's patch): " + convert},
		{"\x1c\x00\x01\xac", "an Ixia lcap file: " + convert},
		{"\xac\x01\x00\x1c", "an Ixia lcap file: " + convert},
		{"\x1c\x00\x01\xab", "an Ixia lcap file: " + convert},
		{"\xab\x01\x00\x1c", "an Ixia lcap file: " + convert},
		{"snoop\x00\x00\x00", "a snoop file: " + convert},
		{"GMBU", "a Microsoft Network Monitor file: " + convert},
		{"RTSS", "a Microsoft Network Monitor file: " + convert},
		{"\xfd7zXZ\x00", "compressed with xz: xz -dc FILE | ... -"},
		{"BZh", "compressed with bzip2: bzip2 -dc FILE | ... -"},
		{"\x04\x22\x4d\x18", "compressed with lz4: lz4 -dc FILE | ... -"},
		{"PK\x03\x04", "a zip archive: unpack it"},
		{"\x1f\x9d", "compressed with compress: uncompress it"},
	} {
		if strings.HasPrefix(string(magic), f.magic) {
			return f.name
		}
	}
	return ""
}

const (
	gzipMagic = "\x1f\x8b"
	zstdMagic = "\x28\xb5\x2f\xfd"
)

// open looks at the first bytes of the stream and reads its header.
func (s *source) open(in io.Reader) error {
	s.win.from = in
	magic, err := s.win.peek(12)
	if len(magic) >= 4 {
		if err := s.decompress(string(magic[:4])); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		magic, err = s.win.peek(12)
	}
	switch {
	case len(magic) == 0 && err == io.EOF && s.Compression == "":
		return fmt.Errorf("%s: empty: not even the header of a capture file", s.Name)
	case err != nil && !isCut(err):
		return s.damaged(err)
	case strings.HasPrefix(string(magic), gzipMagic) || strings.HasPrefix(string(magic), zstdMagic):
		return fmt.Errorf("%s: compressed twice: unpack it once", s.Name)
	case len(magic) < 4 && s.Compression != "":
		return fmt.Errorf("%s: %s: it ends before anything can be unpacked", s.Name, s.Compression)
	case len(magic) < 4:
		return fmt.Errorf("%s: %d bytes: too short for a capture file", s.Name, len(magic))
	}
	if what := otherFormat(magic); what != "" {
		return fmt.Errorf("%s: %s", s.Name, what)
	}
	if binary.BigEndian.Uint32(magic) == ngSection {
		s.format, err = openNg(s)
	} else {
		s.format, err = openPcap(s)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	return nil
}

// decompress puts an unpacking reader before the window.
func (s *source) decompress(magic string) error {
	switch {
	case strings.HasPrefix(magic, gzipMagic):
		s.Compression = "gzip"
		packed := s.win
		z, err := gzip.NewReader(&packed)
		if err != nil {
			return fmt.Errorf("gzip: %w", err)
		}
		s.win = window{from: z}
	case magic == zstdMagic:
		s.Compression = "zstd"
		packed := s.win
		z, err := zstd.NewReader(&packed, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxZstdWindow), zstd.WithDecoderMaxMemory(maxZstdWindow))
		if err != nil {
			return fmt.Errorf("zstd: %w", err)
		}
		s.closers = append(s.closers, z.IOReadCloser())
		s.win = window{from: z}
	}
	return nil
}

// isCut reports whether a stream just ended too early.
func isCut(err error) bool { return err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) }

// next reads the source's next packet into rec, or sets err.
func (s *source) next() {
	for s.err == nil {
		rec := &s.rec
		if s.err = s.ordered(rec); s.err != nil {
			s.finish()
			return
		}
		s.order(rec)
		if !rec.Interface.LinkType.Supported() {
			s.refuse(rec)
			continue
		}
		rec.Truncated = len(rec.Data) < rec.OrigLen
		rec.decode(rec.Interface.LinkType, rec.Data)
		s.delivered++
		return
	}
}

// inFile reads the next packet in the order of the file.
func (s *source) inFile(rec *Record) error {
	*rec = Record{File: s.index}
	err := s.format.next(s, rec)
	rec.Number = s.Packets
	return err
}

// ordered reads the next packet in the order of the interfaces' times.
func (s *source) ordered(rec *Record) error {
	q := s.reorder
	if q == nil {
		err := s.inFile(rec)
		if err != nil || s.reorder == nil {
			return err
		}
		q = s.reorder // a second interface came before this packet
		q.put(rec)
	}
	for !q.full() {
		if q.ended != nil {
			return q.ended
		}
		if q.ended = s.inFile(rec); q.ended == nil {
			q.put(rec)
		}
	}
	q.take(rec)
	return nil
}

// refuse skips a packet of a link type that is not read.
func (s *source) refuse(rec *Record) {
	kind := rec.Interface.LinkType
	if s.refused == 0 {
		s.refusal = kind
	}
	s.refused++
	s.warnAt(SkippedType, uint32(kind), rec.Number, func() string { return fmt.Sprintf("skipped: %v; %s", kind, readable) })
}

// order keeps the order of an interface's packets, and says where times contradict
// it: which of a clock and a file is right cannot be known.
func (s *source) order(rec *Record) {
	if s.lastKnown && rec.Time < s.last {
		before := s.last - rec.Time
		s.warnAt(NotInOrder, 0, rec.Number, func() string {
			return fmt.Sprintf("%d.%09d s older than the packet before it; packets of an interface stay in the order of the file", before/second, before%second)
		})
	}
	s.last, s.lastKnown = rec.Time, true
}

// finish says why a source ended.
func (s *source) finish() {
	switch {
	case s.err == io.EOF && s.delivered == 0 && s.refused > 0:
		s.err = fmt.Errorf("%s: all %d packets are of link type %v: %s", s.Name, s.refused, s.refusal, readable)
	case s.err != io.EOF:
		err := s.err
		s.err = fmt.Errorf("%s: packet %d: %w", s.Name, s.Packets+1, err)
		s.warnAt(DamagedFile, 0, s.Packets+1, err.Error)
	}
}

// cut ends the source where the file does, in the middle of what.
func (s *source) cut(what string, have int, err error) error {
	if err != nil && !isCut(err) {
		return s.damaged(err)
	}
	s.warnAt(CutFile, 0, s.Packets+1, func() string {
		return fmt.Sprintf("truncated file: it ends in the middle of %s, after %d bytes of it; %d packets were read", what, have, s.Packets)
	})
	return io.EOF
}

// damaged is the error of a stream that cannot be read.
func (s *source) damaged(err error) error {
	if s.Compression == "zstd" && errors.Is(err, zstd.ErrWindowSizeExceeded) {
		return fmt.Errorf("zstd: unpacking takes more than %d MiB of memory (zstd --long): unpack the file first: %w", maxZstdWindow>>20, err)
	}
	if s.Compression != "" {
		return fmt.Errorf("%s: %w", s.Compression, err)
	}
	return err
}

// warning is about the packet just read.
func (s *source) warning(code string, kind uint32, text func() string) {
	s.warnAt(code, kind, s.Packets, text)
}

func (s *source) warnAt(code string, kind uint32, number uint64, text func() string) {
	s.warn.add(s.Name, code, kind, number, text)
}

// lengths takes a packet's data and original length over, where a file may say
// that there was less on the wire than was captured.
func (s *source) lengths(rec *Record, data []byte, orig uint32) {
	rec.Data, rec.OrigLen = data, int(orig)
	if int(orig) < len(data) {
		rec.OrigLen = len(data)
		s.warning(OddLength, 0, func() string {
			return fmt.Sprintf("%d bytes captured of a packet of %d: taken as one of %d", len(data), orig, len(data))
		})
	}
}

func (s *source) oddTime() {
	s.warning(OddTime, 0, func() string {
		return "a time that cannot be: a fraction of a second above one, or beyond the years 1678 to 2262"
	})
}
