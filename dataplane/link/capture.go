package link

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"

	"pktdirector/dataplane"
	"pktdirector/packet"
)

// Capture is a link that reads a capture file, pcap or pcapng, of Ethernet or
// of bare IP packets, and may write another one.
type Capture struct {
	counters
	info    dataplane.LinkInfo
	closers []io.Closer
	closed  atomic.Bool
	reader  *captureReader

	mu   sync.Mutex // guards what follows
	out  *pcapgo.NgWriter
	time time.Time // of the packet read last, which what is written bears too
}

// OpenCapture reads the capture file in. Packets written to the link go to the
// pcapng file out, unless its name is empty: then they count as sent and are
// gone.
func OpenCapture(in, out string, info dataplane.LinkInfo) (*Capture, error) {
	f, err := os.Open(in)
	if err != nil {
		return nil, fmt.Errorf("link %s: %w", info.Name, err)
	}
	var w io.Writer
	closers := []io.Closer{f}
	if out != "" {
		o, err := os.Create(out)
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("link %s: %w", info.Name, err)
		}
		w, closers = o, append(closers, o)
	}
	l, err := NewCapture(f, w, info)
	if err != nil {
		for _, c := range closers {
			c.Close()
		}
		return nil, fmt.Errorf("%w (file %s)", err, in)
	}
	l.closers = closers
	return l, nil
}

// NewCapture is OpenCapture on streams. A nil out swallows what is written.
// info says which interface the link stands for: its VLAN and MAC are heeded,
// a zero MAC making every unicast frame the link's own.
func NewCapture(in io.Reader, out io.Writer, info dataplane.LinkInfo) (*Capture, error) {
	l := &Capture{info: info}
	src, err := newCaptureSource(in)
	if err != nil {
		return nil, fmt.Errorf("link %s: %w", info.Name, err)
	}
	l.reader = &captureReader{link: l, src: src}
	if out != nil {
		kind := layers.LinkTypeEthernet
		if info.Layer3 {
			kind = layers.LinkTypeRaw
		}
		if l.out, err = pcapgo.NewNgWriter(out, kind); err != nil {
			return nil, fmt.Errorf("link %s: writing a capture: %w", info.Name, err)
		}
	}
	return l, nil
}

// Info implements dataplane.Link.
func (l *Capture) Info() dataplane.LinkInfo { return l.info }

// Readers implements dataplane.Link: one queue, which ends with io.EOF.
func (l *Capture) Readers() []dataplane.Reader { return []dataplane.Reader{l.reader} }

// NewWriter implements dataplane.Link.
func (l *Capture) NewWriter() dataplane.Writer { return &captureWriter{link: l} }

