package main

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"pktdirector/control"
	"pktdirector/dataplane"
	"pktdirector/handover"
	"pktdirector/image"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// withConnections returns a director with n connections, and its configuration.
func withConnections(tb testing.TB, n int) (*dataplane.Director, *control.Config) {
	tb.Helper()
	c, err := control.Parse("benchmark", []byte(`
links: [{name: eth0}]
services: [{vip: 192.0.2.10, protocol: tcp, port: 80, method: nat, scheduler: rr, servers: [{address: 10.2.0.1}, {address: 10.2.0.2}, {address: 10.2.0.3}]}]
`))
	if err != nil {
		tb.Fatal(err)
	}
	d := newDirector(1, n+n/4)
	if err := configure(d, c); err != nil {
		tb.Fatal(err)
	}
	d.SetLinks([]dataplane.LinkInfo{{Name: "eth0", MTU: 1500}})
	w := d.NewWorker()
	batch := make([]*packet.Packet, 0, 64)
	for i := range n {
		from := fmt.Sprintf("198.18.%d.%d:%d", i>>8&255, i&255, 1024+i>>16)
		batch = append(batch, packettest.Build(tb, packettest.Spec{Src: from, Dst: "192.0.2.10:80", Flags: packet.SYN}))
		if len(batch) == cap(batch) || i == n-1 {
			w.Process(batch, time.Duration(i)*time.Microsecond)
			batch = batch[:0]
		}
	}
	if got := d.Table().Connections; got != n {
		tb.Fatalf("%d connections, want %d: %+v", got, n, d.Verdicts())
	}
	return d, c
}

// BenchmarkHandOver hands a million connections over, as an upgrade does while nothing
// is forwarded: written to memory, mapped, and restored.
func BenchmarkHandOver(b *testing.B) {
	const connections = 1_000_000
	d, c := withConnections(b, connections)
	var write, read time.Duration
	var size int64
	before := processorTime(b)
	for b.Loop() {
		began := time.Now()
		f, err := handover.NewMemory("image")
		if err != nil {
			b.Fatal(err)
		}
		k := carriedBy("director.yaml", c, momentNow())
		if err := writeAtRest(f, d, 2*time.Second, &k); err != nil {
			b.Fatal(err)
		}
		write += time.Since(began)
		info, err := f.Stat()
		if err != nil {
			b.Fatal(err)
		}
		size = info.Size()
		began = time.Now()
		got, err := imageIn([]*os.File{f}, c)
		if err != nil {
			b.Fatal(err)
		}
		read += time.Since(began)
		if n := got.director.Table().Connections; n != connections {
			b.Fatalf("%d connections, want %d", n, connections)
		}
	}
	n := float64(b.N)
	b.ReportMetric((processorTime(b)-before).Seconds()*1000/n, "ms-cpu")
	b.ReportMetric(write.Seconds()*1000/n, "ms-write")
	b.ReportMetric(read.Seconds()*1000/n, "ms-read")
	b.ReportMetric(float64(size)/connections, "bytes/conn")
}

// processorTime is what this process has taken of all processors.
func processorTime(tb testing.TB) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// What is written at rest by many is what is written by one, part for part.
func TestAnImageAtRest(t *testing.T) {
	d, c := withConnections(t, 3000)
	var file writer
	k := carriedBy("director.yaml", c, momentNow())
	if err := writeAtRest(&file, d, time.Second, &k); err != nil {
		t.Fatal(err)
	}
	parts, err := image.Parts(file.b)
	if err != nil {
		t.Fatal(err)
	}
	b, err := restore(parts, c, 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	if was, is := d.Table().Connections, b.director.Table().Connections; was != is || is != 3000 {
		t.Errorf("%d connections became %d", was, is)
	}
	if was, is := fmt.Sprint(d.Totals()), fmt.Sprint(b.director.Totals()); was != is {
		t.Errorf("counters %s became %s", was, is)
	}
	for room := range 3 {
		full := writer{room: 1 + room*1000}
		if err := writeAtRest(&full, d, time.Second, &k); err == nil {
			t.Errorf("with room for %d bytes: written", full.room)
		}
	}
}

// writer has room for so many bytes; 0: for all.
type writer struct {
	b    []byte
	room int
}

func (w *writer) Write(b []byte) (int, error) {
	if w.room > 0 && len(w.b)+len(b) > w.room {
		return 0, os.ErrDeadlineExceeded
	}
	w.b = append(w.b, b...)
	return len(b), nil
}
