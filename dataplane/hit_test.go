package dataplane_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pktdirector/conntrack"
	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// benchBatch is how many packets a link reads at once.
const benchBatch = 64

// flows is a director with many connections of one service, and packets of them.
type flows struct {
	*world
	n       int
	headers [benchBatch][]byte // of the packets in batch, as they came
	batch   []*packet.Packet
	random  *rand.Rand
}

// newFlows opens n connections from the client net's side.
func newFlows(b *testing.B, m lvs.Method, n int) *flows {
	w := newShardedWorld(b, conntrack.DefaultShards, service("rr", m, 3))
	f := &flows{world: w, n: n, random: rand.New(rand.NewPCG(1, 2))}
	syn := packettest.Build(b, packettest.Spec{Src: "10.0.0.0:1024", Dst: vip + ":80", Flags: packet.SYN})
	ack := packettest.Build(b, packettest.Spec{Src: client + ":1024", Dst: vip + ":80", Flags: packet.ACK, Payload: make([]byte, 24)})
	for i := range benchBatch {
		p := &packet.Packet{Buf: make([]byte, 2048)}
		f.batch = append(f.batch, p)
		f.headers[i] = append([]byte(nil), syn.Bytes()...)
	}
	for i := 0; i < n; i += benchBatch {
		for k := range f.batch {
			f.from(k, min(i+k, n-1))
		}
		f.process()
	}
	for i := range benchBatch {
		f.headers[i] = append([]byte(nil), ack.Bytes()...)
	}
	if got := w.d.Table().Connections; got != n {
		b.Fatalf("%d connections, want %d", got, n)
	}
	return f
}

// from makes the k-th packet of the batch one of connection i.
func (f *flows) from(k, i int) {
	h := f.headers[k]
	binary.BigEndian.PutUint32(h[12:], 0x0a000000|uint32(i>>8)) // 10/8, 256 ports of each
	binary.BigEndian.PutUint16(h[20:], uint16(1024+i&255))
	binary.BigEndian.PutUint16(h[10:], 0)
	packet.PutIPv4Checksum(h[:20])
}

func (f *flows) process() {
	for k, p := range f.batch {
		p.Reset(p.Buf, packet.Headroom, len(f.headers[k]))
		copy(p.Bytes(), f.headers[k])
		p.EtherType, p.Link = packet.EtherIPv4, clientLink
	}
	f.w.Process(f.batch, f.now)
}

// BenchmarkEngineHit is the whole engine's time for a packet of a connection that
// is there, in batches of 64 of random connections: parsing, lookup, state, counters, next hop,
// rewriting. PKTDIRECTOR_BENCH_CONNS=10000000 adds a number of connections.
func BenchmarkEngineHit(b *testing.B) {
	sizes := []int{1 << 10, 1 << 16, 1_000_000}
	if more := 0; os.Getenv("PKTDIRECTOR_BENCH_CONNS") != "" {
		fmt.Sscan(os.Getenv("PKTDIRECTOR_BENCH_CONNS"), &more)
		sizes = append(sizes, more)
	}
	for _, n := range sizes {
		b.Run(fmt.Sprintf("nat/%d", n), func(b *testing.B) {
			f := newFlows(b, lvs.Masq, n)
			// The packets of many batches are made beforehand.
			var batches [1024][benchBatch][]byte
			for i := range batches {
				for k := range f.batch {
					f.from(k, f.random.IntN(n))
					batches[i][k] = append([]byte(nil), f.headers[k]...)
				}
			}
			before, at := f.d.Count(dataplane.Forwarded), 0
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			spent := threadTime(b)
			b.ReportAllocs()
			for b.Loop() {
				f.headers = batches[at%len(batches)]
				at++
				f.process()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*benchBatch), "ns/packet")
			b.ReportMetric(float64((threadTime(b)-spent).Nanoseconds())/float64(b.N*benchBatch), "cpu-ns/packet")
			if got := f.d.Count(dataplane.Forwarded) - before; got != uint64(b.N*benchBatch) {
				b.Fatalf("%d packets were forwarded, want %d", got, b.N*benchBatch)
			}
		})
	}
}

// threadTime is the time that the calling thread has had a processor: what
// others do on a shared machine counts less.
func threadTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
