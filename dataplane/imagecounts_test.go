package dataplane_test

import (
	"fmt"
	"testing"
	"time"

	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// Whoever writes an image only reads the director: what workers count meanwhile
// stays counted.
func TestWritingAnImageTakesNoCountBack(t *testing.T) {
	const conns = 50000
	a := newArena(t, 2<<3) // at most 32 connections: most of them make way for others
	wrote := make(chan int)
	done := make(chan struct{})
	go func() {
		n := 0
		for ; ; n++ {
			select {
			case <-done:
				wrote <- n
				return
			default:
				m := a.d.Image(time.Second, false)
				m.AppendPart(nil, m.Parts()-1, 0) // the rules, with what is counted
			}
		}
	}()
	before := a.d.Choices()
	w := a.workers[0]
	for i := range conns {
		p := packettest.Build(t, packettest.Spec{
			Src: fmt.Sprintf("198.51.100.%d:%d", i%250+1, 1024+i/250), Dst: vip + ":80", Flags: packet.SYN})
		w.Process([]*packet.Packet{p}, time.Second)
	}
	close(done)
	if n := <-wrote; n < 100 {
		t.Fatalf("only %d were written meanwhile", n)
	}
	after := a.d.Choices()
	if n := after.Scheduled - before.Scheduled + after.None - before.None; n != conns {
		t.Errorf("%d choices are counted of %d connections: %+v", n, conns, after)
	}
	if table := a.d.Table(); int(table.Evicted)+table.Connections != int(after.Scheduled) {
		t.Errorf("%d connections are there and %d made way, of %d", table.Connections, table.Evicted, after.Scheduled)
	}
	var counted uint64
	for _, v := range a.d.Verdicts() {
		counted += v.Count
	}
	if counted != conns {
		t.Errorf("%d verdicts of %d packets", counted, conns)
	}
}
