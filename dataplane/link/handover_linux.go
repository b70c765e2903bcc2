package link

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"pktdirector/dataplane"
)

func (p *RingPlace) check() error {
	if p.SlotSize < slotOverhead || p.SlotSize > maxSlot || p.PerBlock < 1 || p.Slots < 1 || p.Slots%p.PerBlock != 0 ||
		p.Block < p.PerBlock*p.SlotSize || p.Slots/p.PerBlock > maxRingBytes/p.Block+1 || p.At < 0 || p.At >= p.Slots {
		return fmt.Errorf("no ring is like %+v", *p)
	}
	return nil
}

// duplicate returns a file of its own for what raw is.
func duplicate(raw syscall.RawConn, name string) (*os.File, error) {
	fd, err := -1, error(nil)
	if cerr := raw.Control(func(of uintptr) { fd, err = unix.FcntlInt(of, unix.F_DUPFD_CLOEXEC, 0) }); cerr != nil {
		return nil, cerr
	}
	if err != nil {
		return nil, fmt.Errorf("link %s: duplicating a file descriptor: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Files implements Movable.
func (l *AFPacket) Files() (files []*os.File, err error) {
	for _, q := range l.queues {
		f, err := duplicate(q.raw, l.name)
		if err != nil {
			for _, f := range files {
				f.Close()
			}
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// Place implements Movable.
func (l *AFPacket) Place() Place {
	info := l.Info()
	p := Place{Name: l.name, Stats: l.Stats(), Index: info.Index, MTU: info.MTU, MAC: info.MAC, Up: true}
	for _, q := range l.queues {
		q.mu.Lock()
		if r := q.ring; r != nil {
			p.Rings = append(p.Rings, RingPlace{SlotSize: r.slotSize, Slots: r.slots, PerBlock: r.perBlock, Block: r.block, At: r.at})
		}
		if q.first {
			p.Index, p.Up = l.watch.state.index, l.watch.state.up
		}
		q.mu.Unlock()
	}
	return p
}

// HandOver implements Movable.
func (l *AFPacket) HandOver() Place {
	p := l.Place()
	l.handed.Store(true)
	p.Stats = l.counters.Stats()
	return p
}

// TakeBack implements Movable.
func (l *AFPacket) TakeBack(used bool) {
	l.handed.Store(false)
	if !used {
		return
	}
	for _, q := range l.queues {
		q.mu.Lock()
		if q.ring != nil {
			q.ring.lost = true
		}
		q.mu.Unlock()
	}
}

// GoOn implements Movable.
func (l *AFPacket) GoOn(p Place) error {
	if len(p.Rings) != len(l.queues) {
		return fmt.Errorf("link %s: %d rings for %d queues", l.name, len(p.Rings), len(l.queues))
	}
	for i, q := range l.queues {
		if err := p.Rings[i].check(); err != nil {
			return fmt.Errorf("link %s: %w", l.name, err)
		}
		if p.Rings[i].Slots != q.ring.slots {
			return fmt.Errorf("link %s: a ring of %d slots that had %d", l.name, p.Rings[i].Slots, q.ring.slots)
		}
		q.ring.at = p.Rings[i].At
	}
	l.goOn(p.Stats)
	l.handed.Store(false)
	return nil
}

// TakeAFPacket returns the link that another process has open, which is at p. It closes
// files with the link, or at once where it returns an error.
func TakeAFPacket(p Place, files []*os.File, o AFPacketOptions) (*AFPacket, error) {
	l := &AFPacket{name: p.Name, options: o, log: logger(o.Log).With("link", p.Name), sendmmsg: sendmmsg, wake: -1}
	l.handed.Store(true) // the other process's until GoOn
	err := l.take(p, files)
	if err == nil {
		return l, nil
	}
	for _, q := range l.queues {
		err = errors.Join(err, q.close())
	}
	for _, f := range files[len(l.queues):] {
		f.Close()
	}
	if l.wake >= 0 {
		unix.Close(l.wake)
	}
	return nil, fmt.Errorf("link %s: %w", p.Name, err)
}

func (l *AFPacket) take(p Place, files []*os.File) error {
	if len(files) == 0 || len(files) != len(p.Rings) {
		return fmt.Errorf("%d sockets with %d rings", len(files), len(p.Rings))
	}
	var err error
	if l.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("eventfd: %w", err)
	}
	for i, f := range files {
		if err := p.Rings[i].check(); err != nil {
			return err
		}
		q := &queue{link: l, conn: taken{f}, first: i == 0}
		if q.raw, err = f.SyscallConn(); err != nil {
			return err
		}
		q.bind()
		l.queues = append(l.queues, q)
		r := &ring{slotSize: p.Rings[i].SlotSize, slots: p.Rings[i].Slots, perBlock: p.Rings[i].PerBlock, block: p.Rings[i].Block, at: p.Rings[i].At}
		if cerr := q.raw.Control(func(fd uintptr) { err = r.mapInto(int(fd)) }); cerr != nil || err != nil {
			return errors.Join(cerr, err)
		}
		q.ring, l.slotSize = r, r.slotSize
	}
	// What has changed since is told by the first look.
	l.watch.state = state{index: p.Index, up: p.Up, mtu: p.MTU, mac: p.MAC}
	l.info.Store(&dataplane.LinkInfo{Name: l.name, Index: p.Index, MAC: p.MAC, MTU: p.MTU, VLAN: l.options.VLAN})
	return nil
}

// taken is a packet socket of another process.
type taken struct{ *os.File }

func (t taken) drops() (n uint64) {
	raw, err := t.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) { // closed: nothing is dropped any more
		if s, err := unix.GetsockoptTpacketStats(int(fd), unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
			n = uint64(s.Drops)
		}
	})
	return n
}

// Files implements Movable.
func (l *Tundev) Files() ([]*os.File, error) {
	f, err := duplicate(l.raw, l.name)
	if err != nil {
		return nil, err
	}
	return []*os.File{f}, nil
}

// Place implements Movable.
func (l *Tundev) Place() Place {
	info := l.Info()
	return Place{Name: l.name, Stats: l.Stats(), Index: info.Index, MTU: info.MTU, Up: true}
}

// HandOver implements Movable.
func (l *Tundev) HandOver() Place { return l.Place() }

// TakeBack implements Movable.
func (l *Tundev) TakeBack(bool) {}

// GoOn implements Movable.
func (l *Tundev) GoOn(p Place) error { l.goOn(p.Stats); return nil }

// TakeTundev returns the link to a TUN device that another process has open. It closes
// file with the link, or at once where it returns an error.
func TakeTundev(p Place, file *os.File, o TundevOptions) (*Tundev, error) {
	l := &Tundev{log: logger(o.Log).With("link", p.Name), name: p.Name, host: o.Host, file: file, asking: -1}
	err := l.start()
	if err == nil {
		err = l.observe()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("link %s: %w", p.Name, err), l.Close())
	}
	return l, nil
}

var (
	_ Movable = (*AFPacket)(nil)
	_ Movable = (*Tundev)(nil)
)
