package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// WriterOptions say what stands at the beginning of a written file.
type WriterOptions struct {
	Application string // the program's name and version
	OS          string
	Hardware    string
	Comment     string
	Snaplen     int // bytes that are written of a packet at most; 0: all
}

// Packet is one packet to write.
type Packet struct {
	Time      int64 // ns since 1970-01-01 UTC, not negative
	Interface int   // number that AddInterface returned
	Data      []byte
	OrigLen   int // bytes on the wire; less than len(Data), as 0: len(Data)
	Comments  []string
	Direction Direction
	Kind      Kind
	PacketID  uint64 // the same for one packet before and after; 0: none
	Dropped   uint64 // packets that were not written since the one before
}

// Writer writes a pcapng file: one section in little-endian order, with times in
// nanoseconds. It does not have pcapgo's NgWriter do it, which writes neither
// comments nor flags nor numbers of packets. It is for one goroutine.
//
// A packet's verdict has no option of its own: epb_verdict is for hardware and
// eBPF. It belongs in the comment.
type Writer struct {
	out    io.Writer
	o      WriterOptions
	ifaces []written
	buf    []byte // what has not been written yet
	size   int64  // bytes of the file, those in buf included
	last   uint64 // ns, the latest time
	err    error
}

// written is an interface of a file, and what was written of it.
type written struct {
	Interface
	packets, lost uint64
}

// flushAt is how much is gathered before it is written, in bytes.
const flushAt = 64 << 10

// NewWriter writes a file's header. What it writes reaches out when 64 KiB are
// together, and with Flush.
func NewWriter(out io.Writer, o WriterOptions) (*Writer, error) {
	if o.Snaplen < 0 || o.Snaplen > maxRecord {
		return nil, fmt.Errorf("snaplen %d: must be 0 (everything) to %d bytes", o.Snaplen, maxRecord)
	}
	w := &Writer{out: out, o: o}
	w.header()
	return w, w.Flush()
}

// header begins a section (draft-ietf-opsawg-pcapng section 4.1).
func (w *Writer) header() {
	at := w.begin(ngSection)
	w.u32(ngMagic)
	w.u16(1) // version 1.0
	w.u16(0)
	w.u32(0xffffffff) // length of the section: not known
	w.u32(0xffffffff)
	const hardware, os, application = 2, 3, 4
	w.text(optComment, w.o.Comment)
	w.text(hardware, w.o.Hardware)
	w.text(os, w.o.OS)
	w.text(application, w.o.Application)
	w.end(at)
}

// AddInterface declares an interface, of which name, description, filter, OS, link
// type and snaplen are written, and returns its number. It may come between
// packets.
func (w *Writer) AddInterface(i Interface) (int, error) {
	if len(w.ifaces) >= maxInterfaces {
		return 0, fmt.Errorf("interface %s: more than %d interfaces in a capture file", i.Name, maxInterfaces)
	}
	if i.Snaplen == 0 {
		i.Snaplen = uint32(w.o.Snaplen)
	}
	w.ifaces = append(w.ifaces, written{Interface: i})
	w.describe(&i)
	return len(w.ifaces) - 1, w.flushFrom(flushAt)
}

// describe writes an interface description (section 4.2).
func (w *Writer) describe(i *Interface) {
	at := w.begin(ngInterface)
	w.u16(uint16(i.LinkType))
	w.u16(0)
	w.u32(i.Snaplen)
	w.text(ifName, i.Name)
	w.text(ifDesc, i.Description)
	w.option(ifTsresol, 1)
	w.buf = append(w.buf, 9, 0, 0, 0) // 10^-9 s, and padding
	if i.Filter != "" {
		const libpcap = "\x00"
		w.text(ifFilter, libpcap+i.Filter)
	}
	w.text(ifOS, i.OS)
	w.end(at)
}

// Write writes a packet. It does not keep anything of it, and allocates nothing.
func (w *Writer) Write(p *Packet) error {
	if w.err != nil {
		return w.err
	}
	switch {
	case p.Interface < 0 || p.Interface >= len(w.ifaces):
		return fmt.Errorf("a packet of interface %d: %d were declared", p.Interface, len(w.ifaces))
	case p.Time < 0:
		return fmt.Errorf("a packet's time of %d ns: must not be before 1970", p.Time)
	}
	orig, data := max(p.OrigLen, len(p.Data)), p.Data[:w.kept(p)]
	i := &w.ifaces[p.Interface]
	i.packets++
	t := uint64(p.Time)
	w.last = max(w.last, t)

	at := w.begin(ngEnhancedPacket) // section 4.3
	w.u32(uint32(p.Interface))
	w.u32(uint32(t >> 32))
	w.u32(uint32(t))
	w.u32(uint32(len(data)))
	w.u32(uint32(orig))
	w.buf = append(w.buf, data...)
	w.pad(len(data))
	for _, c := range p.Comments {
		w.text(optComment, c)
	}
	if flags := p.flags(); flags != 0 {
		w.option(epbFlags, 4)
		w.u32(flags)
	}
	if p.Dropped != 0 {
		w.option(epbDropCount, 8)
		w.u64(p.Dropped)
	}
	if p.PacketID != 0 {
		w.option(epbPacketID, 8)
		w.u64(p.PacketID)
	}
	w.end(at)
	return w.flushFrom(flushAt)
}

