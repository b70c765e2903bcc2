package link

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	mdpacket "github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"pktdirector/dataplane"
	"pktdirector/packet"
)

// AFPacket is a link to an Ethernet interface through AF_PACKET sockets: a
// memory-mapped ring to receive, sendmmsg to send, and the virtio-net header
// on both ways, so that super-frames and unfinished checksums pass.
type AFPacket struct {
	counters
	name    string
	options AFPacketOptions
	log     *slog.Logger
	unsent  quietLog
	info    atomic.Pointer[dataplane.LinkInfo]
	queues  []*queue
	wake    int // an eventfd that ends every poll once the link is closed
	closed  atomic.Bool
	watch   watch // used by the first queue's reader only

	slotSize int // of the queues' rings

	writers atomic.Uint32
	reading sync.Mutex  // guards the kernel's statistics, which reading resets
	handed  atomic.Bool // to another process, which reads them from now on

	// sendmmsg is unix.SYS_SENDMMSG but in tests.
	sendmmsg func(fd int, msgs []mmsghdr) (int, error)
}

// OpenAFPacket opens the interface name. The interface may be down; the link
// waits for it.
func OpenAFPacket(name string, o AFPacketOptions) (*AFPacket, error) {
	if err := o.check(name); err != nil {
		return nil, err
	}
	ifi, err := findInterface(name)
	if err != nil {
		return nil, err
	}
	l := &AFPacket{name: name, options: o, log: logger(o.Log).With("link", name), sendmmsg: sendmmsg}
	if l.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, fmt.Errorf("link %s: eventfd: %w", name, err)
	}
	for range max(1, o.Queues) {
		if err = l.addQueue(ifi); err != nil {
			break
		}
	}
	if err == nil && len(l.queues) > 1 {
		err = l.fanOut()
	}
	if err == nil {
		err = l.start()
	}
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("link %s: %w", name, err)
	}
	return l, nil
}

func findInterface(name string) (*net.Interface, error) {
	ifi, err := net.InterfaceByName(name)
	if err == nil {
		return ifi, nil
	}
	if all, e := net.Interfaces(); e == nil {
		names := make([]string, len(all))
		for i := range all {
			names[i] = all[i].Name
		}
		return nil, fmt.Errorf("link %s: %w; this host has %q", name, err, names)
	}
	return nil, fmt.Errorf("link %s: %w", name, err)
}

// addQueue opens one more socket on the interface and sets its ring up.
func (l *AFPacket) addQueue(ifi *net.Interface) error {
	// A filter that takes nothing keeps stray frames out until the ring stands.
	nothing, err := bpf.Assemble([]bpf.Instruction{bpf.RetConstant{}})
	if err != nil {
		return err
	}
	conn, err := mdpacket.Listen(ifi, mdpacket.Raw, unix.ETH_P_ALL, &mdpacket.Config{Filter: nothing})
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w: the process needs the capability NET_RAW: run as root, or \"setcap cap_net_raw,cap_net_admin+ep\" on the program", err)
	}
	if err != nil {
		return err
	}
	q := &queue{link: l, conn: filtered{conn}, first: len(l.queues) == 0}
	l.queues = append(l.queues, q)
	if q.raw, err = conn.SyscallConn(); err != nil {
		return err
	}
	q.bind()
	if cerr := q.raw.Control(func(fd uintptr) {
		if err = l.join(int(fd), ifi.Index); err == nil {
			err = q.setUp(int(fd), ifi.MTU)
		}
	}); cerr != nil {
		return cerr
	}
	if err != nil {
		return err
	}
	filter, err := directorFilter()
	if err != nil {
		return err
	}
	return conn.SetBPF(filter)
}

// directorFilter takes the frames that a director handles. VLAN tags are not
// in the bytes any more when a filter sees a received frame.
func directorFilter() ([]bpf.RawInstruction, error) {
	return bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: 12, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(packet.EtherIPv4), SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(packet.EtherIPv6), SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(packet.EtherARP), SkipFalse: 1},
		bpf.RetConstant{Val: 1 << 18},
		bpf.RetConstant{},
	})
}

// fanOut lets the queues share the traffic: both directions of a flow go to
// one queue (PACKET_FANOUT_HASH), from then on.
func (l *AFPacket) fanOut() error {
	const uniqueID = 0x2000 // PACKET_FANOUT_FLAG_UNIQUEID: the kernel chooses the id
	group := unix.PACKET_FANOUT_HASH<<16 | uniqueID<<16
	for i, q := range l.queues {
		var err error
		if cerr := q.raw.Control(func(fd uintptr) {
			if err = unix.SetsockoptInt(int(fd), unix.SOL_PACKET, unix.PACKET_FANOUT, group); err == nil && i == 0 {
				group, err = unix.GetsockoptInt(int(fd), unix.SOL_PACKET, unix.PACKET_FANOUT)
				group &^= uniqueID << 16
			}
		}); cerr != nil {
			return cerr
		}
		if err != nil {
			return fmt.Errorf("sharing the traffic among %d queues: %w", len(l.queues), err)
		}
	}
	return nil
}

// start takes the interface's first state.
func (l *AFPacket) start() error {
	var err error
	cerr := l.queues[0].raw.Control(func(fd uintptr) { err = l.observe(int(fd), true) })
	return errors.Join(cerr, err)
}

// Info implements dataplane.Link.
func (l *AFPacket) Info() dataplane.LinkInfo { return *l.info.Load() }

