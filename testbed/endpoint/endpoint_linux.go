package endpoint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"pktdirector/dataplane"
	"pktdirector/dataplane/link"
	"pktdirector/packet"
)

// Config says where an endpoint takes packets and where it puts them.
type Config struct {
	NIC    string // tunnelled packets arrive here
	Device string // the kernel takes unwrapped packets from here
	Feed   string // the other end when Device is a veth; empty: Device is a TUN device
	Log    *slog.Logger
}

// Endpoint unwraps IPIP packets. Packets that nobody may fragment come through
// a ring; others through a raw socket, which the kernel puts together first.
// That socket also keeps the kernel from answering that nobody speaks IPIP
// here.
type Endpoint struct {
	log   *slog.Logger
	in    dataplane.Link
	raw   *os.File
	out   dataplane.Link
	mac   packet.MAC // of Device; zero for a TUN device
	local map[packet.Addr]bool
}

// Open opens an endpoint.
func Open(c Config) (*Endpoint, error) {
	e := &Endpoint{log: c.Log}
	if err := e.open(c); err != nil {
		e.Close()
		return nil, fmt.Errorf("IPIP endpoint on %s: %w", c.NIC, err)
	}
	return e, nil
}

func (e *Endpoint) open(c Config) (err error) {
	if e.local, err = addresses(c.NIC); err != nil {
		return err
	}
	if e.in, err = link.OpenAFPacket(c.NIC, link.AFPacketOptions{Log: c.Log}); err != nil {
		return err
	}
	if e.raw, err = rawSocket(); err != nil {
		return fmt.Errorf("raw socket: %w", err)
	}
	if c.Feed == "" {
		e.out, err = link.OpenTundev(c.Device, link.TundevOptions{Log: c.Log})
		return err
	}
	ifi, err := net.InterfaceByName(c.Device)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Device, err)
	}
	e.mac = packet.MAC(ifi.HardwareAddr)
	e.out, err = link.OpenAFPacket(c.Feed, link.AFPacketOptions{Slots: 64, Log: c.Log})
	return err
}

// addresses returns the IPv4 addresses of an interface.
func addresses(nic string) (map[packet.Addr]bool, error) {
	ifi, err := net.InterfaceByName(nic)
	if err != nil {
		return nil, err
	}
	addrs, err := ifi.Addrs()
	if err != nil {
		return nil, err
	}
	local := map[packet.Addr]bool{}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil {
			local[packet.AddrFrom4(n.IP.To4())] = true
		}
	}
	return local, nil
}

// rawSocket opens a socket that gets whole IPIP packets, fragmented on their
// way or not, when they were allowed to be.
func rawSocket() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(packet.IPIP))
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "raw IPIP socket")
	filter, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: fragmentAt, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: dontFragment, SkipTrue: 1},
		bpf.RetConstant{Val: 1 << 16},
		bpf.RetConstant{},
	})
	if err != nil {
		f.Close()
		return nil, err
	}
	prog := make([]unix.SockFilter, len(filter))
	for i, x := range filter {
		prog[i] = unix.SockFilter{Code: x.Op, Jt: x.Jt, Jf: x.Jf, K: x.K}
	}
	err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]})
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Run unwraps packets until ctx ends, and closes the endpoint.
func (e *Endpoint) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	errs := make(chan error, 2)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for _, copyPackets := range []func() error{e.fromRing, e.fromRaw} {
		wg.Go(func() {
			defer stop()
			if err := copyPackets(); !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrClosed) {
				errs <- err
			}
		})
	}
	<-ctx.Done()
	err := e.Close()
	wg.Wait()
	close(errs)
	for one := range errs {
		err = errors.Join(err, one)
	}
	return err
}

// batchSize is how many packets are taken from the ring at once.
const batchSize = 64

// fromRing unwraps what may not be fragmented.
func (e *Endpoint) fromRing() error {
	r, w := e.in.Readers()[0], e.out.NewWriter()
	batch := make([]*packet.Packet, batchSize)
	for i := range batch {
		batch[i] = new(packet.Packet)
	}
	good := make([]*packet.Packet, 0, batchSize)
	for {
		n, err := r.Read(batch)
		if err != nil {
			return err
		}
		good = good[:0]
		for _, p := range batch[:n] {
			if p.Class == packet.ToUs && !p.Truncated && p.EtherType == packet.EtherIPv4 &&
				!mayFragment(p) && e.local[dst(p.Bytes())] && unwrap(p) {
				p.DstMAC = e.mac
				good = append(good, p)
			}
		}
		if len(good) > 0 {
			w.Write(good)
		}
	}
}

// fromRaw unwraps what was whole on arrival or has been put together.
func (e *Endpoint) fromRaw() error {
	w := e.out.NewWriter()
	p := new(packet.Packet)
	buf := make([]byte, packet.Headroom+1<<16)
	for {
		n, err := e.raw.Read(buf[packet.Headroom:])
		if errors.Is(err, os.ErrClosed) {
			return err
		}
		if err != nil {
			// An error that ICMP brought, or a lack of memory: no reason to stop.
			e.log.Warn("raw IPIP socket", "error", err)
			time.Sleep(10 * time.Millisecond)
			continue
		}
		p.Reset(buf, packet.Headroom, n)
		if unwrap(p) {
			p.DstMAC = e.mac
			w.Write([]*packet.Packet{p})
		}
	}
}

// Close ends Run.
func (e *Endpoint) Close() error {
	var errs []error
	if e.in != nil {
		errs = append(errs, e.in.Close())
	}
	if e.raw != nil {
		errs = append(errs, e.raw.Close())
	}
	if e.out != nil {
		errs = append(errs, e.out.Close())
	}
	return errors.Join(errs...)
}
