package link

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/songgao/water"
	"golang.org/x/sys/unix"

	"pktdirector/dataplane"
	"pktdirector/packet"
)

// Tundev is a link to a TUN device, a layer-3 interface of the host: what the
// host routes into it the director reads, and what the director writes the
// host receives from it. The host segments and sums before it hands packets
// over, and expects the same.
type Tundev struct {
	counters
	log    *slog.Logger
	unsent quietLog
	name   string
	host   bool // TundevOptions.Host
	info   atomic.Pointer[dataplane.LinkInfo]
	file   *os.File
	raw    syscall.RawConn
	asking int // a socket to ask for the interface's state
	closed atomic.Bool
}

// OpenTundev creates the TUN device name, or attaches to one made to last, and
// brings it up. Routes and addresses are the caller's.
func OpenTundev(name string, o TundevOptions) (*Tundev, error) {
	dev, err := water.New(water.Config{DeviceType: water.TUN, PlatformSpecificParams: water.PlatformSpecificParams{Name: name}})
	if err != nil {
		return nil, fmt.Errorf("link %s: /dev/net/tun: %w: %s", name, err, tundevRemedy(err))
	}
	file, ok := dev.ReadWriteCloser.(*os.File)
	if !ok {
		return nil, errors.Join(fmt.Errorf("link %s: the TUN device is a %T, want an *os.File", name, dev.ReadWriteCloser), dev.Close())
	}
	l := &Tundev{log: logger(o.Log).With("link", name), name: dev.Name(), host: o.Host, file: file, asking: -1}
	if err = l.start(); err == nil {
		err = setUp(l.asking, l.name, o.MTU)
	}
	if err == nil {
		err = l.observe()
	}
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("link %s: %w", name, err)
	}
	return l, nil
}

// tundevRemedy says what to do about a TUN device that could not be opened.
func tundevRemedy(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return "the device file is missing: \"modprobe tun\", or give the container --device /dev/net/tun; or use an afpacket link"
	case errors.Is(err, unix.EBUSY):
		return "another process holds the device: stop it, or choose another name"
	case errors.Is(err, unix.EINVAL):
		return "the name is that of an interface that is no TUN device, or is too long: choose another name of up to 15 characters"
	case errors.Is(err, fs.ErrPermission):
		return "the process needs read and write permission on the file and the capability NET_ADMIN: run as root; or use an afpacket link"
	}
	return "use an afpacket link"
}

func (l *Tundev) start() error {
	var err error
	if l.raw, err = l.file.SyscallConn(); err != nil {
		return err
	}
	// The device is in the network namespace of this thread, and so is the socket.
	if l.asking, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	return nil
}

// observe takes the device's present index and MTU.
func (l *Tundev) observe() error {
	s, err := interfaceState(l.asking, l.name)
	if err != nil {
		return err
	}
	if s.index == 0 {
		return fmt.Errorf("the device %s was removed or renamed", l.name)
	}
	if was := l.info.Load(); was != nil && was.MTU != s.mtu {
		l.log.Info("the MTU changed", "from", was.MTU, "to", s.mtu)
	}
	l.info.Store(&dataplane.LinkInfo{Name: l.name, Index: s.index, MTU: s.mtu, Layer3: true, Host: l.host})
	return nil
}

// Info implements dataplane.Link.
func (l *Tundev) Info() dataplane.LinkInfo { return *l.info.Load() }

// Readers implements dataplane.Link: one queue.
func (l *Tundev) Readers() []dataplane.Reader { return []dataplane.Reader{newTundevReader(l)} }

// NewWriter implements dataplane.Link.
func (l *Tundev) NewWriter() dataplane.Writer {
	w := &tundevWriter{link: l}
	w.doWrite = w.writeFD
	return w
}

// Close implements dataplane.Link. A device that was created by OpenTundev
// vanishes, and with it the host's routes into it.
func (l *Tundev) Close() error {
	if l.closed.Swap(true) {
		return nil
	}
	err := l.file.Close()
	if l.asking >= 0 {
		err = errors.Join(err, unix.Close(l.asking))
	}
	return err
}

// tundevBuffer is the room for a packet that is read.
const tundevBuffer = packet.Headroom + maxPacket + 1

type tundevReader struct {
	link  *Tundev
	bufs  [][]byte
	batch []*packet.Packet
	n     int
	err   error
	look  time.Time

	doRead func(fd uintptr) bool // a bound method, so that a Read allocates nothing
}

func newTundevReader(l *Tundev) *tundevReader {
	r := &tundevReader{link: l, look: time.Now()}
	r.doRead = r.readFD
	return r
}

