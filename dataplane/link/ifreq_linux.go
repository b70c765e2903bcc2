package link

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"pktdirector/packet"
)

// ifreq is struct ifreq of netdevice(7).
type ifreq struct {
	name [unix.IFNAMSIZ]byte
	data [24]byte
}

// state is what the kernel says of an interface.
type state struct {
	index    int // 0: no such interface
	up       bool
	mtu      int
	mac      packet.MAC
	hardware uint16 // ARPHRD_*
}

// interfaceState asks for an interface by name through the socket fd, whose
// network namespace counts, whatever thread asks. No such interface is no
// error.
func interfaceState(fd int, name string) (state, error) {
	var s state
	var r ifreq
	copy(r.name[:unix.IFNAMSIZ-1], name)
	ask := func(what uint) error {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(what), uintptr(unsafe.Pointer(&r)))
		if errno != 0 {
			return errno
		}
		return nil
	}
	for _, q := range []struct {
		what uint
		read func()
	}{
		{unix.SIOCGIFINDEX, func() { s.index = int(binary.NativeEndian.Uint32(r.data[:])) }},
		{unix.SIOCGIFFLAGS, func() {
			const both = unix.IFF_UP | unix.IFF_RUNNING
			s.up = binary.NativeEndian.Uint16(r.data[:])&both == both
		}},
		{unix.SIOCGIFMTU, func() { s.mtu = int(binary.NativeEndian.Uint32(r.data[:])) }},
		{unix.SIOCGIFHWADDR, func() {
			s.hardware = binary.NativeEndian.Uint16(r.data[:])
			copy(s.mac[:], r.data[2:])
		}},
	} {
		switch err := ask(q.what); err {
		case nil:
			q.read()
		case unix.ENODEV, unix.ENXIO:
			return state{}, nil
		default:
			return state{}, fmt.Errorf("asking for interface %s: %w", name, err)
		}
	}
	return s, nil
}

// setUp brings an interface up, with an MTU when it is not 0.
func setUp(fd int, name string, mtu int) error {
	var r ifreq
	copy(r.name[:unix.IFNAMSIZ-1], name)
	do := func(what uint, doing string) error {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(what), uintptr(unsafe.Pointer(&r)))
		if errno != 0 {
			return fmt.Errorf("%s: %w", doing, errno)
		}
		return nil
	}
	if mtu != 0 {
		binary.NativeEndian.PutUint32(r.data[:], uint32(mtu))
		if err := do(unix.SIOCSIFMTU, fmt.Sprintf("setting MTU %d", mtu)); err != nil {
			return err
		}
	}
	if err := do(unix.SIOCGIFFLAGS, "reading flags"); err != nil {
		return err
	}
	flags := binary.NativeEndian.Uint16(r.data[:])
	binary.NativeEndian.PutUint16(r.data[:], flags|unix.IFF_UP)
	return do(unix.SIOCSIFFLAGS, "bringing it up")
}
