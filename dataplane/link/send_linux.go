package link

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"pktdirector/packet"
)

// mmsghdr is struct mmsghdr of sendmmsg(2) and recvmmsg(2).
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32
	_   [4]byte
}

// sendmmsg hands frames to the kernel and returns how many it took. An error
// is that of the first one.
func sendmmsg(fd int, msgs []mmsghdr) (int, error) {
	n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&msgs[0])), uintptr(len(msgs)), unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// sendBatch is how many frames go to the kernel in one call.
const sendBatch = 128

// sender is an AFPacket's Writer. Each frame is two pieces: headers in the
// sender's own memory (virtio-net, Ethernet, and of a segment also IP and
// transport) and the packet's bytes where they are.
type sender struct {
	link *AFPacket
	raw  syscall.RawConn
	seg  packet.Segmenter

	n      int // frames waiting
	msgs   [sendBatch]mmsghdr
	iov    [sendBatch][2]unix.Iovec
	header [sendBatch][vnetLen + etherLen + vlanLen + packet.MaxSegmentHeader]byte
	size   [sendBatch]int
	owner  [sendBatch]*packet.Packet

	flushFD func(fd uintptr) // a bound method, so that a Write allocates nothing
}

func newSender(l *AFPacket, raw syscall.RawConn) *sender {
	s := &sender{link: l, raw: raw}
	s.flushFD = s.send
	for i := range s.msgs {
		s.msgs[i].hdr.Iov = &s.iov[i][0]
	}
	return s
}

// Write implements dataplane.Writer.
func (s *sender) Write(batch []*packet.Packet) {
	for _, p := range batch {
		p.Sent = true // until the kernel says otherwise
		switch {
		case p.GSO != packet.GSONone && tunnelled(p):
			s.segment(p)
		case tunnelled(p) && p.CsumPartial:
			if packet.FinishChecksum(p) {
				s.link.summed.Add(1)
				s.add(p)
			} else {
				s.refuse(p, "an unfinished checksum outside the packet")
			}
		default:
			if p.GSO != packet.GSONone {
				packet.DeferChecksum(p)
			}
			s.add(p)
		}
	}
	s.flush()
}

// segment cuts a super-frame that no interface can cut.
func (s *sender) segment(p *packet.Packet) {
	if err := s.seg.Reset(p); err != nil {
		s.refuse(p, err.Error())
		return
	}
	s.link.segmented.Add(1)
	for {
		if s.n == sendBatch {
			s.flush()
		}
		h := &s.header[s.n]
		ether := putEthernet(h[vnetLen:], s.link.info.Load(), p)
		clear(h[:vnetLen])
		head, payload := s.seg.Next(h[vnetLen+ether:])
		if head == nil {
			return
		}
		s.queue(p, vnetLen+ether+len(head), payload)
	}
}

// add queues p behind its link-layer header.
func (s *sender) add(p *packet.Packet) {
	if s.n == sendBatch {
		s.flush()
	}
	h := &s.header[s.n]
	ether := putEthernet(h[vnetLen:], s.link.info.Load(), p)
	putVnet(h[:], p, ether)
	s.queue(p, vnetLen+ether, p.Bytes())
}

// queue queues the next frame, whose header stands in place already.
func (s *sender) queue(p *packet.Packet, header int, payload []byte) {
	i := s.n
	s.n++
	iov := &s.iov[i]
	iov[0].Base = &s.header[i][0]
	iov[0].SetLen(header)
	pieces := 1
	if len(payload) > 0 {
		iov[1].Base = &payload[0]
		iov[1].SetLen(len(payload))
		pieces = 2
	}
	s.msgs[i].hdr.SetIovlen(pieces)
	s.size[i] = header - vnetLen + len(payload)
	s.owner[i] = p
}

// flush hands what waits to the kernel.
func (s *sender) flush() {
	if s.n == 0 {
		return
	}
	if err := s.raw.Control(s.flushFD); err != nil {
		for i := range s.n {
			s.owner[i].Sent = false
		}
		s.link.txDown.Add(uint64(s.n))
	}
	s.n = 0
}

// sendPatience is how long a batch waits for room in the socket's buffer,
// altogether, before its frames count as not sent.
const sendPatience = 100 * time.Millisecond

// send is flush with the descriptor at hand.
func (s *sender) send(fd uintptr) {
	l := s.link
	var packets, bytes uint64
	var waited time.Duration
	for at := 0; at < s.n; {
		n, err := l.sendmmsg(int(fd), s.msgs[at:s.n])
		if err == nil {
			for _, size := range s.size[at : at+n] {
				bytes += uint64(size)
			}
			packets += uint64(n)
			at += n
			continue
		}
		switch err {
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			if waited < sendPatience {
				waited += waitForRoom(int(fd), sendPatience-waited)
				continue
			}
			err = unix.ENOBUFS
		}
		s.failed(s.owner[at], s.size[at], err)
		at++
	}
	l.txPackets.Add(packets)
	l.txBytes.Add(bytes)
}

// waitForRoom waits until the socket takes frames again, at most limit, and
// returns how long it waited, at least a millisecond.
func waitForRoom(fd int, limit time.Duration) time.Duration {
	begin := time.Now()
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	// An error shows in the next attempt to send.
	_, _ = unix.Poll(fds[:], int(max(1, limit/time.Millisecond)))
	return max(time.Millisecond, time.Since(begin))
}

// failed counts a frame that the kernel refused.
func (s *sender) failed(p *packet.Packet, size int, err error) {
	l := s.link
	p.Sent = false
	hint := "see the error"
	switch err {
	case unix.ENOBUFS, unix.ENOMEM:
		l.txNoBuffer.Add(1)
		hint = "the interface sends more slowly than frames come"
	case unix.EMSGSIZE:
		l.txTooBig.Add(1)
		hint = "compare the MTUs of the links, and the offloads of the interfaces (ethtool -k)"
	case unix.ENETDOWN, unix.ENXIO, unix.ENODEV:
		l.txDown.Add(1)
		hint = "the interface is down or gone"
	default:
		l.txError.Add(1)
	}
	if times, ok := l.unsent.due(); ok {
		l.log.Warn("frames not sent", "error", err, "hint", hint, "bytes", size, "mtu", l.Info().MTU, "times", times)
	}
}

// refuse counts a packet that cannot be made into a frame.
func (s *sender) refuse(p *packet.Packet, why string) {
	p.Sent = false
	s.link.txError.Add(1)
	if times, ok := s.link.unsent.due(); ok {
		s.link.log.Warn("packets not sent", "error", why, "times", times)
	}
}
