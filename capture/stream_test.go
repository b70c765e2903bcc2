package capture_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/klauspost/compress/zstd"

	"pktdirector/capture"
)

// endless is a file of n packets that is made while it is read: a header, and a
// piece of 1,000 packets again and again.
type endless struct {
	head, piece []byte
	left        int // pieces
	at          []byte
}

// newEndless makes a file of n packets, a multiple of 1,000, of 100 bytes: times
// stand still from piece to piece.
func newEndless(kind string, n int) *endless {
	frame := bytesOf(100, 1)
	copy(frame[12:], []byte{8, 0, 0x45})
	e := &endless{left: n / 1000}
	switch kind {
	case "pcap", "pcap, big-endian":
		order := binary.AppendByteOrder(binary.LittleEndian)
		if kind != "pcap" {
			order = binary.BigEndian
		}
		e.head = pcap(order, nano, 4, 65535, 1)
		for range 1000 {
			e.piece = append(e.piece, pcap(order, nano, 4, 65535, 1, pcapRecord{7, 7, 100, 100, frame})[24:]...)
		}
	case "pcapng", "pcapng, two interfaces":
		n := newNg(binary.LittleEndian).iface(1, 0, option{9, []byte{9}})
		if kind != "pcapng" {
			n.iface(1, 0, option{9, []byte{9}})
		}
		e.head, n.b = n.b, nil
		for i := range 1000 {
			n.packet(uint32(i)%uint32(strings.Count(kind, "two")+1), 7e9, 100, frame, option{2, []byte{1, 0, 0, 0}}, option{5, []byte("12345678")})
		}
		e.piece = n.b
	}
	e.at = e.head
	return e
}

func (e *endless) Read(p []byte) (int, error) {
	if len(e.at) == 0 {
		if e.left == 0 {
			return 0, io.EOF
		}
		e.left--
		e.at = e.piece
	}
	n := copy(p, e.at)
	e.at = e.at[n:]
	return n, nil
}

func kinds() []string {
	return []string{"pcap", "pcap, big-endian", "pcapng", "pcapng, two interfaces"}
}

// TestConstantMemory streams captures through and looks at the heap: reading costs
// nothing for each packet.
func TestConstantMemory(t *testing.T) {
	const n = 1_000_000 // 116 MB and more
	for _, kind := range kinds() {
		t.Run(kind, func(t *testing.T) {
			if allocated, got := streamed(t, newEndless(kind, n), n); allocated > 8<<20 || got != n {
				t.Errorf("%d packets cost %d bytes", got, allocated)
			}
		})
	}
}

// streamed reads to the end and returns what was allocated on the way, behind the
// first fiftieth of n packets.
func streamed(t testing.TB, in io.Reader, n int) (uint64, int) {
	t.Helper()
	r, err := capture.NewReader(in, capture.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var before, after runtime.MemStats
	var rec capture.Record
	got := 0
	for ; ; got++ {
		if got == n/50 {
			runtime.ReadMemStats(&before)
		}
		if err := r.Next(&rec); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc, got
}

// A zstd file's header names the size of what is in it. That it is more than the
// memory that unpacking may take must not matter.
func TestLargePackedFile(t *testing.T) {
	const n = 1_500_000 // 174 MB
	in, out := io.Pipe()
	go func() { // ends with the file, or when the reader goes
		e := newEndless("pcap", n)
		z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest))
		if err == nil {
			z.ResetContentSize(out, int64(len(e.head)+len(e.piece)*n/1000))
			_, err = io.Copy(z, e)
		}
		if err == nil {
			err = z.Close()
		}
		out.CloseWithError(err)
	}()
	allocated, got := streamed(t, in, n)
	if got != n || allocated > 300<<20 {
		t.Errorf("%d packets, %d bytes", got, allocated)
	}
}

