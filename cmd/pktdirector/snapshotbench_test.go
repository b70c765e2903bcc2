package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"pktdirector/control"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// BenchmarkSnapshot writes a snapshot of a million connections, and begins a director
// from it.
func BenchmarkSnapshot(b *testing.B) {
	const connections = 1_000_000
	text := fileHead + caseServices("{address: 10.2.0.1}, {address: 10.2.0.2}")
	bench := newReloadBench(b, text)
	bench.route()
	if err := bench.director().SetTunable("conn_max", fmt.Sprint(2*connections)); err != nil {
		b.Fatal(err)
	}
	w := bench.director().NewWorker()
	for i := range connections {
		p := packettest.Build(b, packettest.Spec{Src: fmt.Sprintf("198.51.%d.%d:%d", i>>8&255, i&255, 1024+i>>16), Dst: "192.0.2.10:80", Flags: packet.SYN})
		w.Process([]*packet.Packet{p}, time.Duration(i)*time.Microsecond)
	}
	if n := bench.director().Table().Connections; n != connections {
		b.Fatalf("%d connections", n)
	}
	file := filepath.Join(b.TempDir(), "s")
	kept := keptBy(bench, file, time.Hour)
	c, err := control.Parse("director.yaml", []byte(text))
	if err != nil {
		b.Fatal(err)
	}
	b.Run("write", func(b *testing.B) {
		for b.Loop() {
			kept.write(b.Context())
		}
		info, err := os.Stat(file)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(info.Size())/1e6, "MB")
	})
	b.Run("begin", func(b *testing.B) {
		for b.Loop() {
			r, err := restoreFile(file, 1<<40, c, 2*connections)
			if err != nil || r.director.Table().Connections != connections {
				b.Fatal(err)
			}
		}
	})
}
