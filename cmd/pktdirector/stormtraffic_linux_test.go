package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	mdpacket "github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/testbed"
)

// stormConn is a connection of a storm's client.
type stormConn struct {
	long      bool
	service   lvs.ServiceKey
	local     netip.AddrPort
	began     time.Duration
	connected time.Duration // when its server had answered; 0: never
	ended     time.Duration
	server    int    // the index of the one that answered
	met       uint32 // a bit for each server that it was sent to
	err       error
}

// servers is the one that answered, by index, or before that all that it was sent to.
func (c *stormConn) servers() (all []int) {
	met := c.met
	if c.connected != 0 {
		met = 1 << c.server
	}
	for ; met != 0; met &= met - 1 {
		all = append(all, bits.TrailingZeros32(met))
	}
	return all
}

func (c *stormConn) String() string {
	kind := "short"
	if c.long {
		kind = "long"
	}
	phase := "while it was made"
	if c.connected != 0 {
		phase = fmt.Sprintf("made at %v", c.connected.Round(time.Millisecond))
	}
	return fmt.Sprintf("%s connection %s -> %s, begun at %v, %s, ended at %v, servers %v: %v",
		kind, c.local, c.service, c.began.Round(time.Millisecond), phase, c.ended.Round(time.Millisecond), c.servers(), c.err)
}

// stormServers answer each connection with a byte, their index, and then with what
// comes.
type stormServers struct {
	index     map[netip.AddrPort]int // by their addresses
	listeners []net.Listener
	syns      *mdpacket.Conn

	mu  sync.Mutex
	met map[netip.AddrPort]uint32 // by client: who was sent its SYN, a bit each
}

// listen starts the server of an index on a host.
func (s *stormServers) listen(l *testbed.Lab, host string, at netip.AddrPort) error {
	index := len(s.index)
	s.index[at] = index
	return l.Do(host, func() error {
		ln, err := net.Listen("tcp4", at.String())
		if err != nil {
			return err
		}
		s.listeners = append(s.listeners, ln)
		go func() {
			for {
				conn, err := ln.Accept()
				switch {
				case err == nil:
					go serveStorm(conn, byte(index))
				case errors.Is(err, net.ErrClosed):
					return
				default: // no descriptor is left: later there is
					time.Sleep(10 * time.Millisecond)
				}
			}
		}()
		return nil
	})
}

// watch notes where the director sends SYNs: a connection's server is known before the
// server knows of it.
func (s *stormServers) watch(l *testbed.Lab, host, nic string) error {
	const ip, tcp, syn = 14, 20, 0x02 // offsets in the frame and behind it; no options
	filter, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: 12, Size: 2}, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.ETH_P_IP, SkipTrue: 5},
		bpf.LoadAbsolute{Off: ip + 9, Size: 1}, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_TCP, SkipTrue: 3},
		bpf.LoadAbsolute{Off: ip + tcp + 13, Size: 1}, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: syn, SkipTrue: 1},
		bpf.RetConstant{Val: ip + tcp + 20}, bpf.RetConstant{},
	})
	if err != nil {
		return err
	}
	err = l.Do(host, func() error {
		ifi, err := net.InterfaceByName(nic)
		if err == nil {
			s.syns, err = mdpacket.Listen(ifi, mdpacket.Raw, unix.ETH_P_ALL, &mdpacket.Config{Filter: filter})
		}
		return err
	})
	if err != nil {
		return err
	}
	raw, err := s.syns.SyscallConn()
	if err != nil {
		return err
	}
	const buffer = 16 << 20 // of SYNs while this process has no turn
	err2 := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer) })
	go func() {
		b := make([]byte, 128)
		for {
			n, _, err := s.syns.ReadFrom(b)
			if err != nil {
				return // closed
			}
			if n < ip+tcp+4 {
				continue
			}
			h := b[ip:]
			client := netip.AddrPortFrom(netip.AddrFrom4([4]byte(h[12:16])), binary.BigEndian.Uint16(h[tcp:]))
			if i, known := s.index[netip.AddrPortFrom(netip.AddrFrom4([4]byte(h[16:20])), binary.BigEndian.Uint16(h[tcp+2:]))]; known {
				s.mu.Lock()
				s.met[client] |= 1 << i
				s.mu.Unlock()
			}
		}
	}()
	return errors.Join(err, err2)
}

