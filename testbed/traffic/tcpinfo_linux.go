package traffic

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// retransmissions returns how many segments this end of the connection sent
// more than once (tcpi_total_retrans), 0 when it cannot be told.
func retransmissions(c net.Conn) uint32 {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return 0
	}
	var n uint32
	raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n = info.Total_retrans
		}
	})
	return n
}
