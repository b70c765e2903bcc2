package endpoint

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"pktdirector/packet"
)

// muteKernel opens sockets that take each packet of a tunnel and keep none, so
// that the kernel does not answer "protocol unreachable" or "port unreachable".
func muteKernel(gue uint16) ([]io.Closer, error) {
	var all []io.Closer
	fail := func(err error) ([]io.Closer, error) {
		for _, s := range all {
			s.Close()
		}
		return nil, err
	}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		for _, proto := range []packet.Proto{packet.IPIP, packet.IPv6P, packet.GRE, packet.UDP} {
			kind := unix.SOCK_RAW
			if proto == packet.UDP {
				kind = unix.SOCK_DGRAM
			}
			fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, int(proto))
			if err != nil {
				return fail(fmt.Errorf("socket for %s: %w", proto, err))
			}
			all = append(all, os.NewFile(uintptr(fd), "socket for "+proto.String()))
			if err := dropAll(fd); err != nil {
				return fail(fmt.Errorf("filter for %s: %w", proto, err))
			}
			if proto == packet.UDP {
				if err := bindPort(fd, family, gue); err != nil {
					return fail(fmt.Errorf("UDP port %d: %w: leave it to the tunnel, or take another for gue", gue, err))
				}
			}
		}
	}
	return all, nil
}

// bindPort binds a UDP socket to a port on every address of its IP version.
func bindPort(fd, family int, port uint16) error {
	if family == unix.AF_INET {
		return unix.Bind(fd, &unix.SockaddrInet4{Port: int(port)})
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
		return err
	}
	return unix.Bind(fd, &unix.SockaddrInet6{Port: int(port)})
}

// dropAll makes a socket keep nothing.
func dropAll(fd int) error {
	filter, err := bpf.Assemble([]bpf.Instruction{bpf.RetConstant{}})
	if err != nil {
		return err
	}
	in := filter[0]
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: 1, Filter: &unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}})
}