func serveStorm(conn net.Conn, index byte) {
	defer conn.Close()
	if _, err := conn.Write([]byte{index}); err != nil {
		return
	}
	buf := make([]byte, stormChunk)
	for {
		n, err := conn.Read(buf)
		if n > 0 {
			if _, err := conn.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (s *stormServers) close() {
	s.syns.Close()
	for _, l := range s.listeners {
		l.Close()
	}
}

// stormOpen is how many connections are open at once: each takes two descriptors of
// this process, whose limit may be 20,000.
const stormOpen = 5000

// stormChunk is the most bytes that one exchange of a long connection has.
const stormChunk = 1400

// stormClient opens connections from addresses of one host: many short ones, at
// times that do not depend on how those before them do, and long ones.
type stormClient struct {
	lab   *testbed.Lab
	host  string
	addrs []netip.Addr
	began time.Time
	pick  func(*rand.Rand) lvs.ServiceKey // of a connection

	want    chan chan stormSocket // those who wait for a socket of the host
	used    int                   // local endpoints; of the goroutine on the host
	running sync.WaitGroup
	finish  chan struct{} // closed: long connections say good-bye

	mu    sync.Mutex
	open  map[*os.File]netip.AddrPort
	ended []stormConn

	started, exchanges atomic.Int64
	// Of the goroutine on the host: the most that a short one began late, and how many
	// did not begin, since this machine does not end them as fast.
	lag  time.Duration
	held int
}

type stormSocket struct {
	fd    int
	local netip.AddrPort
	err   error
}

func (c *stormClient) unfinished() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}

func (c *stormClient) now() time.Duration { return time.Since(c.began) }

// sockets makes sockets on the host until ctx ends: for long connections, and for
// short ones at a rate a second from when from is closed to when until is.
func (c *stormClient) sockets(ctx context.Context, rate int, from, until <-chan struct{}, rng *rand.Rand) error {
	return c.lab.Do(c.host, func() error {
		var start time.Duration
		n := 0
		next := time.NewTimer(time.Hour)
		defer next.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-from:
				start, from = c.now(), nil
				next.Reset(0)
			case <-until:
				until = nil
				next.Stop()
			case to := <-c.want:
				to <- c.socket()
			case <-next.C:
				for ; ; n++ {
					due := start + time.Duration(n)*time.Second/time.Duration(rate)
					late := c.now() - due
					if late < 0 {
						next.Reset(-late)
						break
					}
					c.lag = max(c.lag, late)
					if c.unfinished() > stormOpen {
						c.held++
						continue
					}
					s := c.socket()
					if s.err != nil {
						return s.err
					}
					conn, seed := stormConn{service: c.pick(rng), local: s.local, began: c.now()}, rng.Uint64()
					c.started.Add(1)
					c.running.Go(func() { c.short(conn, s.fd, seed) })
				}
			}
		}
	})
}

// socket returns one that is bound to an endpoint that none had before: which
// connection is which is beyond doubt.
func (c *stormClient) socket() (s stormSocket) {
	const first, ports = 2000, 60000
	addr := c.addrs[c.used%len(c.addrs)]
	s.local = netip.AddrPortFrom(addr, uint16(first+c.used/len(c.addrs)))
	if c.used++; c.used > ports*len(c.addrs) {
		s.err = errors.New("no local port is left: the storm is too long")
		return s
	}
	if s.fd, s.err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); s.err != nil {
		return s
	}
	s.err = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
	// Who only waits for an answer asks now and then whether the connection is still
	// there; for longer than any server is away.
	for option, value := range map[int]int{unix.TCP_NODELAY: 1, unix.TCP_KEEPIDLE: 3, unix.TCP_KEEPINTVL: 3, unix.TCP_KEEPCNT: 100} {
		s.err = errors.Join(s.err, unix.SetsockoptInt(s.fd, unix.IPPROTO_TCP, option, value))
	}
	s.err = errors.Join(s.err, unix.Bind(s.fd, &unix.SockaddrInet4{Addr: addr.As4(), Port: int(s.local.Port())}))
	return s
}

// connect begins to connect; the first write waits for it.
func (c *stormClient) connect(fd int, local netip.AddrPort, to lvs.ServiceKey) (*os.File, error) {
	err := unix.Connect(fd, &unix.SockaddrInet4{Addr: to.VIP.Netip().As4(), Port: int(to.Port)})
	if err != nil && err != unix.EINPROGRESS {
		unix.Close(fd)
		return nil, os.NewSyscallError("connect", err)
	}
	f := os.NewFile(uintptr(fd), "connection")
	c.mu.Lock()
	c.open[f] = local
	c.mu.Unlock()
	return f, nil
}

