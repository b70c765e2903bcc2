package replay_test

import (
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"testing"

	"pktdirector/capture"
	"pktdirector/capture/judge"
	"pktdirector/capture/replay"
	"pktdirector/dataplane"
	"pktdirector/packet"
)

// endless is a pcap file of frames of 100 bytes that is made while it is read:
// requests of 2,000 clients of a masqueraded service, each as it comes in and as it
// is sent on, and the same again and again. Every fresh-th round of them begins new
// connections; 0: none but the first does.
type endless struct {
	left  int // frames
	fresh int
	n     int
	buf   []byte
	at    []byte
}

const (
	endlessFrame   = 100
	endlessClients = 2000
)

func newEndless(frames, fresh int) *endless {
	h := make([]byte, 24)
	le := binary.LittleEndian
	le.PutUint32(h, 0xa1b2c3d4)
	le.PutUint16(h[4:], 2)
	le.PutUint16(h[6:], 4)
	le.PutUint32(h[16:], 65535)
	le.PutUint32(h[20:], 1)
	return &endless{left: frames, fresh: fresh, at: h, buf: make([]byte, 16+endlessFrame)}
}

func (e *endless) Read(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		if len(e.at) == 0 {
			if e.left == 0 {
				break
			}
			e.frame()
		}
		n := copy(p[done:], e.at)
		e.at = e.at[n:]
		done += n
	}
	if done == 0 {
		return 0, io.EOF
	}
	return done, nil
}

// frame makes the next frame.
func (e *endless) frame() {
	le, be := binary.LittleEndian, binary.BigEndian
	pair := e.n / 2
	who, round := pair%endlessClients, pair/endlessClients
	connection, step := 0, round
	if e.fresh > 0 {
		connection, step = round/e.fresh, round%e.fresh
	}
	b := e.buf
	clear(b)
	le.PutUint32(b, uint32(e.n/1_000_000))
	le.PutUint32(b[4:], uint32(e.n%1_000_000))
	le.PutUint32(b[8:], endlessFrame)
	le.PutUint32(b[12:], endlessFrame)
	f := b[16:]
	be.PutUint16(f[12:], uint16(packet.EtherIPv4))
	ip := f[14:]
	ip[0], ip[8], ip[9] = 0x45, 64, byte(packet.TCP)
	be.PutUint16(ip[2:], endlessFrame-14)
	be.PutUint16(ip[4:], uint16(pair))
	copy(ip[12:], []byte{198, 51, 100, byte(who)})
	tcp := ip[20:]
	be.PutUint16(tcp, uint16(1024+who+connection*endlessClients%60000))
	be.PutUint32(tcp[4:], uint32(connection*7919+step*46))
	tcp[12], tcp[13] = 5<<4, packet.ACK
	if step == 0 {
		tcp[13] = packet.SYN
	}
	if e.n%2 == 0 {
		copy(f, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2})
		copy(ip[16:], []byte{10, 1, 0, 100})
		be.PutUint16(tcp[2:], 80)
	} else {
		copy(f, []byte{2, 0, 0, 0, 1, byte(who % 3), 2, 0, 0, 0, 0, 1})
		copy(ip[16:], []byte{10, 2, 0, byte(11 + who%3)})
		be.PutUint16(tcp[2:], 8080)
		ip[8]--
	}
	packet.PutIPv4Checksum(ip[:20])
	e.at = b
	e.n++
	e.left--
}

// sentByDirector knows the director of an endless capture.
func sentByDirector(mac packet.MAC) bool { return mac == packet.MAC{2, 0, 0, 0, 0, 1} }

// endlessEngine is a director of the service with what plays to it.
func endlessEngine(t testing.TB) (*dataplane.Director, *replay.Engine) {
	rules := masq("rr", 1, 1, 1)
	d := director(t, rules)
	e, err := replay.New(d, rules, replay.Options{Links: []replay.Link{{Name: "f0"}, {Name: "b0"}}, Sent: sentByDirector})
	if err != nil {
		t.Fatal(err)
	}
	return d, e
}

// TestConstantMemory streams a long capture, which begins new connections all the
// time, through the judge and the engine, as "replay -c" does. What they hold after a
// third of it is what they hold at its end, give or take what a runtime moves.
func TestConstantMemory(t *testing.T) {
	frames := 3_000_000 // 348 MB
	if testing.Short() {
		frames /= 10
	}
	j := judge.New(judge.Options{Connections: 10_000})
	d, e := endlessEngine(t)
	r, err := capture.NewReader(newEndless(frames, 5), capture.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	held := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var rec capture.Record
	third := uint64(0)
	n := 0
	for ; ; n++ {
		if n == frames/3 {
			third = held()
		}
		if err := r.Next(&rec); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		j.Add(&rec)
		e.Add(&rec)
	}
	end := held()
	if grown := uint64(64 << 20); end > third+grown {
		t.Errorf("%d MiB are held after %d packets, %d MiB were after a third of them", end>>20, n, third>>20)
	}
	if n != frames || e.Played != uint64(frames/2) || j.Packets() != uint64(frames) {
		t.Errorf("%d packets, %d played, %d judged", n, e.Played, j.Packets())
	}
	if got := len(j.Report().Connections); got != 10_000 && !testing.Short() {
		t.Errorf("%d connections are kept, 10000 should be", got)
	}
	runtime.KeepAlive(d)
}

// BenchmarkEngine plays frames of 100 bytes from a capture through a director that
// nobody asks for its decisions. A packet is a frame that was read; half of them are
// the captured director's own, which are left out.
func BenchmarkEngine(b *testing.B) {
	for name, requests := range map[string]bool{"both sides": false, "requests alone": true} {
		b.Run(name, func(b *testing.B) {
			const n = 1_000_000
			b.ReportAllocs()
			for b.Loop() {
				_, e := endlessEngine(b)
				r, err := capture.NewReader(newEndless(n, 0), capture.Options{})
				if err != nil {
					b.Fatal(err)
				}
				var rec capture.Record
				for {
					if err := r.Next(&rec); errors.Is(err, io.EOF) {
						break
					} else if err != nil {
						b.Fatal(err)
					}
					e.Add(&rec)
					if requests { // the frame that follows is the captured director's
						if err := r.Next(&rec); err != nil {
							b.Fatal(err)
						}
					}
				}
				if e.Played != n/2 {
					b.Fatalf("%d packets played", e.Played)
				}
			}
			packets := float64(n) * float64(b.N)
			if requests {
				packets /= 2
			}
			b.ReportMetric(packets/b.Elapsed().Seconds()/1e6, "Mpackets/s")
		})
	}
}
