//go:build !linux

package control

import "net"

// bySocket names a caller of whom nothing else is known.
const bySocket = "control socket"

// peerName names who connected by a unix socket.
func peerName(*net.UnixConn) string { return bySocket }