// Close implements dataplane.Link and completes the written file.
func (l *Capture) Close() error {
	if l.closed.Swap(true) {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	if l.out != nil {
		errs = append(errs, l.out.Flush())
	}
	for _, c := range l.closers {
		errs = append(errs, c.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("link %s: %w", l.info.Name, err)
	}
	return nil
}

// captureSource is a capture file under either of its readers.
type captureSource struct {
	read func() ([]byte, gopacket.CaptureInfo, error)
	kind func(gopacket.CaptureInfo) (layers.LinkType, error)
}

// newCaptureSource tells the file formats apart by their first bytes.
func newCaptureSource(in io.Reader) (captureSource, error) {
	b := bufio.NewReader(in)
	magic, err := b.Peek(4)
	if err != nil {
		return captureSource{}, fmt.Errorf("reading a capture's first 4 bytes: %w", err)
	}
	const pcapng = 0x0a0d0d0a // a section header block, equal in both byte orders
	if binary.BigEndian.Uint32(magic) != pcapng {
		r, err := pcapgo.NewReader(b)
		if err != nil {
			return captureSource{}, fmt.Errorf("neither a pcapng nor a pcap file: %w", err)
		}
		return captureSource{r.ReadPacketData, func(gopacket.CaptureInfo) (layers.LinkType, error) { return r.LinkType(), nil }}, nil
	}
	r, err := pcapgo.NewNgReader(b, pcapgo.NgReaderOptions{WantMixedLinkType: true})
	if err != nil {
		return captureSource{}, fmt.Errorf("pcapng file: %w", err)
	}
	return captureSource{r.ReadPacketData, func(ci gopacket.CaptureInfo) (layers.LinkType, error) {
		i, err := r.Interface(ci.InterfaceIndex)
		return i.LinkType, err
	}}, nil
}

type captureReader struct {
	link *Capture
	src  captureSource
	n    int   // records read
	end  error // what the next Read returns
}

// Read implements dataplane.Reader. The packets' memory is their own: they
// stay valid for as long as somebody holds them.
func (r *captureReader) Read(batch []*packet.Packet) (int, error) {
	n := 0
	for n < len(batch) && r.end == nil {
		if r.link.closed.Load() {
			r.end = net.ErrClosed
			break
		}
		data, ci, err := r.src.read()
		if err == nil {
			r.n++
			var kind layers.LinkType
			if kind, err = r.src.kind(ci); err == nil {
				err = r.describe(batch[n], data, ci, kind)
			}
		}
		switch {
		case errors.Is(err, errOtherVLAN):
			r.link.rxOtherVLAN.Add(1)
		case err == io.EOF:
			r.end = io.EOF
		case err != nil:
			r.end = fmt.Errorf("link %s: record %d: %w", r.link.info.Name, r.n+1, err)
		default:
			n++
		}
	}
	if n > 0 {
		return n, nil
	}
	return 0, r.end
}

// errOtherVLAN is of frames that are none of the link's.
var errOtherVLAN = errors.New("another VLAN's frame")

// describe fills p from one record.
func (r *captureReader) describe(p *packet.Packet, data []byte, ci gopacket.CaptureInfo, kind layers.LinkType) error {
	l := r.link
	buf := make([]byte, packet.Headroom+len(data))
	copy(buf[packet.Headroom:], data)
	p.Reset(buf, packet.Headroom, len(data))
	p.Truncated = ci.CaptureLength < ci.Length
	switch kind {
	case layers.LinkTypeEthernet:
		stripEthernet(p)
	case layers.LinkTypeRaw, layers.LinkTypeIPv4, layers.LinkTypeIPv6, dltRaw, dltRawBSD:
		p.EtherType = ipEtherType(p)
	default:
		return fmt.Errorf("link type %d (%s): Ethernet (1) and raw IP (101, 228, 229) can be read", kind, kind)
	}
	if !ours(&l.info, p.Tagged, p.VLAN) {
		return errOtherVLAN
	}
	if kind == layers.LinkTypeEthernet && !l.info.MAC.IsZero() {
		p.Class = classify(&l.info, p.DstMAC)
	}
	if p.Truncated {
		l.rxTruncated.Add(1)
	}
	l.rxPackets.Add(1)
	l.rxBytes.Add(uint64(ci.Length))
	l.mu.Lock()
	l.time = ci.Timestamp
	l.mu.Unlock()
	return nil
}

// The system-dependent numbers that raw IP captures bear in old files.
const (
	dltRaw    layers.LinkType = 12
	dltRawBSD layers.LinkType = 14
)

// stripEthernet takes the Ethernet header and the outer tag off.
func stripEthernet(p *packet.Packet) {
	b := p.Bytes()
	if len(b) < etherLen {
		p.Truncated = true
		p.Start = p.End
		return
	}
	copy(p.DstMAC[:], b)
	copy(p.SrcMAC[:], b[6:])
	p.EtherType = packet.EtherType(binary.BigEndian.Uint16(b[12:]))
	p.Start += etherLen
	if (p.EtherType == packet.EtherVLAN || p.EtherType == packet.EtherQinQ) && len(b) >= etherLen+vlanLen {
		p.Tagged, p.VLANType = true, p.EtherType
		p.VLAN = binary.BigEndian.Uint16(b[14:])
		p.EtherType = packet.EtherType(binary.BigEndian.Uint16(b[16:]))
		p.Start += vlanLen
	}
}

type captureWriter struct {
	link *Capture
	cut  pieces
	buf  []byte
}

// Write implements dataplane.Writer: the file gets what would be on the wire.
func (w *captureWriter) Write(batch []*packet.Packet) {
	for _, p := range batch {
		p.Sent = w.write(p)
	}
}

func (w *captureWriter) write(p *packet.Packet) bool {
	l := w.link
	if l.closed.Load() {
		l.txDown.Add(1)
		return false
	}
	if !w.cut.reset(p, &l.counters) {
		l.txError.Add(1)
		return false
	}
	var ether [etherLen + vlanLen]byte
	n := 0
	if !l.info.Layer3 {
		n = putEthernet(ether[:], &l.info, p)
	}
	for h, b := w.cut.next(); len(h)+len(b) > 0; h, b = w.cut.next() {
		w.buf = append(append(append(w.buf[:0], ether[:n]...), h...), b...)
		if !w.record() {
			l.txError.Add(1)
			return false
		}
		l.txPackets.Add(1)
		l.txBytes.Add(uint64(len(w.buf)))
	}
	return true
}

// record writes the frame in buf to the file.
func (w *captureWriter) record() bool {
	l := w.link
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out == nil {
		return true
	}
	ci := gopacket.CaptureInfo{Timestamp: l.time, CaptureLength: len(w.buf), Length: len(w.buf)}
	return l.out.WritePacket(ci, w.buf) == nil
}

var _ dataplane.Link = (*Capture)(nil)
