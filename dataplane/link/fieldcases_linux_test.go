package link_test

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"pktdirector/dataplane"
	"pktdirector/dataplane/link"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
	"pktdirector/testbed/nstest"
)

// arm is a director with one interface and, at the other end of its wire,
// someone who sends and looks. Nothing else is sent on the wire.
type arm struct {
	d         *dataplane.Director
	near, far *nstest.Namespace
	link      *link.AFPacket
	at        *link.AFPacket // the far end, promiscuous
	raw       *rawSender     // from the far end
	stop      func() error
}

func newArm(t *testing.T, m lvs.Method, o link.AFPacketOptions) *arm {
	t.Helper()
	a := &arm{near: nstest.New(t), far: nstest.New(t), d: newDirector(t, m, 0, 0)}
	for _, ns := range []*nstest.Namespace{a.near, a.far} {
		do(t, ns, func() error { return silence("default") })
	}
	join(t, end{a.near, "left", leftMAC}, end{a.far, "eth0", clientMAC}, 1500)
	a.link = open(t, a.near, "left", o)
	a.at = open(t, a.far, "eth0", link.AFPacketOptions{Promiscuous: true, Slots: 256})
	a.raw = newRawSender(t, a.far, "eth0")
	a.stop = run(a.d, a.link)
	return a
}

// silence keeps IPv6 from soliciting routers on interfaces to come.
func silence(name string) error {
	const dir = "/proc/sys/net/ipv6/conf/"
	if _, err := os.Stat(dir); err != nil {
		return nil // a kernel without IPv6
	}
	return os.WriteFile(dir+name+"/disable_ipv6", []byte("1"), 0)
}

// synFrom is a SYN from a client port.
func synFrom(t *testing.T, port int) *packet.Packet {
	t.Helper()
	s := spec(packet.SYN, 0)
	s.Src = fmt.Sprintf("%s:%d", testClient, port)
	return packettest.Build(t, s)
}

func toServer(p *packet.Packet) bool {
	return p.DstMAC == testServerMAC && p.EtherType == packet.EtherIPv4
}

// delay sends a SYN and returns how long it took to the real server's end of
// the wire, and to a plain socket beside the director.
func (a *arm) delay(t *testing.T, port int, peer *plainSocket) (d, plain time.Duration) {
	t.Helper()
	frame := ethernet(synFrom(t, port), leftMAC)
	begin := time.Now()
	a.raw.send(t, frame)
	if n := read(t, a.at.Readers()[0], 1, toServer, func(*packet.Packet) { d = time.Since(begin) }); n != 1 {
		t.Fatal("the SYN was not forwarded")
	}
	return d, peer.since(t, begin)
}

// Field case 47 through the whole director: down for five seconds and up again,
// and the connections are still there. It measures the whole process's time, so
// it comes before the test that leaves directors running. What the machine does
// besides may hold a packet up, so the quickest of a few attempts counts.
func TestDirectorSurvivesDownAndUp(t *testing.T) {
	log, lines := newLog()
	a := newArm(t, lvs.Route, link.AFPacketOptions{Log: log})
	a.raw.send(t, ethernet(synFrom(t, 40000), leftMAC))
	if read(t, a.at.Readers()[0], 1, toServer, nil) != 1 {
		t.Fatal("the SYN was not forwarded")
	}
	pause, share := 5*time.Second, 5 // percent
	if testing.Short() {
		pause, share = time.Second, 20 // the race detector is busy too
	}
	const attempts, soon = 5, time.Second
	times := 0
	for quickest := 2 * soon; quickest > soon; {
		if times++; times > attempts {
			t.Fatalf("the first SYN after the interface came up took %v at best, want less than %v", quickest, soon)
		}
		edit(t, a.near, "left", netlink.LinkSetDown)
		eventually(t, "down is logged", func() bool { return lines.count("the link is down") == times })
		used := cpuTime(t, unix.RUSAGE_SELF)
		time.Sleep(pause)
		if used = cpuTime(t, unix.RUSAGE_SELF) - used; used > pause*time.Duration(share)/100 {
			t.Errorf("%v with the interface down took %v of processor time, want less than %d %%", pause, used, share)
		}
		t.Logf("%v with the interface down: %v of processor time", pause, used)
		edit(t, a.near, "left", netlink.LinkSetUp)
		hasCarrier(t, a.far, "eth0")
		begin := time.Now()
		for _, sent := range []struct {
			what string
			p    *packet.Packet
		}{
			{"the first SYN", synFrom(t, 40000+times)},
			{"a packet of the connection of before", packettest.Build(t, spec(packet.ACK, 10))},
		} {
			a.raw.send(t, ethernet(sent.p, leftMAC))
			if n := read(t, a.at.Readers()[0], 1, toServer, nil); n != 1 {
				t.Fatalf("%s after the interface came up: forwarded %d times", sent.what, n)
			}
		}
		quickest = min(quickest, time.Since(begin))
		eventually(t, "up is logged", func() bool { return lines.count("the link is up") == times })
	}
	if s := a.d.Status()[0].Stats; s.Conns != uint64(1+times) || s.InPkts != uint64(1+2*times) {
		t.Errorf("%d connections and %d packets, want the one of before and a new one each of %d times", s.Conns, s.InPkts, times)
	}
	if lines.count("the link is down") != times || lines.count("the link is up") != times {
		t.Errorf("want one line about down and one about up, %d times:\n%s", times, lines)
	}
	if err := a.stop(); err != nil {
		t.Error(err)
	}
}

