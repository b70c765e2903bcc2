package link_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pktdirector/dataplane/link"
	"pktdirector/packet"
	"pktdirector/testbed/nstest"
)

// transfer moves n random bytes by TCP from one host to another and compares
// hashes.
func transfer(t *testing.T, from, to *nstest.Namespace, address string, n int64) {
	t.Helper()
	var ln net.Listener
	do(t, to, func() (err error) {
		ln, err = net.Listen("tcp", address)
		return err
	})
	defer ln.Close()
	type result struct {
		sum [32]byte
		err error
	}
	received := make(chan result, 1)
	go func() {
		var r result
		defer func() { received <- r }()
		c, err := ln.Accept()
		if err != nil {
			r.err = err
			return
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(20 * time.Second))
		h := sha256.New()
		_, r.err = io.Copy(h, c)
		h.Sum(r.sum[:0])
	}()
	var conn net.Conn
	do(t, from, func() (err error) {
		conn, err = net.DialTimeout("tcp", ln.Addr().String(), 5*time.Second)
		return err
	})
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	var seed [32]byte
	h := sha256.New()
	if _, err := io.CopyBuffer(struct{ io.Writer }{io.MultiWriter(conn, h)}, io.LimitReader(rand.NewChaCha8(seed), n), make([]byte, 1<<18)); err != nil {
		t.Fatalf("sending: %v", err)
	}
	conn.Close()
	r := <-received
	if r.err != nil {
		t.Fatalf("receiving: %v", r.err)
	}
	if [32]byte(h.Sum(nil)) != r.sum {
		t.Fatal("what arrived differs from what was sent")
	}
}

// snmp reads a counter of a namespace's /proc/net/snmp.
func snmp(t *testing.T, ns *nstest.Namespace, proto, name string) (value int) {
	t.Helper()
	do(t, ns, func() error {
		b, err := os.ReadFile("/proc/thread-self/net/snmp")
		if err != nil {
			return err
		}
		var names []string
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			switch {
			case f[0] != proto+":":
			case names == nil:
				names = f
			default:
				for i := range f {
					if names[i] == name {
						_, err := fmt.Sscan(f[i], &value)
						return err
					}
				}
			}
		}
		return fmt.Errorf("no counter %s %s", proto, name)
	})
	return value
}

const bulk = 64 << 20

// Field cases 1 and 2: what a veth peer leaves to its network card, checksums
// and segments, passes through and arrives right.
func TestBulkTCPWithOffloads(t *testing.T) {
	for name, o := range map[string]link.AFPacketOptions{
		"small slots, large frames read one by one": {},
		"slots for the largest frames":              {SlotSize: 1 << 17, Slots: 256},
		"two queues":                                {Queues: 2},
	} {
		t.Run(name, func(t *testing.T) {
			leakCheck(t)
			w := newWire(t, 1500)
			left, right := open(t, w.middle, "left", o), open(t, w.middle, "right", o)
			var largest atomic.Int64
			forward(t, left, right, serverMAC, func(p *packet.Packet) bool {
				largest.Store(max(largest.Load(), int64(p.Len())))
				return true
			})
			forward(t, right, left, clientMAC, nil)
			w.transferBoth(t, bulk)
			t.Logf("largest packet %d bytes, left %+v", largest.Load(), left.Stats())
			checkTransfer(t, w, left, right)
			if n := largest.Load(); n < 10000 {
				t.Errorf("largest packet %d bytes: no super-frame passed", n)
			}
		})
	}
}

// checkTransfer checks that a wire lost and spoiled nothing to speak of.
func checkTransfer(t *testing.T, w *wire, links ...*link.AFPacket) {
	t.Helper()
	for _, host := range []*nstest.Namespace{w.client, w.server} {
		if n := snmp(t, host, "Tcp", "InCsumErrors"); n != 0 {
			t.Errorf("%d TCP checksum errors", n)
		}
		if n := snmp(t, host, "Tcp", "RetransSegs"); n > 1000 {
			t.Errorf("%d TCP segments sent again", n)
		}
	}
	for _, l := range links {
		if s := l.Stats(); s.RxTruncated+s.TxTooBig+s.TxError+s.TxDown > 0 {
			t.Errorf("link %s: %+v", l.Info().Name, s)
		}
	}
}

// between is a client, two machines with a cable between them, and a server.
type between struct {
	wire
	first, second *nstest.Namespace
}

var firstMAC, secondMAC = packet.MAC{2, 0, 0, 0, 3, 1}, packet.MAC{2, 0, 0, 0, 3, 2}

func newBetween(t *testing.T) *between {
	t.Helper()
	b := &between{wire{client: nstest.New(t), server: nstest.New(t)}, nstest.New(t), nstest.New(t)}
	join(t, end{b.first, "left", leftMAC}, end{b.client, "eth0", clientMAC}, 1500)
	join(t, end{b.first, "between", firstMAC}, end{b.second, "between", secondMAC}, 1520)
	join(t, end{b.second, "right", rightMAC}, end{b.server, "eth0", serverMAC}, 1500)
	address(t, b.client, clientIP, serverIP, leftMAC)
	address(t, b.server, serverIP, clientIP, rightMAC)
	return b
}

// transferBoth moves n bytes each way.
func (w *wire) transferBoth(t *testing.T, n int64) {
	t.Helper()
	begin := time.Now()
	transfer(t, w.client, w.server, serverIP+":5001", n)
	transfer(t, w.server, w.client, clientIP+":5001", n)
	t.Logf("%.1f Gbit/s", 2*8*float64(n)/time.Since(begin).Seconds()/1e9)
}

// Two machines with a tunnel between them: the first cuts super-frames since
// none passes behind an outer header, the second takes the header off.
func TestBulkTCPThroughATunnel(t *testing.T) {
	leakCheck(t)
	b := newBetween(t)
	left := open(t, b.first, "left", link.AFPacketOptions{})
	out := open(t, b.first, "between", link.AFPacketOptions{})
	in := open(t, b.second, "between", link.AFPacketOptions{})
	right := open(t, b.second, "right", link.AFPacketOptions{})
	push := func(p *packet.Packet) bool {
		n := p.Len() + 20
		h, ok := p.Push(20)
		if !ok {
			t.Error("no headroom")
			return false
		}
		copy(h, []byte{0x45, 0, byte(n >> 8), byte(n), 0, 0, 0x40, 0, 64, 4, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2})
		packet.PutIPv4Checksum(h)
		return true
	}
	pop := func(p *packet.Packet) bool {
		if p.Flow.Proto != packet.IPIP {
			return false
		}
		p.Start = p.L4
		return packet.Parse(p) == packet.ParseOK
	}
	forward(t, left, out, secondMAC, push)
	forward(t, in, right, serverMAC, pop)
	forward(t, right, in, firstMAC, push)
	forward(t, out, left, clientMAC, pop)
	b.transferBoth(t, bulk)
	checkTransfer(t, &b.wire, left, out, in, right)
	if s := out.Stats(); s.Segmented == 0 || s.Summed == 0 {
		t.Errorf("%d super-frames cut and %d checksums finished, want some of both", s.Segmented, s.Summed)
	}
}
