package link_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pktdirector/dataplane/link"
	"pktdirector/packet"
)

// Field case 55: the kernel has no room, or the frame is too large.
func TestSendErrors(t *testing.T) {
	w := newWire(t, 1500)
	log, lines := newLog()
	l := open(t, w.middle, "left", link.AFPacketOptions{Log: log})
	batch := newBatch(10)
	write := func() (sent int) {
		for _, p := range batch {
			p.Reset(make([]byte, 300), packet.Headroom, 60)
			p.EtherType = packet.EtherIPv4
		}
		l.NewWriter().Write(batch)
		for _, p := range batch {
			if p.Sent {
				sent++
			}
		}
		return sent
	}
	failing := func(err error) func(int) (int, error) { return func(int) (int, error) { return 0, err } }

	l.SetSend(failing(unix.ENOBUFS))
	for range 100 {
		if write() != 0 {
			t.Fatal("a packet counts as sent in spite of ENOBUFS")
		}
	}
	if s := l.Stats(); s.TxNoBuffer != 1000 || s.TxPackets != 0 {
		t.Errorf("1000 times ENOBUFS: %+v", s)
	}
	if n := lines.count("not sent"); n != 1 {
		t.Errorf("%d log lines within a second, want 1:\n%s", n, lines)
	}
	l.SetSend(func(n int) (int, error) { return n, nil })
	if n := write(); n != 10 {
		t.Errorf("%d of 10 packets sent after the errors", n)
	}

	// The fourth of ten is too large; all others go out.
	var calls int
	l.SetSend(func(n int) (int, error) {
		switch calls++; calls {
		case 1:
			return 3, nil
		case 2:
			return 0, unix.EMSGSIZE
		}
		return n, nil
	})
	if n := write(); n != 9 || batch[3].Sent {
		t.Errorf("%d of 10 packets sent, the fourth %t; want 9 and false", n, batch[3].Sent)
	}
	if s := l.Stats(); s.TxTooBig != 1 || s.TxNoBuffer != 1000 {
		t.Errorf("one EMSGSIZE: %+v", s)
	}

	for _, err := range []error{unix.EAGAIN, unix.EINTR} {
		calls = 0
		l.SetSend(func(n int) (int, error) {
			if calls++; calls < 4 {
				return 0, err
			}
			return n, nil
		})
		if n := write(); n != 10 {
			t.Errorf("%v three times: %d of 10 packets sent, want all", err, n)
		}
	}
	before := l.Stats()
	l.SetSend(failing(unix.ENETDOWN))
	write()
	l.SetSend(failing(unix.EPERM))
	write()
	if s := l.Stats(); s.TxDown-before.TxDown != 10 || s.TxError-before.TxError != 10 {
		t.Errorf("ten times ENETDOWN and EPERM: %+v", s)
	}
	// A device that never takes anything again does not stop the director.
	l.SetSend(failing(unix.EAGAIN))
	begin := time.Now()
	if write() != 0 || time.Since(begin) > time.Second {
		t.Errorf("a stuck interface held the director for %v", time.Since(begin))
	}
}

// Field case 55 with the real kernel: counted apart, and the line in the log
// says where to look.
func TestSendTooLarge(t *testing.T) {
	w := newWire(t, 1500)
	log, lines := newLog()
	l := open(t, w.middle, "left", link.AFPacketOptions{Log: log})
	p := new(packet.Packet)
	p.Reset(make([]byte, 3000), packet.Headroom, 1600)
	p.EtherType = packet.EtherIPv4
	l.NewWriter().Write([]*packet.Packet{p})
	if s := l.Stats(); p.Sent || s.TxTooBig != 1 || s.TxNoBuffer+s.TxDown+s.TxError+s.TxPackets != 0 {
		t.Errorf("1600 bytes on an MTU of 1500: sent %t, %+v", p.Sent, s)
	}
	for _, want := range []string{
		"message too long", "compare the MTUs of the links, and the offloads of the interfaces (ethtool -k)",
		"bytes=1614", "mtu=1500", "link=left",
	} {
		if lines.count(want) != 1 {
			t.Errorf("%q is not in the log:\n%s", want, lines)
		}
	}
}
