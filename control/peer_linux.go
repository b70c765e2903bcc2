package control

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// bySocket names a caller of whom nothing else is known.
const bySocket = "control socket"

// peerName names who connected by a unix socket, as the kernel says (SO_PEERCRED): the
// user, and the process where it is one of this process namespace.
func peerName(c *net.UnixConn) string {
	raw, err := c.SyscallConn()
	if err != nil {
		return bySocket
	}
	var peer *unix.Ucred
	if raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }) != nil || err != nil {
		return bySocket
	}
	if peer.Pid == 0 {
		return fmt.Sprintf("uid %d by the %s", peer.Uid, bySocket)
	}
	return fmt.Sprintf("uid %d, pid %d by the %s", peer.Uid, peer.Pid, bySocket)
}
