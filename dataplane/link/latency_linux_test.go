package link_test

import (
	"bytes"
	"net"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pktdirector/testbed/nstest"
)

// heldBack is how many times longer than with a plain socket on the same wire a
// packet may take before something is said to have held it back. A busy machine
// delays both; a ring that waits for more packets is slower a hundred times.
const heldBack = 30

// plainSocket tells when frames come by, as a program reads them that takes
// frames one by one: the peer that delays are measured beside.
type plainSocket struct {
	arrived chan time.Time
}

// newPlainSocket reads the frames at an interface that begin with the address
// their sender wrote.
func newPlainSocket(t *testing.T, ns *nstest.Namespace, name string, to []byte) *plainSocket {
	t.Helper()
	s := &plainSocket{arrived: make(chan time.Time, 1024)}
	fd := -1
	do(t, ns, func() error {
		ifi, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		const all = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8 // in network byte order
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: ifi.Index})
	})
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50_000}); err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		frame := make([]byte, 2048)
		for {
			select {
			case <-stop:
				return
			default:
			}
			n, from, err := unix.Recvfrom(fd, frame, 0)
			at, ok := from.(*unix.SockaddrLinklayer)
			if err == nil && ok && at.Pkttype != unix.PACKET_OUTGOING && bytes.HasPrefix(frame[:n], to) {
				s.arrived <- time.Now()
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-stopped
		unix.Close(fd)
	})
	return s
}

// since returns how long after begin the next frame came by.
func (s *plainSocket) since(t *testing.T, begin time.Time) time.Duration {
	t.Helper()
	select {
	case at := <-s.arrived:
		return at.Sub(begin)
	case <-time.After(2 * time.Second):
		t.Fatal("the plain socket has seen no frame for 2 s")
		return 0
	}
}

// notHeldBack compares what is measured of the same frames: the quickest quarter
// of the delays with the plain socket's median. A busy machine makes some wait for
// the processor, and gets a second and a third try where there is one; a ring that
// waits for more packets holds most of them back, in each.
func notHeldBack(t *testing.T, what string, tries int, measure func() (delays, plain []time.Duration)) {
	t.Helper()
	for try := 1; ; try++ {
		delays, plain := measure()
		slices.Sort(delays)
		slices.Sort(plain)
		is, peer := delays[len(delays)/4], plain[len(plain)/2]
		t.Logf("%s: %v, a plain socket %v: %.1f times", what, is, peer, float64(is)/float64(peer))
		if is <= heldBack*peer {
			return
		}
		if try == tries {
			t.Errorf("%s took %v, a plain socket %v: more than %d times as long", what, is, peer, heldBack)
			return
		}
	}
}
