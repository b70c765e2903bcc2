package link_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"pktdirector/dataplane"
	"pktdirector/dataplane/link"
	"pktdirector/packet"
	"pktdirector/testbed/nstest"
)

// wire is a client and a server with a machine between them, which has an
// interface "left" to the client's "eth0" and "right" to the server's "eth0".
// Client and server believe to be on one segment; whoever stands between them
// must write the MAC of the other one into what it passes on.
type wire struct{ client, middle, server *nstest.Namespace }

const clientIP, serverIP = "10.1.0.2", "10.1.0.3"

func newWire(t testing.TB, mtu int) *wire {
	t.Helper()
	w := &wire{nstest.New(t), nstest.New(t), nstest.New(t)}
	join(t, end{w.middle, "left", leftMAC}, end{w.client, "eth0", clientMAC}, mtu)
	join(t, end{w.middle, "right", rightMAC}, end{w.server, "eth0", serverMAC}, mtu)
	address(t, w.client, clientIP, serverIP, leftMAC)
	address(t, w.server, serverIP, clientIP, rightMAC)
	return w
}

// end is one end of a veth pair.
type end struct {
	host *nstest.Namespace
	name string
	mac  packet.MAC
}

// join makes a veth pair, up, and waits until both ends send.
func join(t testing.TB, a, b end, mtu int) {
	t.Helper()
	do(t, a.host, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.HardwareAddr, attrs.MTU = a.name, a.mac[:], mtu
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: b.name, PeerHardwareAddr: b.mac[:],
			PeerNamespace: netlink.NsFd(b.host.FD()), PeerMTU: uint32(mtu)}); err != nil {
			return fmt.Errorf("veth %s to %s: %w", a.name, b.name, err)
		}
		return up(a.name)
	})
	do(t, b.host, func() error { return up(b.name) })
	hasCarrier(t, a.host, a.name)
	hasCarrier(t, b.host, b.name)
}

func up(name string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(l)
}

// address gives eth0 an address and a fixed neighbour.
func address(t testing.TB, host *nstest.Namespace, own, other string, otherMAC packet.MAC) {
	t.Helper()
	do(t, host, func() error {
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		a, err := netlink.ParseAddr(own + "/24")
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(l, a); err != nil {
			return err
		}
		return netlink.NeighSet(&netlink.Neigh{LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT, IP: net.ParseIP(other), HardwareAddr: otherMAC[:]})
	})
}

// do runs f in a namespace and ends the test on an error.
func do(t testing.TB, ns *nstest.Namespace, f func() error) {
	t.Helper()
	if err := ns.Do(f); err != nil {
		t.Fatal(err)
	}
}

// edit changes an interface of a namespace.
func edit(t testing.TB, ns *nstest.Namespace, name string, f func(netlink.Link) error) {
	t.Helper()
	do(t, ns, func() error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return f(l)
	})
}

// open opens an AF_PACKET link in a namespace until the test ends.
func open(t testing.TB, ns *nstest.Namespace, name string, o link.AFPacketOptions) *link.AFPacket {
	t.Helper()
	var l *link.AFPacket
	do(t, ns, func() (err error) {
		l, err = link.OpenAFPacket(name, o)
		return err
	})
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		for _, r := range l.Readers() {
			if _, err := r.Read(nil); err != net.ErrClosed {
				t.Errorf("Read after Close: %v, want net.ErrClosed", err)
			}
		}
	})
	return l
}

// forward passes packets from one link to another, to the MAC to, through
// change, until the test ends.
func forward(t testing.TB, from, into dataplane.Link, to packet.MAC, change func(*packet.Packet) bool) {
	t.Helper()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for _, r := range from.Readers() {
		w := into.NewWriter()
		wg.Go(func() {
			in := newBatch(64)
			out := make([]*packet.Packet, 0, 64)
			for {
				select {
				case <-stop:
					r.Read(nil)
					return
				default:
				}
				n, err := r.Read(in)
				if err != nil {
					t.Errorf("Read: %v", err)
					return
				}
				out = out[:0]
				for _, p := range in[:n] {
					if p.Class != packet.ToUs || p.Truncated || p.EtherType == packet.EtherARP || packet.Parse(p) != packet.ParseOK {
						continue
					}
					p.DstMAC = to
					if change == nil || change(p) {
						out = append(out, p)
					}
				}
				w.Write(out)
			}
		})
	}
	t.Cleanup(func() { close(stop); wg.Wait() })
}

// read reads until want packets that match came, or two seconds went by, and
// calls got with each.
func read(t testing.TB, r dataplane.Reader, want int, match func(*packet.Packet) bool, got func(*packet.Packet)) int {
	t.Helper()
	batch := newBatch(16)
	n := 0
	for end := time.Now().Add(patience); n < want && time.Now().Before(end); {
		k, err := r.Read(batch)
		if err != nil {
			t.Fatalf("Read: %v", err)
		}
		for _, p := range batch[:k] {
			if match == nil || match(p) {
				n++
				if got != nil {
					got(p)
				}
			}
		}
	}
	r.Read(nil)
	return n
}

// sendRaw sends frames from a namespace's interface, as they are.
type rawSender struct {
	fd int
	to unix.SockaddrLinklayer
}

func newRawSender(t testing.TB, ns *nstest.Namespace, name string) *rawSender {
	t.Helper()
	s := &rawSender{fd: -1}
	do(t, ns, func() error {
		ifi, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		s.to.Ifindex = ifi.Index
		s.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	})
	t.Cleanup(func() { unix.Close(s.fd) })
	return s
}

func (s *rawSender) send(t testing.TB, frame []byte) {
	t.Helper()
	if err := unix.Sendto(s.fd, frame, 0, &s.to); err != nil {
		t.Fatalf("sending a raw frame of %d bytes: %v", len(frame), err)
	}
}

// logBuffer keeps log lines for a test to look at.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// count returns how many lines hold text.
func (b *logBuffer) count(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for line := range bytes.Lines(b.buf.Bytes()) {
		if bytes.Contains(line, []byte(text)) {
			n++
		}
	}
	return n
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func newLog() (*slog.Logger, *logBuffer) {
	b := new(logBuffer)
	return slog.New(slog.NewTextHandler(b, nil)), b
}

// patience is how long a test waits for what must come, on a busy machine, too.
const patience = 30 * time.Second

// hasCarrier waits until the kernel has noticed that an interface's wire is whole: it
// does so some time after the other end comes up, and drops what is sent until then.
func hasCarrier(t testing.TB, ns *nstest.Namespace, name string) {
	t.Helper()
	eventually(t, name+" has carrier", func() (up bool) {
		edit(t, ns, name, func(l netlink.Link) error {
			up = l.Attrs().OperState == netlink.OperUp
			return nil
		})
		return up
	})
}

// eventually waits until cond holds, two seconds at most.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %v still not: %s", patience, what)
		}
	}
}
