package link_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"pktdirector/dataplane/link"
	"pktdirector/packet"
	"pktdirector/testbed/nstest"
)

// openTundev opens a TUN device in a new namespace, with an address.
func openTundev(t *testing.T, o link.TundevOptions) (*nstest.Namespace, *link.Tundev) {
	t.Helper()
	ns := nstest.New(t)
	if f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0); err != nil {
		nstest.Require(t, "this test needs a TUN device: "+err.Error())
	} else {
		f.Close()
	}
	var l *link.Tundev
	do(t, ns, func() (err error) {
		l, err = link.OpenTundev("tundev0", o)
		return err
	})
	t.Cleanup(func() { l.Close() })
	edit(t, ns, "tundev0", func(dev netlink.Link) error {
		a, err := netlink.ParseAddr("10.1.0.2/24")
		if err != nil {
			return err
		}
		return netlink.AddrAdd(dev, a)
	})
	return ns, l
}

func TestTundevReadsAndWrites(t *testing.T) {
	leakCheck(t)
	ns, l := openTundev(t, link.TundevOptions{MTU: 1400})
	if i := l.Info(); !i.Layer3 || i.MTU != 1400 || i.Index == 0 || i.Name != "tundev0" {
		t.Errorf("info %+v", i)
	}
	var conn *net.UDPConn
	do(t, ns, func() (err error) {
		conn, err = net.DialUDP("udp", nil, &net.UDPAddr{IP: net.IP{10, 1, 0, 3}, Port: 53})
		return err
	})
	defer conn.Close()
	if _, err := conn.Write([]byte("question")); err != nil {
		t.Fatal(err)
	}
	w := l.NewWriter()
	n := read(t, l.Readers()[0], 1, isUDP, func(p *packet.Packet) {
		if p.Class != packet.ToUs || p.Start < packet.Headroom {
			t.Errorf("class %d, headroom %d", p.Class, p.Start)
		}
		if e := packet.Parse(p); e != packet.ParseOK {
			t.Fatal(e)
		}
		// Send it back, as an answer with an unfinished checksum.
		for i := range 4 {
			a, b := &p.Buf[p.L3+12+i], &p.Buf[p.L3+16+i]
			*a, *b = *b, *a
		}
		for i := range 2 {
			a, b := &p.Buf[p.L4+i], &p.Buf[p.L4+2+i]
			*a, *b = *b, *a
		}
		copy(p.Buf[p.L4+8:p.End], "answer..")
		packet.DeferChecksum(p)
		w.Write([]*packet.Packet{p})
		if !p.Sent {
			t.Errorf("not sent: %+v", l.Stats())
		}
	})
	if n != 1 {
		t.Fatalf("%d packets, want 1", n)
	}
	conn.SetDeadline(time.Now().Add(2 * time.Second))
	var b [100]byte
	if n, err := conn.Read(b[:]); err != nil || string(b[:n]) != "answer.." {
		t.Errorf("the host got %q, %v", b[:n], err)
	}
	if s := l.Stats(); s.Summed != 1 || s.TxPackets != 1 || s.RxPackets == 0 {
		t.Errorf("%+v", s)
	}
}

func TestTundevCutsSuperFrames(t *testing.T) {
	ns, l := openTundev(t, link.TundevOptions{})
	at := struct{ count func() int }{func() (n int) {
		edit(t, ns, "tundev0", func(dev netlink.Link) error { n = int(dev.Attrs().Statistics.RxPackets); return nil })
		return n
	}}
	before := at.count()
	p := tcpPacket(t, 4344, true, 1448)
	l.NewWriter().Write([]*packet.Packet{p})
	if n := at.count() - before; !p.Sent || n != 3 {
		t.Errorf("sent %t, %d packets came to the host, want 3; %+v", p.Sent, n, l.Stats())
	}
}

func TestTundevWaitsAndEnds(t *testing.T) {
	leakCheck(t)
	ns, l := openTundev(t, link.TundevOptions{})
	r, batch := l.Readers()[0], newBatch(4)
	begin := time.Now()
	for range 4 {
		if _, err := r.Read(batch); err != nil {
			t.Fatal(err)
		}
	}
	if d := time.Since(begin); d > time.Second {
		t.Errorf("four reads of nothing took %v, want at most 50 ms each", d)
	}
	edit(t, ns, "tundev0", netlink.LinkSetDown)
	p := tcpPacket(t, 10, false, 0)
	l.NewWriter().Write([]*packet.Packet{p})
	if s := l.Stats(); p.Sent || s.TxDown != 1 {
		t.Errorf("a packet to a device that is down: sent %t, %+v", p.Sent, s)
	}
	if _, err := r.Read(batch); err != nil {
		t.Errorf("Read while the device is down: %v", err)
	}
	edit(t, ns, "tundev0", netlink.LinkSetUp)
	go func() {
		time.Sleep(10 * time.Millisecond)
		l.Close()
	}()
	for {
		if _, err := r.Read(batch); err != nil {
			if err != net.ErrClosed {
				t.Errorf("Read: %v, want net.ErrClosed", err)
			}
			return
		}
	}
}

func TestTundevSaysWhatIsMissing(t *testing.T) {
	ns, _ := openTundev(t, link.TundevOptions{})
	do(t, ns, func() error {
		_, err := link.OpenTundev("tundev0", link.TundevOptions{})
		if err == nil || !strings.Contains(err.Error(), "another process") || !errors.Is(err, unix.EBUSY) {
			t.Errorf("a device in use: %v", err)
		}
		_, err = link.OpenTundev("lo", link.TundevOptions{})
		if err == nil || !strings.Contains(err.Error(), "no TUN device") {
			t.Errorf("an interface of another kind: %v", err)
		}
		return nil
	})
	for err, want := range map[error]string{fs.ErrNotExist: "modprobe tun", fs.ErrPermission: "NET_ADMIN"} {
		if got := link.TundevRemedy(err); !strings.Contains(got, want) {
			t.Errorf("%v: %q, want the word %s", err, got, want)
		}
	}
}
