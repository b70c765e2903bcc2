package link_test

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"pktdirector/dataplane"
	"pktdirector/dataplane/link"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
	"pktdirector/testbed/nstest"
)

// ethernet returns p's frame to the director's MAC.
func ethernet(p *packet.Packet, to packet.MAC) []byte {
	return slices.Concat(to[:], clientMAC[:], []byte{byte(p.EtherType >> 8), byte(p.EtherType)}, p.Bytes())
}

func verdict(d *dataplane.Director, name string) uint64 {
	for _, v := range d.Verdicts() {
		if v.Name == name {
			return v.Count
		}
	}
	return 0
}

// oneArm is a director with one interface, on a segment with a far end.
func oneArm(t *testing.T, m lvs.Method) (d *dataplane.Director, near, far *nstest.Namespace, stop func() error) {
	t.Helper()
	near, far = nstest.New(t), nstest.New(t)
	join(t, end{near, "left", leftMAC}, end{far, "eth0", clientMAC}, 1500)
	d = newDirector(t, m, 0, 0)
	l := open(t, near, "left", link.AFPacketOptions{})
	return d, near, far, run(d, l)
}

// Field case 3: on one interface the director does not see what it sent, nor
// what its host sends.
func TestOneArmForwardsOnce(t *testing.T) {
	for _, m := range methods {
		t.Run(m.Short(), func(t *testing.T) {
			leakCheck(t)
			d, near, far, stop := oneArm(t, m)
			at := open(t, far, "eth0", link.AFPacketOptions{Promiscuous: true})
			syn := packettest.Build(t, spec(packet.SYN, 0))
			newRawSender(t, far, "eth0").send(t, ethernet(syn, leftMAC))
			// The host itself sends to the VIP too.
			local := spec(packet.SYN, 0)
			local.Src = "198.51.100.254:5000"
			newRawSender(t, near, "left").send(t, ethernet(packettest.Build(t, local), clientMAC))

			toServer := 0
			batch := newBatch(16)
			for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); {
				n, err := at.Readers()[0].Read(batch)
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range batch[:n] {
					if p.DstMAC == testServerMAC && p.EtherType == packet.EtherIPv4 {
						toServer++
						if err := packettest.Verify(p.Bytes()); err != nil {
							t.Error(err)
						}
					}
				}
			}
			if toServer != 1 {
				t.Errorf("%d frames to the real server, want 1", toServer)
			}
			if s := d.Status()[0].Stats; s.Conns != 1 || s.InPkts != 1 {
				t.Errorf("%+v, want 1 connection and 1 packet", s)
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Field case 20 through the whole director: a lone SYN does not wait.
func TestDirectorAddsLittleLatency(t *testing.T) {
	_, _, far, stop := oneArm(t, lvs.Route)
	defer stop()
	at := open(t, far, "eth0", link.AFPacketOptions{Promiscuous: true})
	raw := newRawSender(t, far, "eth0")
	var slow time.Duration
	for range 3 {
		var delays []time.Duration
		for i := range 20 {
			time.Sleep(40 * time.Millisecond)
			s := spec(packet.SYN, 0)
			s.Src = fmt.Sprintf("%s:%d", testClient, 20000+i)
			frame := ethernet(packettest.Build(t, s), leftMAC)
			begin := time.Now()
			raw.send(t, frame)
			if n := read(t, at.Readers()[0], 1, func(p *packet.Packet) bool { return p.DstMAC == testServerMAC }, func(*packet.Packet) {
				delays = append(delays, time.Since(begin))
			}); n != 1 {
				t.Fatal("the SYN was not forwarded")
			}
		}
		slices.Sort(delays)
		t.Logf("median %v, largest %v", delays[10], delays[19])
		if slow = delays[19]; slow < 2*time.Millisecond {
			return
		}
	}
	t.Errorf("a lone SYN took %v through the director, want less than 2 ms", slow)
}

// Field case 22 through the whole director: packets that wait for a neighbour
// are not those of the ring's next round.
func TestWaitingPacketsStayWhole(t *testing.T) {
	near, far := nstest.New(t), nstest.New(t)
	join(t, end{near, "left", leftMAC}, end{far, "eth0", clientMAC}, 1500)
	d := newDirector(t, lvs.Route, 0, 0)
	d.Learn(dataplane.Neighbour{Link: 0, Addr: packet.MustParseAddr(testRIP)}) // forget the server
	l := open(t, near, "left", link.AFPacketOptions{Slots: 16, SlotSize: 1024})
	stop := run(d, l)
	defer stop()
	at := open(t, far, "eth0", link.AFPacketOptions{Promiscuous: true})
	raw := newRawSender(t, far, "eth0")
	sent := map[uint16][]byte{}
	for i := range 64 {
		s := spec(packet.SYN, 0)
		s.Src = fmt.Sprintf("%s:%d", testClient, 30000+i)
		s.Payload = bytes.Repeat([]byte{byte(i)}, 400)
		p := packettest.Build(t, s)
		sent[uint16(30000+i)] = s.Payload
		raw.send(t, ethernet(p, leftMAC))
		if i%8 == 7 {
			time.Sleep(5 * time.Millisecond) // slower than the small ring overflows
		}
	}
	// Later traffic of no interest fills the ring's slots anew.
	for i := range 200 {
		raw.send(t, udpFrame(uint32(i), 400))
	}
	time.Sleep(50 * time.Millisecond)
	d.Learn(dataplane.Neighbour{Link: 0, Addr: packet.MustParseAddr(testRIP), MAC: testServerMAC})
	reply := slices.Concat(leftMAC[:], testServerMAC[:], []byte{8, 6, 0, 1, 8, 0, 6, 4, 0, 2}, testServerMAC[:], []byte{192, 0, 2, 11}, leftMAC[:], []byte{192, 0, 2, 254})
	raw.send(t, reply)
	last := uint16(0)
	n := read(t, at.Readers()[0], 3, func(p *packet.Packet) bool {
		return p.DstMAC == testServerMAC && p.EtherType == packet.EtherIPv4
	}, func(p *packet.Packet) {
		if e := packet.Parse(p); e != packet.ParseOK {
			t.Fatal(e)
		}
		port := p.Flow.SrcPort
		if port <= last {
			t.Errorf("port %d after %d: out of order", port, last)
		}
		last = port
		if !bytes.Equal(p.Buf[p.L4+20:p.End], sent[port]) || packettest.Verify(p.Bytes()) != nil {
			t.Errorf("the packet from port %d is not what was sent", port)
		}
	})
	if n < 3 {
		t.Errorf("%d waiting packets were sent on, want at least 3; %d found the queue full", n, verdict(d, "neighbour_queue_full"))
	}
}

// Field case 47 through the whole director: down and up again, and the
// connections are still there.
func TestDirectorSurvivesDownAndUp(t *testing.T) {
	d, near, far, stop := oneArm(t, lvs.Route)
	at := open(t, far, "eth0", link.AFPacketOptions{Promiscuous: true})
	raw := newRawSender(t, far, "eth0")
	toServer := func(p *packet.Packet) bool { return p.DstMAC == testServerMAC }
	raw.send(t, ethernet(packettest.Build(t, spec(packet.SYN, 0)), leftMAC))
	if read(t, at.Readers()[0], 1, toServer, nil) != 1 {
		t.Fatal("the SYN was not forwarded")
	}
	edit(t, near, "left", netlink.LinkSetDown)
	time.Sleep(300 * time.Millisecond)
	edit(t, near, "left", netlink.LinkSetUp)
	eventually(t, "a packet of the connection is forwarded", func() bool {
		raw.send(t, ethernet(packettest.Build(t, spec(packet.ACK, 10)), leftMAC))
		batch := newBatch(8)
		n, _ := at.Readers()[0].Read(batch)
		return slices.ContainsFunc(batch[:n], toServer)
	})
	if c := d.Status()[0].Stats.Conns; c != 1 {
		t.Errorf("%d connections, want the one of before", c)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// 8 queues on one interface share one director without loss of count.
func TestRunWithSeveralQueues(t *testing.T) {
	leakCheck(t)
	near, far := nstest.New(t), nstest.New(t)
	join(t, end{near, "left", leftMAC}, end{far, "eth0", clientMAC}, 1500)
	d := newDirector(t, lvs.Tunnel, 0, 0)
	l := open(t, near, "left", link.AFPacketOptions{Queues: 8, Slots: 1024})
	stop := run(d, l)
	var senders sync.WaitGroup
	for s := range 4 {
		raw := newRawSender(t, far, "eth0")
		senders.Go(func() {
			for i := range 200 {
				p := spec(packet.SYN, 0)
				p.Src = fmt.Sprintf("%s:%d", testClient, 10000+s*1000+i)
				raw.send(t, ethernet(packettest.Build(t, p), leftMAC))
			}
		})
	}
	senders.Wait()
	eventually(t, "800 connections", func() bool { return d.Status()[0].Stats.Conns == 800 })
	if err := stop(); err != nil {
		t.Error(err)
	}
}
