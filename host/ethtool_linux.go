package host

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Commands of SIOCETHTOOL (linux/ethtool.h) and the bit of the generic flags.
const (
	ethtoolGetFlags = 0x25 // ETHTOOL_GFLAGS
	ethtoolGetGRO   = 0x2b // ETHTOOL_GGRO
	ethtoolLRO      = 1 << 15
)

// groOn reports whether interface dev merges received segments in software.
func groOn(dev string) (bool, error) {
	v, err := ethtoolValue(dev, ethtoolGetGRO)
	return v != 0, err
}

// lroOn reports whether interface dev merges received segments in hardware.
func lroOn(dev string) (bool, error) {
	v, err := ethtoolValue(dev, ethtoolGetFlags)
	return v&ethtoolLRO != 0, err
}

// ethtoolValue asks the driver for one number.
func ethtoolValue(dev string, command uint32) (uint32, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	value := struct{ command, data uint32 }{command: command} // struct ethtool_value
	request := struct {                                       // struct ifreq
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&value)}
	copy(request.name[:unix.IFNAMSIZ-1], dev)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	runtime.KeepAlive(&value)
	if errno != 0 {
		return 0, fmt.Errorf("interface %s: ethtool: %w", dev, errno)
	}
	return value.data, nil
}