// Readers implements dataplane.Link.
func (l *AFPacket) Readers() []dataplane.Reader {
	rs := make([]dataplane.Reader, len(l.queues))
	for i, q := range l.queues {
		rs[i] = q
	}
	return rs
}

// NewWriter implements dataplane.Link.
func (l *AFPacket) NewWriter() dataplane.Writer {
	q := l.queues[int(l.writers.Add(1)-1)%len(l.queues)]
	return newSender(l, q.raw)
}

// Stats implements dataplane.Link.
func (l *AFPacket) Stats() dataplane.LinkStats {
	l.countDrops()
	return l.counters.Stats()
}

// countDrops adds what the kernel dropped since it was last asked.
func (l *AFPacket) countDrops() {
	l.reading.Lock()
	defer l.reading.Unlock()
	if l.handed.Load() {
		return
	}
	for _, q := range l.queues {
		l.rxRingDrops.Add(q.conn.drops())
	}
}

// Close implements dataplane.Link. The memory that a reader's last packets
// stand in is released by that reader's next Read.
func (l *AFPacket) Close() error {
	if l.closed.Swap(true) {
		return nil
	}
	one := [8]byte{1}
	if _, err := unix.Write(l.wake, one[:]); err != nil {
		return fmt.Errorf("link %s: waking the readers: %w", l.name, err)
	}
	l.countDrops()
	var errs []error
	for _, q := range l.queues {
		errs = append(errs, q.close())
	}
	errs = append(errs, unix.Close(l.wake))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("link %s: %w", l.name, err)
	}
	return nil
}

// socket is a packet socket.
type socket interface {
	SyscallConn() (syscall.RawConn, error)
	Close() error
	// drops returns how many frames the kernel dropped since it was last asked.
	drops() uint64
}

// filtered is a socket of our own.
type filtered struct{ *mdpacket.Conn }

func (f filtered) drops() uint64 {
	s, err := f.Stats()
	if err != nil {
		return 0
	}
	return uint64(s.Drops)
}

// queue is one socket with its ring. It is the link's Reader.
type queue struct {
	link  *AFPacket
	conn  socket
	raw   syscall.RawConn
	first bool // its reader watches the interface

	mu   sync.Mutex // held while in Read; guards what follows
	ring *ring
	big  bigFrames

	// Bound methods, so that a Read allocates nothing.
	poll, copies func(fd uintptr)
	pollErr      error
}

// bind makes the bound methods.
func (q *queue) bind() {
	q.poll = q.pollFD
	q.copies = q.readCopies
}

// setUp sets the socket's options and ring up, in the order that the kernel
// demands.
func (q *queue) setUp(fd, mtu int) error {
	o := &q.link.options
	set := func(option, value int, doing string) error {
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, option, value); err != nil {
			return fmt.Errorf("%s: %w", doing, err)
		}
		return nil
	}
	if err := errors.Join(
		set(unix.PACKET_VERSION, unix.TPACKET_V2, "choosing TPACKET_V2"),
		set(unix.PACKET_VNET_HDR, 1, "asking for the virtio-net header"),
		set(unix.PACKET_RESERVE, ringReserve, "reserving headroom in the ring"),
	); err != nil {
		return err
	}
	// Where the kernel is too old for this (before 4.20), the director counts
	// and drops what the host sent.
	if err := set(unix.PACKET_IGNORE_OUTGOING, 1, "ignoring the host's own frames"); err != nil {
		q.link.log.Info("the kernel delivers the host's own frames too; they are counted and dropped", "reason", err)
	}
	roomy := enlarge(fd)
	slots, size := ringShape(o, mtu, roomy)
	q.link.slotSize = size
	if !o.NoCopy {
		if err := set(unix.PACKET_COPY_THRESH, 1, "asking for frames larger than a slot"); err != nil {
			return err
		}
	}
	var err error
	q.ring, err = newRing(fd, slots, size)
	return err
}

// enlarge makes the socket's buffers as large as it may, and reports whether
// a hundred super-frames that do not fit the ring can wait in it.
func enlarge(fd int) bool {
	const receive, send, hundred = 64 << 20, 8 << 20, 8 << 20
	for _, o := range [][3]int{
		{unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, send},
		{unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, receive},
	} {
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, o[0], o[2]) != nil {
			// Without privilege the kernel cuts the wish to its limit.
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, o[1], o[2])
		}
	}
	got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	return err == nil && got >= hundred
}

// ringShape chooses number and size of the slots.
func ringShape(o *AFPacketOptions, mtu int, roomy bool) (slots, size int) {
	slots, size = o.Slots, o.SlotSize
	if size == 0 {
		size = usualSlot
		need := 0
		switch {
		case o.NoCopy:
			need = mtu
		case !roomy:
			need = maxPacket
		}
		if need += slotOverhead; need > size {
			const step = 4096
			size = (need + step - 1) / step * step
		}
	}
	if slots == 0 {
		slots = usualSlots
		if size > 4*usualSlot {
			slots = largeSlots
		}
	}
	return slots, size
}

// close waits for a Read that goes on, and releases what it may.
func (q *queue) close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	var err error
	if q.ring != nil && q.ring.lent == 0 {
		err = q.ring.unmap()
		q.ring = nil
	}
	return errors.Join(err, q.conn.Close())
}

var _ dataplane.Link = (*AFPacket)(nil)
