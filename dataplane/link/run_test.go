package link_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pktdirector/dataplane"
	"pktdirector/dataplane/link"
	"pktdirector/lvs"
	"pktdirector/modes/dr"
	"pktdirector/modes/fullnat"
	"pktdirector/modes/nat"
	"pktdirector/modes/tun"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// The whole director of these tests: clients in front, real servers behind.
const (
	testClient = "198.51.100.10"
	testVIP    = "203.0.113.80"
	testRIP    = "192.0.2.11"
)

var (
	frontInfo     = dataplane.LinkInfo{Name: "front", MAC: packet.MAC{2, 0, 0, 0, 0, 0xfe}, MTU: 1500}
	backInfo      = dataplane.LinkInfo{Name: "back", MAC: packet.MAC{2, 0, 0, 0, 1, 0xfe}, MTU: 1500}
	testServerMAC = packet.MAC{2, 0, 0, 0, 1, 1}
)

// newDirector returns a director of one service with one real server, its
// neighbours known.
func newDirector(t testing.TB, m lvs.Method, front, back int) *dataplane.Director {
	t.Helper()
	d := dataplane.New(dataplane.Options{
		Seed:       1,
		Forwarders: dataplane.Forwarders{lvs.Masq: nat.Masq{}, lvs.FullNAT: fullnat.Both{}, lvs.Route: dr.Gateway{}, lvs.Tunnel: tun.New(1)},
	})
	addr := packet.MustParseAddr
	d.SetHost(dataplane.HostTable{
		Routes: []dataplane.Route{
			{Dst: netip.MustParsePrefix("198.51.100.0/24"), Link: front},
			{Dst: netip.MustParsePrefix("192.0.2.0/24"), Link: back},
		},
		Addrs: []dataplane.LinkAddr{
			{Link: front, Prefix: netip.MustParsePrefix("198.51.100.254/24")},
			{Link: back, Prefix: netip.MustParsePrefix("192.0.2.254/24")},
		},
	})
	port := uint16(80)
	if m == lvs.Masq {
		port = 8080
	}
	if err := d.Apply(lvs.Ruleset{Services: []lvs.VirtualService{{
		ServiceKey: lvs.ServiceKey{Proto: packet.TCP, VIP: addr(testVIP), Port: 80}, Scheduler: "rr",
		Servers: []lvs.RealServer{{ServerKey: lvs.ServerKey{RIP: addr(testRIP), Port: port}, Method: m, Weight: 1}},
	}}}); err != nil {
		t.Fatal(err)
	}
	d.Learn(dataplane.Neighbour{Link: front, Addr: addr(testClient), MAC: clientMAC})
	d.Learn(dataplane.Neighbour{Link: back, Addr: addr(testRIP), MAC: testServerMAC})
	return d
}

// run starts Run and returns a function that stops it and returns its error.
func run(d *dataplane.Director, links ...dataplane.Link) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- link.Run(ctx, d, links, nil) }()
	return func() error {
		cancel()
		return <-done
	}
}

// pipes returns a director's two links and their far ends.
func pipes(o link.PipeOptions) (front, back, client, servers *link.Pipe) {
	front, client = link.NewPipe(frontInfo, dataplane.LinkInfo{Name: "client", MAC: clientMAC, MTU: 65535}, o)
	back, servers = link.NewPipe(backInfo, dataplane.LinkInfo{Name: "servers", MAC: testServerMAC, MTU: 65535}, o)
	return front, back, client, servers
}

// arrived reads what came to a far end, ARP aside, until nothing comes any more.
func arrived(t testing.TB, l dataplane.Link) []*packet.Packet {
	t.Helper()
	var got []*packet.Packet
	r := l.Readers()[0]
	for {
		batch := newBatch(16)
		n, err := r.Read(batch)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return got
		}
		for _, p := range batch[:n] {
			if p.EtherType != packet.EtherARP {
				c := *p
				c.Buf = append([]byte(nil), p.Buf...)
				got = append(got, &c)
			}
		}
	}
}

// toDirector sends packets from a far end to the director's MAC.
func toDirector(l *link.Pipe, mac packet.MAC, packets ...*packet.Packet) {
	for _, p := range packets {
		p.DstMAC = mac
	}
	l.NewWriter().Write(packets)
}

