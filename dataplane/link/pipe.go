package link

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"pktdirector/dataplane"
	"pktdirector/packet"
)

// PipeOptions say what a pipe can do. The zero value is an interface without
// offloads.
type PipeOptions struct {
	// GSO lets super-frames through; otherwise the writer cuts them.
	GSO bool
	// Checksums lets unfinished checksums through; otherwise the writer
	// finishes them. GSO implies it for super-frames.
	Checksums bool
	// Depth is how many packets a direction holds before the writer drops;
	// 0 means 1024.
	Depth int
	// NonBlocking makes Read return at once when there is nothing, for tests
	// that call it themselves. Run would ask without a pause.
	NonBlocking bool
}

// Pipe is one end of a link in memory: what is written to one end is read from
// the other. It uses no clock but for the wait of a blocking Read, and works
// inside testing/synctest.
type Pipe struct {
	counters
	info    atomic.Pointer[dataplane.LinkInfo]
	options PipeOptions
	in, out *pipeQueue
	closed  chan struct{}
	closing sync.Once
	peer    *Pipe
}

// pipeQueue is one direction: packets on their way and their used buffers on
// the way back.
type pipeQueue struct{ queue, free chan *packet.Packet }

// NewPipe returns the two ends of a new pipe. Their VLAN, MTU and MAC are
// heeded as an Ethernet interface's are.
func NewPipe(a, b dataplane.LinkInfo, o PipeOptions) (*Pipe, *Pipe) {
	if o.Depth == 0 {
		o.Depth = 1024
	}
	queue := func() *pipeQueue {
		return &pipeQueue{make(chan *packet.Packet, o.Depth), make(chan *packet.Packet, o.Depth)}
	}
	ab, ba := queue(), queue()
	left := &Pipe{options: o, in: ba, out: ab, closed: make(chan struct{})}
	right := &Pipe{options: o, in: ab, out: ba, closed: make(chan struct{}), peer: left}
	left.peer = right
	left.SetInfo(a)
	right.SetInfo(b)
	return left, right
}

// Info implements dataplane.Link.
func (l *Pipe) Info() dataplane.LinkInfo { return *l.info.Load() }

// SetInfo changes what Info returns, as an operator changes an interface.
func (l *Pipe) SetInfo(info dataplane.LinkInfo) { l.info.Store(&info) }

// Readers implements dataplane.Link: one queue.
func (l *Pipe) Readers() []dataplane.Reader { return []dataplane.Reader{&pipeReader{link: l}} }

// NewWriter implements dataplane.Link.
func (l *Pipe) NewWriter() dataplane.Writer { return &pipeWriter{link: l} }

// Close implements dataplane.Link. The other end stays open; what it writes
// finds the link down.
func (l *Pipe) Close() error {
	l.closing.Do(func() { close(l.closed) })
	return nil
}

func (l *Pipe) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}

type pipeReader struct {
	link *Pipe
	lent []*packet.Packet // what the last Read handed out
}

// Read implements dataplane.Reader.
func (r *pipeReader) Read(batch []*packet.Packet) (int, error) {
	l := r.link
	for _, p := range r.lent {
		select {
		case l.in.free <- p:
		default:
		}
	}
	r.lent = r.lent[:0]
	if l.isClosed() {
		return 0, net.ErrClosed
	}
	if len(batch) == 0 {
		return 0, nil
	}
	n := 0
	if !l.options.NonBlocking {
		wait := time.NewTimer(idle)
		defer wait.Stop()
		for n == 0 {
			select {
			case p := <-l.in.queue:
				n += r.take(p, batch[n])
			case <-l.closed:
				return 0, net.ErrClosed
			case <-wait.C:
				return 0, nil
			}
		}
	}
	for n < len(batch) {
		select {
		case p := <-l.in.queue:
			n += r.take(p, batch[n])
		default:
			return n, nil
		}
	}
	return n, nil
}

// take hands p out as *to and returns 1, or 0 when it is none of the link's.
func (r *pipeReader) take(p, to *packet.Packet) int {
	r.lent = append(r.lent, p)
	info := r.link.info.Load()
	if !ours(info, p.Tagged, p.VLAN) {
		r.link.rxOtherVLAN.Add(1)
		return 0
	}
	p.Class = classify(info, p.DstMAC)
	*to = *p
	r.link.rxPackets.Add(1)
	r.link.rxBytes.Add(uint64(p.Len()))
	return 1
}

type pipeWriter struct {
	link *Pipe
	cut  pieces
}

// Write implements dataplane.Writer.
func (w *pipeWriter) Write(batch []*packet.Packet) {
	for _, p := range batch {
		p.Sent = w.write(p)
	}
}

func (w *pipeWriter) write(p *packet.Packet) bool {
	l := w.link
	info := l.info.Load()
	if l.isClosed() || l.peer.isClosed() {
		l.txDown.Add(1)
		return false
	}
	o := &l.options
	if p.GSO != packet.GSONone && o.GSO && !tunnelled(p) ||
		p.GSO == packet.GSONone && p.CsumPartial && o.Checksums && !tunnelled(p) {
		packet.DeferChecksum(p) // no change where it is unfinished already
		return w.put(p, info, nil, p.Bytes(), true)
	}
	if !w.cut.reset(p, &l.counters) {
		l.txError.Add(1)
		return false
	}
	sent := true
	for h, b := w.cut.next(); len(h)+len(b) > 0; h, b = w.cut.next() {
		sent = w.put(p, info, h, b, false) && sent
	}
	return sent
}

// put queues header and payload as one packet with p's metadata.
func (w *pipeWriter) put(p *packet.Packet, info *dataplane.LinkInfo, header, payload []byte, offload bool) bool {
	l, n := w.link, len(header)+len(payload)
	wire := n
	if offload {
		wire = p.WireLen()
	}
	if info.MTU > 0 && wire > info.MTU {
		l.txTooBig.Add(1)
		return false
	}
	var f *packet.Packet
	select {
	case f = <-l.out.free:
	default:
		f = new(packet.Packet)
	}
	buf := f.Buf
	if len(buf) < packet.Headroom+n {
		buf = make([]byte, packet.Headroom+n)
	}
	copy(buf[packet.Headroom+copy(buf[packet.Headroom:], header):], payload)
	f.Reset(buf, packet.Headroom, n)
	f.EtherType, f.SrcMAC, f.DstMAC = p.EtherType, info.MAC, p.DstMAC
	if tci, kind, tagged := egressTag(info, p); tagged {
		f.VLAN, f.VLANType, f.Tagged = tci, kind, true
	}
	if offload {
		f.CsumPartial, f.CsumOffset, f.CsumStart = p.CsumPartial, p.CsumOffset, p.CsumStart-p.Start+f.Start
		f.GSO, f.GSOECN, f.GSOSize = p.GSO, p.GSOECN, p.GSOSize
	}
	f.Truncated = p.Truncated
	select {
	case l.out.queue <- f:
	default:
		l.txNoBuffer.Add(1)
		return false
	}
	l.txPackets.Add(1)
	l.txBytes.Add(uint64(n))
	return true
}

var _ dataplane.Link = (*Pipe)(nil)