// Benchmarks of reading alone. An iteration is a packet.
func BenchmarkNext(b *testing.B) {
	for _, kind := range kinds() {
		b.Run(kind, func(b *testing.B) {
			r, err := capture.NewReader(newEndless(kind, 1<<50), capture.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer r.Close()
			var rec capture.Record
			for range 20_000 { // buffers have grown
				if err := r.Next(&rec); err != nil {
					b.Fatal(err)
				}
			}
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			b.ReportAllocs()
			n := uint64(0)
			for b.Loop() {
				if err := r.Next(&rec); err != nil {
					b.Fatal(err)
				}
				n++
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds()/1e6, "Mpackets/s")
			runtime.GC()
			runtime.ReadMemStats(&after)
			if n > 1000 && after.Mallocs-before.Mallocs > 100+n/1000 {
				b.Errorf("%d allocations for %d packets", after.Mallocs-before.Mallocs, n)
			}
			if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 1<<20 {
				b.Errorf("the heap grew by %d bytes in %d packets", grown, n)
			}
		})
	}
}

func TestNoAllocations(t *testing.T) {
	for _, kind := range kinds() {
		r, err := capture.NewReader(newEndless(kind, 1<<40), capture.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var rec capture.Record
		next := func() {
			if err := r.Next(&rec); err != nil {
				t.Fatal(err)
			}
		}
		for range 20_000 {
			next()
		}
		if n := testing.AllocsPerRun(20_000, next); n != 0 {
			t.Errorf("%s: %v allocations a packet", kind, n)
		}
		r.Close()
	}
}

func TestProgress(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	total := int64(0)
	for i, file := range [][]byte{manyPackets(30_000), manyPackets(15_000)} {
		path := filepath.Join(dir, fmt.Sprint(i))
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		paths, total = append(paths, path), total+int64(len(file))
	}
	var calls []int64
	o := capture.Options{Progress: func(read, all int64) {
		if all != total || len(calls) > 0 && read < calls[len(calls)-1] {
			t.Errorf("%d of %d, before %v; want a total of %d", read, all, calls, total)
		}
		calls = append(calls, read)
	}}
	r, err := capture.Open(paths, o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := readAll(r); err != nil {
		t.Fatal(err)
	}
	if len(calls) < 4 || calls[len(calls)-1] != total {
		t.Errorf("calls at %v of %d", calls, total)
	}

	o.Progress = func(_, all int64) { total = all }
	r, err = capture.NewReader(newEndless("pcap", 20_000), o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readAll(r); err != nil || total != -1 {
		t.Errorf("of a stream: total %d, %v", total, err)
	}
}

func TestStdin(t *testing.T) {
	want, _ := fromFiles(t, "nano.pcap")
	o := capture.Options{Stdin: bytes.NewReader(testdata(t, "nano.pcap.zst"))}
	r, err := capture.Open([]string{"-", "testdata/raw.pcap"}, o)
	if err != nil {
		t.Fatal(err)
	}
	got, err := readAll(r)
	if err != nil || len(got) != len(want)+9 || r.Files()[0].Name != "-" {
		t.Errorf("%d packets, %v", len(got), err)
	}
	_, err = capture.Open([]string{"-", "-"}, o)
	wantError(t, err, "named twice")
	_, err = capture.Open([]string{"testdata/nano.pcap", "./testdata/nano.pcap"}, o)
	wantError(t, err, "named twice")
}

// A FIFO shows each packet as soon as it is there.
func TestFIFO(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	file := testdata(t, "nano.pcap")
	packets, read := make(chan struct{}), make(chan struct{})
	go func() { // ends with the file
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return
		}
		defer f.Close()
		f.Write(file[:24+16+42])
		<-packets // the first has been seen
		f.Write(file[24+16+42:])
		close(read)
	}()
	r, err := capture.Open([]string{path}, capture.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var rec capture.Record
	if err := r.Next(&rec); err != nil || len(rec.Data) != 42 {
		t.Fatalf("%v, %v", rec, err)
	}
	close(packets)
	rest, err := readAll(r)
	<-read
	if err != nil || len(rest) != 10 {
		t.Errorf("%d packets, %v", len(rest), err)
	}
}