func spec(flags uint8, payload int) packettest.Spec {
	return packettest.Spec{Src: testClient + ":40000", Dst: testVIP + ":80", Flags: flags, Seq: 1000, Payload: make([]byte, payload)}
}

var methods = []lvs.Method{lvs.Masq, lvs.Route, lvs.Tunnel}

// Field case 1 through the whole director: an unfinished checksum is a right
// one on the wire, in every mode; a wrong one stays wrong.
func TestRunChecksums(t *testing.T) {
	for _, m := range methods {
		for _, able := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, links with offloads %t", m.Short(), able), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					front, back, client, servers := pipes(link.PipeOptions{Checksums: able, GSO: able})
					stop := run(newDirector(t, m, 0, 1), front, back)
					partial := spec(packet.SYN, 0)
					partial.Partial = true
					toDirector(client, frontInfo.MAC, packettest.Build(t, partial))
					got := arrived(t, servers)
					if len(got) != 1 {
						t.Fatalf("%d packets at the server, want 1", len(got))
					}
					p := got[0]
					if p.CsumPartial != (able && m != lvs.Tunnel) {
						t.Errorf("checksum unfinished: %t", p.CsumPartial)
					}
					packet.FinishChecksum(p)
					if err := packettest.Verify(p.Bytes()); err != nil {
						t.Error(err)
					}
					if p.DstMAC != testServerMAC || p.SrcMAC != backInfo.MAC {
						t.Errorf("from %s to %s", p.SrcMAC, p.DstMAC)
					}

					wrong := packettest.Build(t, spec(packet.ACK, 100))
					wrong.Buf[wrong.End-1] ^= 1
					toDirector(client, frontInfo.MAC, wrong)
					for _, p := range arrived(t, servers) {
						if packettest.Verify(p.Bytes()) == nil {
							t.Error("a corrupt packet was repaired")
						}
					}
					if err := stop(); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// Field case 2 through the whole director: 4344 bytes that receive offload
// merged are three packets, and nobody is told of a smaller MTU.
func TestRunSuperFrames(t *testing.T) {
	for _, m := range methods {
		t.Run(m.Short(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, back, client, servers := pipes(link.PipeOptions{})
				// The client's end hands super-frames over, the director's cuts.
				front, client := link.NewPipe(frontInfo, client.Info(), link.PipeOptions{GSO: true, Checksums: true})
				d := newDirector(t, m, 0, 1)
				stop := run(d, front, back)
				toDirector(client, frontInfo.MAC, packettest.Build(t, spec(packet.SYN, 0)))
				size := 1448
				if m == lvs.Tunnel {
					size = 1428
				}
				big := spec(packet.ACK|packet.PSH, 3*size)
				big.Partial, big.GSOSize = true, uint16(size)
				arrived(t, servers)
				toDirector(client, frontInfo.MAC, packettest.Build(t, big))
				got := arrived(t, servers)
				if len(got) != 3 {
					t.Fatalf("%d packets at the server, want 3; %+v %v", len(got), back.Stats(), d.Verdicts())
				}
				for i, p := range got {
					if want := 40 + size + 20*b2i(m == lvs.Tunnel); p.Len() != want {
						t.Errorf("packet %d has %d bytes, want %d", i, p.Len(), want)
					}
					if err := packettest.Verify(p.Bytes()); err != nil {
						t.Errorf("packet %d: %v", i, err)
					}
					q := *p
					packet.Parse(&q)
					if m == lvs.Tunnel {
						q.Start = q.L4
						packet.Parse(&q)
					}
					if psh := q.TCPFlags&packet.PSH != 0; psh != (i == 2) {
						t.Errorf("packet %d: PSH %t", i, psh)
					}
				}
				if back := arrived(t, client); len(back) != 0 {
					t.Errorf("%d packets went back to the client, want no ICMP", len(back))
				}
				st := d.Status()[0].Stats
				t.Logf("counted %d packets of %d bytes", st.InPkts, st.InBytes)
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestRunCountsWhatALinkDidNotTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		front, back, client, servers := pipes(link.PipeOptions{})
		d := newDirector(t, lvs.Route, 0, 1)
		stop := run(d, front, back)
		servers.Close()
		toDirector(client, frontInfo.MAC, packettest.Build(t, spec(packet.SYN, 0)))
		time.Sleep(time.Second)
		synctest.Wait()
		dropped, forwarded := uint64(0), uint64(0)
		for _, v := range d.Verdicts() {
			switch {
			case v.Name == "tx_dropped":
				dropped = v.Count
			case v.Name == "forwarded":
				forwarded = v.Count
			}
		}
		if dropped != 1 || forwarded != 0 {
			t.Errorf("%d dropped at the link and %d forwarded, want 1 and 0: %+v", dropped, forwarded, d.Verdicts())
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestRunFollowsTheLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		front, back, client, servers := pipes(link.PipeOptions{})
		stop := run(newDirector(t, lvs.Route, 0, 1), front, back)
		info := backInfo
		info.MAC = packet.MAC{2, 0, 0, 0, 1, 0xcc}
		info.MTU = 1000
		back.SetInfo(info)
		time.Sleep(100 * time.Millisecond)
		toDirector(client, frontInfo.MAC, packettest.Build(t, spec(packet.SYN, 0)), packettest.Build(t, spec(packet.ACK, 1200)))
		if got := arrived(t, servers); len(got) != 1 || got[0].SrcMAC != info.MAC {
			t.Errorf("%d packets at the server, want the small one alone, from the new MAC", len(got))
		}
		if got := arrived(t, client); len(got) != 1 || got[0].Buf[got[0].Start+9] != byte(packet.ICMP) {
			t.Errorf("%d packets back at the client, want one ICMP about the new MTU", len(got))
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestRunEnds(t *testing.T) {
	t.Run("when its context ends", func(t *testing.T) {
		leakCheck(t)
		front, back, _, _ := pipes(link.PipeOptions{})
		if err := run(newDirector(t, lvs.Route, 0, 1), front, back)(); err != nil {
			t.Error(err)
		}
	})
	t.Run("when all links are closed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			front, back, _, _ := pipes(link.PipeOptions{})
			go func() { front.Close(); time.Sleep(time.Second); back.Close() }()
			if err := link.Run(t.Context(), newDirector(t, lvs.Route, 0, 1), []dataplane.Link{front, back}, nil); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("with a link's error", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			front, back, _, _ := pipes(link.PipeOptions{})
			broken := &brokenLink{Pipe: front}
			err := link.Run(t.Context(), newDirector(t, lvs.Route, 0, 1), []dataplane.Link{broken, back}, nil)
			if !errors.Is(err, errBroken) || !strings.Contains(err.Error(), "front") {
				t.Errorf("error %v, want the link's, with its name", err)
			}
		})
	})
}

var errBroken = errors.New("broken")

type brokenLink struct{ *link.Pipe }

func (l *brokenLink) Readers() []dataplane.Reader                    { return []dataplane.Reader{l} }
func (l *brokenLink) Read(batch []*packet.Packet) (n int, err error) { return 0, errBroken }

// BenchmarkRun passes packets of one connection through the whole director.
func BenchmarkRun(b *testing.B) {
	front, back, client, servers := pipes(link.PipeOptions{Depth: 4096})
	stop := run(newDirector(b, lvs.Masq, 0, 1), front, back)
	defer stop()
	toDirector(client, frontInfo.MAC, packettest.Build(b, spec(packet.SYN, 0)))
	w, r := client.NewWriter(), servers.Readers()[0]
	in, out := make([]*packet.Packet, 64), newBatch(64)
	for i := range in {
		in[i] = packettest.Build(b, spec(packet.ACK, 64))
		in[i].DstMAC = frontInfo.MAC
	}
	b.ReportAllocs()
	for b.Loop() {
		w.Write(in)
		for n := 0; n < len(in); {
			k, err := r.Read(out)
			if err != nil {
				b.Fatal(err)
			}
			n += k
		}
	}
	b.ReportMetric(float64(b.N)*64/b.Elapsed().Seconds(), "packets/s")
}
