package endpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"pktdirector/dataplane"
	"pktdirector/dataplane/link"
	"pktdirector/packet"
)

// GUEPort is the UDP port of GUE where no other is said: the one registered for
// it.
const GUEPort = 6080

// Config says where an endpoint takes packets and where it puts them.
type Config struct {
	NIC     string // tunnelled packets arrive here
	Device  string // the kernel takes unwrapped packets from here
	Feed    string // the other end when Device is a veth; empty: Device is a TUN device
	GUEPort uint16 // UDP port of GUE; 0: GUEPort
	Log     *slog.Logger
}

// Endpoint unwraps packets of tunnels. They come through a ring; what came in
// fragments is put together first. The kernel sees them too, and is kept from
// answering that nobody speaks such protocols here.
type Endpoint struct {
	in    dataplane.Link
	out   dataplane.Link
	mute  []io.Closer
	mac   packet.MAC // of Device; zero for a TUN device
	port  uint16
	local map[packet.Addr]bool
}

// Open opens an endpoint.
func Open(c Config) (*Endpoint, error) {
	e := &Endpoint{port: c.GUEPort}
	if e.port == 0 {
		e.port = GUEPort
	}
	if err := e.open(c); err != nil {
		e.Close()
		return nil, fmt.Errorf("tunnel endpoint on %s: %w", c.NIC, err)
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
	if e.mute, err = muteKernel(e.port); err != nil {
		return err
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

// addresses returns the addresses of an interface.
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
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				local[packet.AddrFrom(ip.Unmap())] = true
			}
		}
	}
	return local, nil
}

// Run unwraps packets until ctx ends, and closes the endpoint.
func (e *Endpoint) Run(ctx context.Context) error {
	failed := make(chan error, 1)
	go func() { failed <- e.copyPackets() }()
	var err error
	select {
	case <-ctx.Done():
		err = e.Close()
		if last := <-failed; !errors.Is(last, net.ErrClosed) {
			err = errors.Join(err, last)
		}
	case err = <-failed:
		err = errors.Join(err, e.Close())
	}
	return err
}

// batchSize is how many packets are taken from the ring at once.
const batchSize = 64

// copyPackets unwraps until the ring is closed.
func (e *Endpoint) copyPackets() error {
	r, w := e.in.Readers()[0], e.out.NewWriter()
	batch := make([]*packet.Packet, batchSize)
	for i := range batch {
		batch[i] = new(packet.Packet)
	}
	pieces, began := packet.NewReassembler(0), time.Now()
	good := make([]*packet.Packet, 0, batchSize)
	for {
		n, err := r.Read(batch)
		if err != nil {
			return err
		}
		now := time.Since(began)
		pieces.Expire(now, func(*packet.Datagram) {})
		good = good[:0]
		for _, p := range batch[:n] {
			if p.Class != packet.ToUs || p.Truncated || packet.Parse(p) != packet.ParseOK || !e.local[p.Flow.Dst] {
				continue
			}
			if p.Frag != packet.Whole {
				if p = whole(pieces, p, now); p == nil {
					continue
				}
			}
			if unwrap(p, e.port) {
				p.DstMAC = e.mac
				good = append(good, p)
			}
		}
		if len(good) > 0 {
			w.Write(good)
		}
	}
}

// whole takes a fragment and returns the packet that it completes, nil when it
// completes none.
func whole(pieces *packet.Reassembler, p *packet.Packet, now time.Duration) *packet.Packet {
	d := pieces.Add(p, now).Datagram
	if d == nil {
		return nil
	}
	q := new(packet.Packet)
	d.Packet(q)
	if packet.Parse(q) != packet.ParseOK {
		return nil
	}
	return q
}

// Close ends Run.
func (e *Endpoint) Close() error {
	var errs []error
	if e.in != nil {
		errs = append(errs, e.in.Close())
	}
	for _, s := range e.mute {
		errs = append(errs, s.Close())
	}
	if e.out != nil {
		errs = append(errs, e.out.Close())
	}
	return errors.Join(errs...)
}