// Field case 20: the first packet after a minute's silence. Of three directors
// the quickest counts, so that what else the machine does is not blamed on
// the ring. The minute passes while the other tests run.
func TestTheFirstSYNAfterAMinuteIsNotHeldBack(t *testing.T) {
	silence := time.Minute
	if testing.Short() {
		silence = 2 * time.Second
	}
	var arms [3]*arm
	var peers [3]*plainSocket
	var received [3]uint64
	for i := range arms {
		arms[i] = newArm(t, lvs.Route, link.AFPacketOptions{})
		defer arms[i].stop()
		peers[i] = newPlainSocket(t, arms[i].near, "left", leftMAC[:])
		arms[i].delay(t, 1000, peers[i]) // all is at work
		received[i] = arms[i].link.Stats().RxPackets
	}
	silent := time.Now()
	t.Parallel()
	time.Sleep(time.Until(silent.Add(silence)))
	var delays, plain []time.Duration
	for i, a := range arms {
		if n := a.link.Stats().RxPackets; n != received[i] {
			t.Errorf("%d packets came in the silence", n-received[i])
		}
		d, p := a.delay(t, 2000, peers[i])
		delays, plain = append(delays, d), append(plain, p)
		time.Sleep(300 * time.Millisecond)
	}
	notHeldBack(t, fmt.Sprintf("the first SYN after %v", silence), 1, func() (d, p []time.Duration) { return delays, plain })
}

// Field case 20 to the letter: a SYN every half second, 20 times.
func TestASYNEveryHalfSecondIsNotHeldBack(t *testing.T) {
	t.Parallel()
	syns := 20
	if testing.Short() {
		syns = 4
	}
	a := newArm(t, lvs.Route, link.AFPacketOptions{})
	defer a.stop()
	peer := newPlainSocket(t, a.near, "left", leftMAC[:])
	port := 20000
	notHeldBack(t, "a SYN every 500 ms", 3, func() (delays, plain []time.Duration) {
		for range syns {
			time.Sleep(500 * time.Millisecond)
			d, p := a.delay(t, port, peer)
			delays, plain = append(delays, d), append(plain, p)
			port++
		}
		return delays, plain
	})
}

