package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"pktdirector/dataplane"
)

// watch follows the interface under an AF_PACKET link: down and up, gone and
// back with a new index, another MTU or MAC. It asks by ioctl on the link's
// own socket, a few times a second, which needs no second socket, goroutine or
// thread that stays in the link's network namespace.
type watch struct {
	last  time.Time
	hurry atomic.Bool // look at once: the socket reported an error
	state state
	cut   quietLog // of truncated frames
}

const (
	watchEvery = 200 * time.Millisecond
	watchGone  = idle // while there is no interface
)

// due reports whether it is time to look.
func (w *watch) due(now time.Time) bool {
	every := watchEvery
	if w.state.index == 0 {
		every = watchGone
	}
	if !w.hurry.Swap(false) && now.Sub(w.last) < every {
		return false
	}
	w.last = now
	return true
}

// observe compares the interface with what it was, says what changed in one
// line each, and follows. first is the look at the start.
func (l *AFPacket) observe(fd int, first bool) error {
	w := &l.watch
	now, err := interfaceState(fd, l.name)
	if err != nil {
		return err
	}
	was := w.state
	if first {
		if now.hardware != unix.ARPHRD_ETHER && now.hardware != unix.ARPHRD_LOOPBACK {
			return fmt.Errorf("hardware type %d has no Ethernet frames: AF_PACKET links need Ethernet; for a TUN device write type tundev", now.hardware)
		}
		if !now.up {
			l.log.Warn("the link is down; waiting for it to come up")
		}
		was = now
	}
	switch {
	case now.index == 0 && was.index != 0:
		l.log.Warn("the interface is gone; waiting for one of its name", "index", was.index)
	case now.index != was.index:
		if err := l.reattach(fd, now.index); err != nil {
			return err
		}
		l.log.Info("the interface is back", "index", now.index, "up", now.up)
	case now.up != was.up && now.up:
		l.log.Info("the link is up")
	case now.up != was.up:
		l.log.Warn("the link is down")
	}
	if now.index != 0 {
		if was.index != 0 && now.mtu != was.mtu {
			l.log.Info("the MTU changed", "from", was.mtu, "to", now.mtu, "larger frames", l.largerFrames(now.mtu))
		}
		l.info.Store(&dataplane.LinkInfo{Name: l.name, Index: now.index, MAC: now.mac, MTU: now.mtu, VLAN: l.options.VLAN})
	} else {
		now.mtu, now.mac = was.mtu, was.mac
	}
	w.state = now
	return nil
}

// largerFrames tells what becomes of frames that the new MTU allows and the
// ring's slots do not hold.
func (l *AFPacket) largerFrames(mtu int) string {
	if mtu+slotOverhead <= l.slotSize {
		return "fit the ring"
	}
	if l.options.NoCopy {
		return "do not fit the ring: counted as truncated until a restart"
	}
	return "are read one by one"
}

// truncated says that frames were cut; the counter has how many.
func (w *watch) truncated(l *AFPacket) {
	if times, ok := w.cut.due(); ok {
		l.log.Warn("frames larger than a ring slot are not forwarded: raise ring.slot_size above the MTU",
			"slot", l.slotSize, "mtu", l.Info().MTU, "times", times)
	}
}

// reattach binds the link's socket to the interface that took the lost one's
// name.
func (l *AFPacket) reattach(fd, index int) error {
	if len(l.queues) > 1 {
		return errors.New("the interface was made anew, and queues that share traffic cannot move to it: restart, or use one queue")
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: index}); err != nil {
		return fmt.Errorf("binding to the interface made anew, index %d: %w", index, err)
	}
	return l.join(fd, index)
}

// join asks the interface for the frames that a director needs besides its
// own: multicast, since neighbour solicitations for an IPv6 VIP go to a group
// that the host is not in, and everything when the link is promiscuous. The
// kernel takes both back when the socket closes.
func (l *AFPacket) join(fd, index int) error {
	kinds := []uint16{unix.PACKET_MR_ALLMULTI}
	if l.options.Promiscuous {
		kinds = append(kinds, unix.PACKET_MR_PROMISC)
	}
	for _, kind := range kinds {
		m := unix.PacketMreq{Ifindex: int32(index), Type: kind}
		if err := unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &m); err != nil {
			return fmt.Errorf("multicast and promiscuity of interface %d: %w", index, err)
		}
	}
	return nil
}

// htons turns a number into network byte order.
func htons(v uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], v)
	return binary.NativeEndian.Uint16(b[:])
}