// kept is how many of a packet's bytes are written.
func (w *Writer) kept(p *Packet) int {
	n := min(len(p.Data), maxRecord)
	if snap := int(w.ifaces[p.Interface].Snaplen); snap > 0 {
		n = min(n, snap)
	}
	return n
}

// flags is epb_flags (section 4.3.1).
func (p *Packet) flags() uint32 {
	f := uint32(0)
	switch p.Direction {
	case Incoming:
		f = 1
	case Outgoing:
		f = 2
	}
	switch p.Kind {
	case ToUs:
		f |= 1 << 2
	case Multicast:
		f |= 2 << 2
	case Broadcast:
		f |= 3 << 2
	case OtherHost:
		f |= 4 << 2
	}
	return f
}

// Lost counts n packets of an interface that were not written. The file tells at
// its end (isb_ifdrop).
func (w *Writer) Lost(iface int, n uint64) {
	if iface >= 0 && iface < len(w.ifaces) {
		w.ifaces[iface].lost += n
	}
}

// statisticsLen is the length of an interface's statistics, in bytes.
const statisticsLen = ngHead + 12 + 2*(4+8) + 4 + ngTail

// Finish writes each interface's statistics (section 4.6) and what is still to be
// written. It does not close what was written to.
func (w *Writer) Finish() error {
	for n := range w.ifaces {
		i := &w.ifaces[n]
		at := w.begin(ngStatistics)
		w.u32(uint32(n))
		w.u32(uint32(w.last >> 32))
		w.u32(uint32(w.last))
		const received = 4
		w.option(received, 8)
		w.u64(i.packets + i.lost)
		w.option(isbIfDrop, 8)
		w.u64(i.lost)
		w.end(at)
	}
	return w.Flush()
}

// Flush writes what is still to be written.
func (w *Writer) Flush() error { return w.flushFrom(1) }

// flushFrom writes the buffer when that much is in it. An error stays: what comes
// behind what is missing could not be read.
func (w *Writer) flushFrom(n int) error {
	if len(w.buf) < n || w.err != nil {
		return w.err
	}
	k, err := w.out.Write(w.buf)
	if err == nil && k < len(w.buf) {
		err = io.ErrShortWrite
	}
	if err != nil {
		w.err = fmt.Errorf("writing a capture: %w", err)
	}
	w.buf = w.buf[:0]
	return w.err
}

// Size returns how many bytes the file has so far.
func (w *Writer) Size() int64 { return w.size }

// length is how long the block of a packet becomes, in bytes.
func (w *Writer) length(p *Packet) int64 {
	if p.Interface < 0 || p.Interface >= len(w.ifaces) {
		return 0
	}
	n := ngHead + epbHead + padded(w.kept(p)) + 4 + ngTail + (4 + 4) + 2*(4+8)
	for _, c := range p.Comments {
		n += 4 + padded(min(len(c), maxOption))
	}
	return int64(n)
}

// begin starts a block; end sets its lengths.
func (w *Writer) begin(kind uint32) int {
	at := len(w.buf)
	w.u32(kind)
	w.u32(0)
	return at
}

// end ends a block, behind whose fixed part options may stand.
func (w *Writer) end(at int) {
	w.u32(optEnd) // and its length, 0
	n := uint32(len(w.buf) - at + ngTail)
	w.u32(n)
	binary.LittleEndian.PutUint32(w.buf[at+4:], n)
	w.size += int64(n)
}

func (w *Writer) u16(n uint16) { w.buf = binary.LittleEndian.AppendUint16(w.buf, n) }
func (w *Writer) u32(n uint32) { w.buf = binary.LittleEndian.AppendUint32(w.buf, n) }
func (w *Writer) u64(n uint64) { w.buf = binary.LittleEndian.AppendUint64(w.buf, n) }

func (w *Writer) option(code uint16, n int) {
	w.u16(code)
	w.u16(uint16(n))
}

func padded(n int) int { return (n + 3) / 4 * 4 }

// pad fills up behind n bytes.
func (w *Writer) pad(n int) { w.buf = append(w.buf, "\x00\x00\x00"[:padded(n)-n]...) }

// maxOption is the longest text that fits an option, in bytes.
const maxOption = 65532

// text writes an option, unless it is empty. A text that is too long ends with an
// ellipsis.
func (w *Writer) text(code uint16, s string) {
	if s == "" {
		return
	}
	if len(s) > maxOption {
		const more = "…"
		s = strings.ToValidUTF8(s[:maxOption-len(more)], "") + more
	}
	w.option(code, len(s))
	w.buf = append(w.buf, s...)
	w.pad(len(s))
}

// ErrFull is of a file that has reached its limit and has no successor.
var ErrFull = errors.New("the capture file is full")