// Field case 21 through the whole director: a trunk carries VLANs 100 and 200,
// and the director's link is VLAN 100.
func TestDirectorOnOneVLANOfATrunk(t *testing.T) {
	for _, m := range methods {
		t.Run(m.Short(), func(t *testing.T) {
			leakCheck(t)
			a := newArm(t, m, link.AFPacketOptions{VLAN: 100})
			a.raw.send(t, tagged(ethernet(synFrom(t, 40200), leftMAC), 200))
			a.raw.send(t, ethernet(synFrom(t, 40000), leftMAC))
			a.raw.send(t, tagged(ethernet(synFrom(t, 40100), leftMAC), 100))
			forwarded := 0
			collect := func(d time.Duration) {
				batch := newBatch(16)
				for end := time.Now().Add(d); time.Now().Before(end); {
					n, err := a.at.Readers()[0].Read(batch)
					if err != nil {
						t.Fatal(err)
					}
					for _, p := range batch[:n] {
						if !toServer(p) {
							continue
						}
						forwarded++
						inner := *p
						if m == lvs.Tunnel {
							inner.Start += packet.IPv4HeaderLen
						}
						if e := packet.Parse(&inner); e != packet.ParseOK || inner.Flow.SrcPort != 40100 {
							t.Errorf("forwarded %v (%v), which is not of VLAN 100", inner.Flow, e)
						}
						if !p.Tagged || p.VLAN != 100 {
							t.Errorf("forwarded with tag %t, VLAN %d, want 100", p.Tagged, p.VLAN)
						}
					}
				}
			}
			eventually(t, "a frame is forwarded", func() bool { collect(20 * time.Millisecond); return forwarded > 0 })
			collect(200 * time.Millisecond)
			if s := a.d.Status()[0].Stats; forwarded != 1 || s.Conns != 1 || s.InPkts != 1 {
				t.Errorf("%d frames forwarded, counted %+v, want 1 of 1 connection", forwarded, s)
			}
			if s := a.link.Stats(); s.RxOtherVLAN != 2 {
				t.Errorf("%+v, want 2 frames of another VLAN or none", s)
			}
			if err := a.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Field case 22 through the whole director: 64 SYNs to a real server that does
// not answer ARP yet come through a ring of 16 slots; 32 may wait, and those
// are the first 32, whole and in order.
func TestWaitingPacketsStayWhole(t *testing.T) {
	a := newArm(t, lvs.Route, link.AFPacketOptions{Slots: 16, SlotSize: 1024})
	defer a.stop()
	server := packet.MustParseAddr(testRIP)
	a.d.Learn(dataplane.Neighbour{Link: 0, Addr: server}) // forget it
	var want []string
	for i := range 64 {
		s := spec(packet.SYN, 0)
		s.Src = fmt.Sprintf("%s:%d", testClient, 30000+i)
		s.Payload = slices.Repeat([]byte{byte(i + 1)}, 400)
		p := packettest.Build(t, s)
		a.raw.send(t, ethernet(p, leftMAC))
		if i < 32 {
			b := p.Bytes()
			b[8]--
			packet.PutIPv4Checksum(b[:20])
			want = append(want, string(b))
		}
		if i%8 == 7 { // the small ring never overflows
			eventually(t, "all SYNs are seen", func() bool { return a.d.Status()[0].Stats.Conns == uint64(i+1) })
		}
	}
	eventually(t, "the queue is full", func() bool { return verdict(a.d, "neighbour_queue_full") == 32 })
	// Later traffic of no interest fills the ring's slots anew.
	seen := a.link.Stats().RxPackets
	for i := range uint64(64) {
		a.raw.send(t, udpFrame(uint32(i), 400))
		if i%8 == 7 {
			eventually(t, "the ring goes round", func() bool { return a.link.Stats().RxPackets >= seen+i+1 })
		}
	}
	reply := slices.Concat(leftMAC[:], testServerMAC[:], []byte{8, 6, 0, 1, 8, 0, 6, 4, 0, 2}, testServerMAC[:], []byte{192, 0, 2, 11}, leftMAC[:], []byte{192, 0, 2, 254})
	eventually(t, "the ARP reply is heeded", func() bool {
		a.raw.send(t, reply)
		time.Sleep(10 * time.Millisecond)
		return verdict(a.d, "forwarded") > 0
	})
	var got []string
	batch := newBatch(64)
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
		n, err := a.at.Readers()[0].Read(batch)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range batch[:n] {
			if toServer(p) {
				got = append(got, string(p.Bytes()))
			}
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%d packets were sent on, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("packet %d is\n%x\nwant\n%x", i, got[i], want[i])
		}
	}
	if n := verdict(a.d, "forwarded"); n != 32 {
		t.Errorf("%d counted as forwarded, want 32", n)
	}
}

// Field case 22: the director itself is started and stopped under traffic.
func TestRunIsStartedAndStoppedUnderTraffic(t *testing.T) {
	leakCheck(t)
	a := newArm(t, lvs.Route, link.AFPacketOptions{Slots: 64, SlotSize: 1024})
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	frames := make([][]byte, 100)
	for i := range frames {
		frames[i] = ethernet(synFrom(t, 10000+i), leftMAC)
	}
	done := make(chan struct{})
	var sender sync.WaitGroup
	sender.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
				a.raw.send(t, frames[i%len(frames)])
				time.Sleep(50 * time.Microsecond)
			}
		}
	})
	for range 20 {
		stop := run(a.d, a.link)
		before := verdict(a.d, "forwarded")
		eventually(t, "the director forwards", func() bool { return verdict(a.d, "forwarded") > before })
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
	close(done)
	sender.Wait()
}
