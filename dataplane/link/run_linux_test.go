package link_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

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