// end notes how a connection ended.
func (c *stormClient) end(conn stormConn, f *os.File) {
	if f != nil {
		f.Close()
	}
	conn.ended = c.now()
	c.mu.Lock()
	delete(c.open, f)
	c.ended = append(c.ended, conn)
	c.mu.Unlock()
}

// short is a connection with one exchange.
func (c *stormClient) short(conn stormConn, fd int, seed uint64) {
	f, err := c.connect(fd, conn.local, conn.service)
	defer func() { conn.err = err; c.end(conn, f) }()
	if err != nil {
		return
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	if err = c.exchange(f, &conn, rng, 64); err == nil {
		err = goodbye(f, fd)
	}
}

// exchange sends bytes and compares what comes back.
func (c *stormClient) exchange(f *os.File, conn *stormConn, rng *rand.Rand, n int) error {
	sent, got := make([]byte, n), make([]byte, n)
	for i := range sent {
		sent[i] = byte(rng.Uint32())
	}
	if _, err := f.Write(sent); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	if conn.connected == 0 {
		var name [1]byte
		if _, err := io.ReadFull(f, name[:]); err != nil {
			return fmt.Errorf("reading the server's name: %w", err)
		}
		conn.server, conn.connected = int(name[0]), c.now()
	}
	if _, err := io.ReadFull(f, got); err != nil {
		return fmt.Errorf("reading: %w", err)
	}
	if !bytes.Equal(sent, got) {
		return fmt.Errorf("%d bytes came back as others", n)
	}
	c.exchanges.Add(1)
	return nil
}

// goodbye ends a connection as both ends should see it end.
func goodbye(f *os.File, fd int) error {
	if err := unix.Shutdown(fd, unix.SHUT_WR); err != nil {
		return os.NewSyscallError("shutdown", err)
	}
	var more [1]byte
	switch n, err := f.Read(more[:]); {
	case n > 0:
		return fmt.Errorf("a byte more than was sent came back: %#x", more[0])
	case err != io.EOF:
		return fmt.Errorf("reading the end: %w", err)
	}
	return nil
}

// long keeps a connection open, in place of one that ended another, until the storm
// finishes; made is called when the first has its server.
func (c *stormClient) long(service lvs.ServiceKey, rng *rand.Rand, made func()) {
	for {
		to := make(chan stormSocket)
		c.want <- to
		s := <-to
		conn := stormConn{long: true, service: service, local: s.local, began: c.now(), err: s.err}
		var f *os.File
		if conn.err == nil {
			f, conn.err = c.connect(s.fd, s.local, service)
		}
		finishing := false
		for conn.err == nil {
			if conn.err = c.exchange(f, &conn, rng, 1+rng.IntN(stormChunk)); conn.err != nil {
				break
			}
			if made != nil {
				made()
				made = nil
			}
			if finishing { // it has seen all, and once more
				conn.err = goodbye(f, s.fd)
				c.end(conn, f)
				return
			}
			select {
			case <-c.finish:
				finishing = true
			case <-time.After(time.Duration(50+rng.IntN(300)) * time.Millisecond):
			}
		}
		c.end(conn, f)
		select {
		case <-c.finish:
			return
		case <-time.After(300 * time.Millisecond): // a service that is not there refuses all
		}
	}
}

// hanging lists the connections that are open, with what the client's kernel says of
// them.
func (c *stormClient) hanging() map[netip.AddrPort]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[netip.AddrPort]string{}
	for f, local := range c.open {
		raw, err := f.SyscallConn()
		if err == nil {
			err = raw.Control(func(fd uintptr) {
				if i, e := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); e == nil {
					all[local] = fmt.Sprintf("state %d, unacknowledged %d, retransmits %d, backoff %d, probes %d, rto %d ms, last sent %d ms and received %d ms ago",
						i.State, i.Unacked, i.Retransmits, i.Backoff, i.Probes, i.Rto/1000, i.Last_data_sent, i.Last_ack_recv)
				}
			})
		}
		if err != nil {
			all[local] = err.Error()
		}
	}
	return all
}

// cut ends all that is still open: it waits for what does not come.
func (c *stormClient) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for f := range c.open {
		f.SetDeadline(time.Now())
	}
}

func stormServiceKey(vip netip.Addr, port uint16) lvs.ServiceKey {
	return lvs.ServiceKey{Proto: packet.TCP, VIP: packet.AddrFrom(vip), Port: port}
}
