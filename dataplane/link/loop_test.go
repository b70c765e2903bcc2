package link_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"pktdirector/dataplane"
	"pktdirector/dataplane/link"
	"pktdirector/packet"
)

// While a loop rests nothing is read and the timers stand; what comes waits.
func TestALoopRests(t *testing.T) {
	here, there := link.NewPipe(dataplane.LinkInfo{Name: "here", MTU: 1500, Layer3: true}, dataplane.LinkInfo{Name: "there", MTU: 1500, Layer3: true}, link.PipeOptions{})
	d := dataplane.New(dataplane.Options{})
	l := link.NewLoop(d, []dataplane.Link{here}, nil, time.Now(), nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	<-l.Moving()
	w := there.NewWriter()
	send := func() {
		p := new(packet.Packet)
		p.Reset(make([]byte, packet.Headroom+20), packet.Headroom, 20)
		p.EtherType = packet.EtherIPv4
		w.Write([]*packet.Packet{p})
	}
	counted := func() (n uint64) {
		for _, v := range d.Verdicts() {
			n += v.Count
		}
		return n
	}
	until := func(n uint64) {
		t.Helper()
		for range 2000 {
			if counted() == n {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
		t.Fatalf("%d packets were read, want %d", counted(), n)
	}
	var last time.Duration
	for round := range uint64(5) {
		send()
		until(2*round + 1)
		now, goOn, err := l.Rest(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if now <= last || now < d.Now() {
			t.Errorf("it rests at %v, the engine is at %v, before it was %v", now, d.Now(), last)
		}
		send()
		time.Sleep(60 * time.Millisecond) // a loop at work reads it by then, mostly
		if n := counted(); n != 2*round+1 {
			t.Errorf("it rests and reads: %d packets", n)
		}
		last = d.Now()
		goOn()
		until(2*round + 2)
	}
	short, stop := context.WithCancelCause(t.Context())
	stop(errors.New("no more"))
	if _, _, err := l.Rest(short); err == nil {
		// It may have rested at once: both were ready.
		t.Log("rested though the context had ended")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, _, err := l.Rest(t.Context()); err == nil {
		t.Error("a loop that has ended rests")
	}
}

// A director that stops while its loop rests ends.
func TestALoopThatRestsEnds(t *testing.T) {
	here, _ := link.NewPipe(dataplane.LinkInfo{Name: "here", MTU: 1500, Layer3: true}, dataplane.LinkInfo{Name: "there", MTU: 1500, Layer3: true}, link.PipeOptions{})
	l := link.NewLoop(dataplane.New(dataplane.Options{}), []dataplane.Link{here}, nil, time.Now(), nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	_, goOn, err := l.Rest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	goOn() // too late, and harmless
}
