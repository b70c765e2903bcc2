package link

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"

	"pktdirector/capture"
	"pktdirector/dataplane"
	"pktdirector/packet"
)

// Capture is a link that reads a capture file, of any kind that package capture
// reads, and may write another one.
type Capture struct {
	counters
	info    dataplane.LinkInfo
	closers []io.Closer
	closed  atomic.Bool
	reader  *captureReader

	mu   sync.Mutex // guards what follows
	out  *capture.Writer
	time int64 // ns: of the packet read last, which what is written bears too
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
	r, err := capture.NewReader(in, capture.Options{})
	if err != nil {
		return nil, fmt.Errorf("link %s: %w", info.Name, err)
	}
	l.reader = &captureReader{link: l, file: r}
	if out == nil {
		return l, nil
	}
	kind := capture.Ethernet
	if info.Layer3 {
		kind = capture.Raw
	}
	if l.out, err = capture.NewWriter(out, capture.WriterOptions{Application: "pktdirector"}); err == nil {
		_, err = l.out.AddInterface(capture.Interface{Name: info.Name, LinkType: kind})
	}
	if err != nil {
		r.Close()
		return nil, fmt.Errorf("link %s: %w", info.Name, err)
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
	errs := []error{l.reader.file.Close()}
	if l.out != nil {
		errs = append(errs, l.out.Finish())
	}
	for _, c := range l.closers {
		errs = append(errs, c.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("link %s: %w", l.info.Name, err)
	}
	return nil
}

type captureReader struct {
	link *Capture
	file *capture.Reader
	rec  capture.Record
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
		if err := r.file.Next(&r.rec); err == io.EOF {
			r.end = r.ending()
		} else if err != nil {
			r.end = fmt.Errorf("link %s: %w", r.link.info.Name, err)
		} else if r.describe(batch[n]) {
			n++
		}
	}
	if n > 0 {
		return n, nil
	}
	return 0, r.end
}

// ending is what ends a file: io.EOF, or an error if packets of it could not be
// read, which nobody would learn of otherwise.
func (r *captureReader) ending() error {
	for _, w := range r.file.Warnings() {
		switch w.Code {
		case capture.CutFile, capture.SkippedType, capture.SkippedPacket, capture.SkippedSection:
			return fmt.Errorf("link %s: %v", r.link.info.Name, w)
		}
	}
	return io.EOF
}

// describe fills p from a record, and reports false for one of another VLAN.
func (r *captureReader) describe(p *packet.Packet) bool {
	l, rec := r.link, &r.rec
	// Of the tags only the outermost is the link's.
	data, eth, tags := rec.Data[rec.Offset:], rec.EtherType, rec.Tags()
	if len(tags) > 1 {
		const tagLen = 4
		data, eth = rec.Data[rec.Offset-(len(tags)-1)*tagLen:], tags[1].Type
	}
	buf := make([]byte, packet.Headroom+len(data))
	copy(buf[packet.Headroom:], data)
	p.Reset(buf, packet.Headroom, len(data))
	p.Truncated = rec.Truncated || eth == 0 && len(data) == 0
	p.EtherType, p.SrcMAC, p.DstMAC = eth, rec.SrcMAC, rec.DstMAC
	if len(tags) > 0 {
		p.Tagged, p.VLAN, p.VLANType = true, tags[0].TCI, tags[0].Type
	}
	if !ours(&l.info, p.Tagged, p.VLAN) {
		l.rxOtherVLAN.Add(1)
		return false
	}
	p.Class = l.class(rec)
	if p.Truncated {
		l.rxTruncated.Add(1)
	}
	l.rxPackets.Add(1)
	l.rxBytes.Add(uint64(rec.OrigLen))
	l.mu.Lock()
	l.time = rec.Time
	l.mu.Unlock()
	return true
}

// class tells for whom a record is: by its MAC where both it and the link's are
// known, or as the file says.
func (l *Capture) class(rec *capture.Record) packet.Class {
	switch {
	case rec.HasDst && !l.info.MAC.IsZero():
		return classify(&l.info, rec.DstMAC)
	case rec.HasDst || rec.Direction == capture.DirectionUnknown:
		return packet.ToUs
	case rec.Direction == capture.Outgoing:
		return packet.Outgoing
	}
	switch rec.Kind {
	case capture.Broadcast:
		return packet.Broadcasted
	case capture.Multicast:
		return packet.Multicasted
	case capture.OtherHost:
		return packet.OtherHost
	}
	return packet.ToUs
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
	return l.out.Write(&capture.Packet{Time: l.time, Data: w.buf, OrigLen: len(w.buf)}) == nil
}

var _ dataplane.Link = (*Capture)(nil)
