package link

import (
	"encoding/binary"
	"net"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"pktdirector/packet"
)

// Read implements dataplane.Reader. A packet is delivered as soon as it is in
// the ring, alone or not. Read with an empty batch only takes the last packets
// back.
func (q *queue) Read(batch []*packet.Packet) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.link
	if q.ring == nil {
		return 0, net.ErrClosed
	}
	q.ring.giveBack()
	if l.closed.Load() {
		err := q.ring.unmap()
		q.ring = nil
		if err != nil {
			return 0, err
		}
		return 0, net.ErrClosed
	}
	if len(batch) == 0 {
		return 0, nil
	}
	if q.first {
		if err := q.look(); err != nil {
			return 0, err
		}
	}
	n, err := q.collect(batch)
	if n > 0 || err != nil {
		return n, err
	}
	if err := q.raw.Control(q.poll); err != nil {
		return 0, net.ErrClosed
	}
	if q.pollErr != nil {
		return 0, q.pollErr
	}
	if l.closed.Load() {
		return 0, nil // the next Read says so, when nothing is lent any more
	}
	return q.collect(batch)
}

// look looks after the interface now and then.
func (q *queue) look() error {
	l := q.link
	if !l.watch.due(time.Now()) {
		return nil
	}
	var err error
	if cerr := q.raw.Control(func(fd uintptr) { err = l.observe(int(fd), false) }); cerr != nil {
		return net.ErrClosed
	}
	return err
}

// pollFD waits until the socket or the link's end says something.
func (q *queue) pollFD(fd uintptr) {
	l := q.link
	fds := [2]unix.PollFd{
		{Fd: int32(fd), Events: unix.POLLIN},
		{Fd: int32(l.wake), Events: unix.POLLIN},
	}
	_, err := unix.Poll(fds[:], int(idle/time.Millisecond))
	q.pollErr = nil
	switch {
	case err == unix.EINTR:
	case err != nil:
		q.pollErr = err
	case fds[0].Revents&unix.POLLERR != 0:
		// The interface went down, or away. Reading the error takes it off
		// the socket, so that the next poll waits again; the watch says
		// what happened.
		if _, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR); err != nil {
			q.pollErr = err
		}
		l.watch.hurry.Store(true)
	}
}

// collect points batch at the frames that the ring holds.
func (q *queue) collect(batch []*packet.Packet) (int, error) {
	l := q.link
	info := l.info.Load()
	n := 0
	var bytes uint64
	q.big.n = 0
	for n < len(batch) {
		slot, st := q.ring.next()
		if slot == nil {
			break
		}
		p := batch[n]
		vnet := describe(p, slot, st)
		readVnet(p, slot[vnet:], vnet+vnetLen)
		if st&unix.TP_STATUS_COPY != 0 {
			// Whether or not the frame is the link's, it waits in the socket.
			q.big.add(p)
		}
		if !ours(info, p.Tagged, p.VLAN) {
			l.rxOtherVLAN.Add(1)
			if st&unix.TP_STATUS_COPY != 0 {
				q.big.skip()
			}
			continue
		}
		bytes += uint64(binary.NativeEndian.Uint32(slot[slotLen:]))
		n++
	}
	if q.big.n > 0 {
		if err := q.raw.Control(q.copies); err != nil {
			return 0, net.ErrClosed
		}
	}
	for _, p := range batch[:n] {
		if p.Truncated {
			l.rxTruncated.Add(1)
			l.watch.truncated(l)
		}
	}
	l.rxPackets.Add(uint64(n))
	l.rxBytes.Add(bytes)
	return n, nil
}

// bigFrames reads the frames that did not fit their slots, which the kernel
// queues whole in the socket in the order of the slots (PACKET_COPY_THRESH).
type bigFrames struct {
	n       int
	packets []*packet.Packet // nil: to be read and forgotten
	bufs    [][]byte
	msgs    []mmsghdr
	iov     []unix.Iovec
}

// bigBuffer is the room for one frame: headroom, in whose end stand the
// virtio-net and Ethernet headers, and the largest packet.
const bigBuffer = packet.Headroom + maxPacket + 1

// add notes that p's bytes are to be read from the socket.
func (b *bigFrames) add(p *packet.Packet) {
	if b.n == len(b.packets) {
		buf := make([]byte, bigBuffer)
		b.packets = append(b.packets, nil)
		b.bufs = append(b.bufs, buf)
		// The arrays may move here, so the pointers are set before each read.
		b.iov = append(b.iov, unix.Iovec{})
		b.msgs = append(b.msgs, mmsghdr{})
	}
	b.packets[b.n] = p
	b.n++
}

// skip says that the packet added last is not wanted.
func (b *bigFrames) skip() { b.packets[b.n-1] = nil }

// readRetries bounds the attempts to read past errors of the socket.
const readRetries = 8

// readCopies reads what was added. A frame that is not there, since the
// socket's buffer was full, stays the truncated one of the ring.
func (q *queue) readCopies(fd uintptr) {
	b := &q.big
	const from = packet.Headroom - etherLen - vnetLen
	for i := range b.n {
		b.iov[i].Base = &b.bufs[i][from]
		b.iov[i].SetLen(bigBuffer - from)
		b.msgs[i] = mmsghdr{}
		b.msgs[i].hdr.Iov = &b.iov[i]
		b.msgs[i].hdr.SetIovlen(1)
	}
	got, retries := 0, 0
	for got < b.n {
		n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(&b.msgs[got])), uintptr(b.n-got), unix.MSG_DONTWAIT, 0, 0)
		// An error that waits on the socket, as when the interface goes
		// down, is taken off it by this read; the frames are still there.
		if errno != 0 && errno != unix.EAGAIN && retries < readRetries {
			retries++
			continue
		}
		if errno != 0 || n == 0 {
			break
		}
		got += int(n)
	}
	for i := range got {
		p, m := b.packets[i], &b.msgs[i]
		if p == nil {
			continue
		}
		p.Buf = b.bufs[i]
		p.Start = packet.Headroom
		p.End = max(p.Start, from+int(m.len))
		p.Truncated = m.hdr.Flags&unix.MSG_TRUNC != 0
		p.CsumPartial, p.GSO = false, packet.GSONone
		readVnet(p, p.Buf[from:], from+vnetLen)
	}
}