// Read implements dataplane.Reader.
func (r *tundevReader) Read(batch []*packet.Packet) (int, error) {
	l := r.link
	if l.closed.Load() {
		return 0, net.ErrClosed
	}
	if len(batch) == 0 {
		return 0, nil
	}
	now := time.Now()
	if now.Sub(r.look) > watchEvery {
		r.look = now
		if err := l.observe(); err != nil && !l.closed.Load() {
			return 0, fmt.Errorf("link %s: %w", l.name, err)
		}
	}
	r.batch, r.n, r.err = batch, 0, nil
	err := l.file.SetReadDeadline(now.Add(idle))
	if err == nil {
		err = l.raw.Read(r.doRead)
	}
	switch {
	case r.n > 0, errors.Is(err, os.ErrDeadlineExceeded):
		return r.n, nil
	case l.closed.Load(), errors.Is(err, os.ErrClosed):
		return 0, net.ErrClosed
	case r.err != nil:
		return 0, fmt.Errorf("link %s: reading: %w", l.name, r.err)
	case err != nil:
		return 0, fmt.Errorf("link %s: reading: %w", l.name, err)
	}
	return 0, nil
}

// readFD reads what there is. It reports false to be called again when there
// is something.
func (r *tundevReader) readFD(fd uintptr) bool {
	l := r.link
	var bytes uint64
	for r.n < len(r.batch) {
		if r.n == len(r.bufs) {
			r.bufs = append(r.bufs, make([]byte, tundevBuffer))
		}
		buf := r.bufs[r.n]
		n, err := unix.Read(int(fd), buf[packet.Headroom:])
		switch err {
		case nil:
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			l.received(r.n, bytes)
			return r.n > 0
		case unix.EIO:
			// The device is down: nothing comes until it is up again.
			l.received(r.n, bytes)
			return r.n > 0
		default:
			r.err = err
			l.received(r.n, bytes)
			return true
		}
		p := r.batch[r.n]
		p.Reset(buf, packet.Headroom, n)
		p.EtherType = ipEtherType(p)
		if p.Class = packet.ToUs; l.host {
			p.Class = packet.Outgoing
		}
		bytes += uint64(n)
		r.n++
	}
	l.received(r.n, bytes)
	return true
}

func (l *Tundev) received(packets int, bytes uint64) {
	l.rxPackets.Add(uint64(packets))
	l.rxBytes.Add(bytes)
}

type tundevWriter struct {
	link *Tundev
	cut  pieces
	buf  [packet.Headroom + maxPacket]byte // a segment's header and payload together

	piece   []byte
	err     error
	doWrite func(fd uintptr) bool
}

// Write implements dataplane.Writer.
func (w *tundevWriter) Write(batch []*packet.Packet) {
	for _, p := range batch {
		p.Sent = w.write(p)
	}
}

func (w *tundevWriter) write(p *packet.Packet) bool {
	l := w.link
	if !w.cut.reset(p, &l.counters) {
		l.txError.Add(1)
		return false
	}
	sent := true
	for h, b := w.cut.next(); len(h)+len(b) > 0; h, b = w.cut.next() {
		w.piece = b
		if len(h) > 0 {
			n := copy(w.buf[:], h)
			n += copy(w.buf[n:], b)
			w.piece = w.buf[:n]
		}
		w.err = nil
		err := l.raw.Write(w.doWrite)
		if err == nil {
			err = w.err
		}
		if err != nil {
			l.failed(err, len(w.piece))
			sent = false
			continue
		}
		l.txPackets.Add(1)
		l.txBytes.Add(uint64(len(w.piece)))
	}
	return sent
}

// writeFD writes the piece; false means when the device takes it.
func (w *tundevWriter) writeFD(fd uintptr) bool {
	for {
		_, w.err = unix.Write(int(fd), w.piece)
		switch w.err {
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return false
		}
		return true
	}
}

// failed counts a packet that the device refused.
func (l *Tundev) failed(err error, size int) {
	switch {
	case errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.ENOMEM):
		l.txNoBuffer.Add(1)
	case errors.Is(err, unix.EMSGSIZE):
		l.txTooBig.Add(1)
	case errors.Is(err, unix.EIO), errors.Is(err, unix.EBADFD), errors.Is(err, os.ErrClosed):
		l.txDown.Add(1) // the device is down, or gone
	default:
		l.txError.Add(1)
	}
	if times, ok := l.unsent.due(); ok {
		l.log.Warn("packets not sent", "error", err, "bytes", size, "times", times)
	}
}

var _ dataplane.Link = (*Tundev)(nil)
