package link_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"pktdirector/dataplane/link"
	"pktdirector/packet"
)

// Field case 47: down and up.
func TestInterfaceGoesDownAndComesBack(t *testing.T) {
	w := newWire(t, 1500)
	log, lines := newLog()
	l := open(t, w.middle, "left", link.AFPacketOptions{Log: log})
	r := l.Readers()[0]
	edit(t, w.middle, "left", netlink.LinkSetDown)
	// Only the reader's own thread counts: other tests wait meanwhile.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	used := cpuTime(t, unix.RUSAGE_THREAD)
	batch, reads := newBatch(8), 0
	for end := time.Now().Add(time.Second); time.Now().Before(end); reads++ {
		if _, err := r.Read(batch); err != nil {
			t.Fatalf("Read while the interface is down: %v", err)
		}
	}
	if used = cpuTime(t, unix.RUSAGE_THREAD) - used; used > 50*time.Millisecond || reads > 100 {
		t.Errorf("waiting for a second took %v of processor time and %d reads", used, reads)
	}
	p := new(packet.Packet)
	p.Reset(make([]byte, 300), packet.Headroom, 60)
	p.EtherType = packet.EtherIPv4
	l.NewWriter().Write([]*packet.Packet{p})
	if s := l.Stats(); p.Sent || s.TxDown != 1 {
		t.Errorf("a packet to an interface that is down: sent %t, %+v", p.Sent, s)
	}
	edit(t, w.middle, "left", netlink.LinkSetUp)
	hasCarrier(t, w.client, "eth0")
	raw := newRawSender(t, w.client, "eth0")
	raw.send(t, udpFrame(1, 60))
	if n := read(t, r, 1, isUDP, nil); n != 1 { // how soon, TestDirectorSurvivesDownAndUp says
		t.Errorf("%d packets after the interface came up, want 1", n)
	}
	eventually(t, "up is logged", func() bool { r.Read(batch); return lines.count("is up") > 0 })
	if lines.count("the link is down") != 1 || lines.count("is up") != 1 {
		t.Errorf("want one line about down and one about up:\n%s", lines)
	}
}

// cpuTime is the processor time that the process or the thread used so far.
func cpuTime(t *testing.T, who int) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(who, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Field case 47: the interface is deleted and made anew.
func TestInterfaceIsMadeAnew(t *testing.T) {
	w := newWire(t, 1500)
	log, lines := newLog()
	l := open(t, w.middle, "left", link.AFPacketOptions{Log: log, Promiscuous: true})
	r, writer, batch := l.Readers()[0], l.NewWriter(), newBatch(8)
	was := l.Info().Index
	edit(t, w.middle, "left", netlink.LinkDel)
	eventually(t, "gone is logged", func() bool {
		if _, err := r.Read(batch); err != nil {
			t.Fatal(err)
		}
		return lines.count("is gone") > 0
	})
	// Another interface in between, so that the index is surely another one.
	newMAC := packet.MAC{2, 0, 0, 0, 1, 9}
	join(t, end{w.middle, "other", packet.MAC{2, 0, 0, 0, 9, 1}}, end{w.client, "other", packet.MAC{2, 0, 0, 0, 9, 2}}, 1500)
	join(t, end{w.middle, "left", newMAC}, end{w.client, "eth0", clientMAC}, 1500)
	eventually(t, "back is logged", func() bool {
		if _, err := r.Read(batch); err != nil {
			t.Fatal(err)
		}
		return lines.count("is back") > 0
	})
	if i := l.Info(); i.Index == was || i.MAC != newMAC {
		t.Errorf("info %+v, want a new index and MAC", i)
	}
	raw := newRawSender(t, w.client, "eth0")
	frame := udpFrame(5, 60)
	copy(frame, newMAC[:])
	raw.send(t, frame)
	back := open(t, w.client, "eth0", link.AFPacketOptions{})
	if n := read(t, r, 1, isUDP, func(p *packet.Packet) {
		p.DstMAC = clientMAC
		writer.Write([]*packet.Packet{p})
		if !p.Sent {
			t.Error("the new interface does not take a packet")
		}
	}); n != 1 {
		t.Fatalf("%d packets from the new interface, want 1", n)
	}
	if n := read(t, back.Readers()[0], 1, isUDP, func(p *packet.Packet) {
		if p.SrcMAC != newMAC {
			t.Errorf("sent from %s, want %s", p.SrcMAC, newMAC)
		}
	}); n != 1 {
		t.Errorf("%d packets sent by the new interface, want 1", n)
	}
	if lines.count("is gone") != 1 || lines.count("is back") != 1 {
		t.Errorf("want one line each:\n%s", lines)
	}
}

func TestOpenWaitsForAnInterfaceThatIsDown(t *testing.T) {
	w := newWire(t, 1500)
	edit(t, w.middle, "left", netlink.LinkSetDown)
	log, lines := newLog()
	l := open(t, w.middle, "left", link.AFPacketOptions{Log: log})
	if lines.count("is down") != 1 {
		t.Errorf("want one line that the link is down:\n%s", lines)
	}
	edit(t, w.middle, "left", netlink.LinkSetUp)
	hasCarrier(t, w.client, "eth0")
	newRawSender(t, w.client, "eth0").send(t, udpFrame(1, 60))
	if n := read(t, l.Readers()[0], 1, isUDP, nil); n != 1 {
		t.Errorf("%d packets after the interface came up, want 1", n)
	}
}
