package link_test

import (
	"io"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"pktdirector/dataplane/link"
	"pktdirector/packet"
)

// BenchmarkTCPThroughLinks moves bulk data by TCP, offloads on, from one
// AF_PACKET link to another. One operation is 1 MB.
func BenchmarkTCPThroughLinks(b *testing.B) {
	w := newWire(b, 1500)
	left, right := open(b, w.middle, "left", link.AFPacketOptions{}), open(b, w.middle, "right", link.AFPacketOptions{})
	forward(b, left, right, serverMAC, nil)
	forward(b, right, left, clientMAC, nil)
	var ln net.Listener
	do(b, w.server, func() (err error) {
		ln, err = net.Listen("tcp", serverIP+":5001")
		return err
	})
	defer ln.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, make([]byte, 1<<18))
	}()
	var c net.Conn
	do(b, w.client, func() (err error) {
		c, err = net.Dial("tcp", ln.Addr().String())
		return err
	})
	mb := make([]byte, 1<<20)
	b.SetBytes(1 << 20)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Write(mb); err != nil {
			b.Fatal(err)
		}
	}
	c.Close()
	<-done
}

// BenchmarkFrames reads and writes small frames, 64 an operation, which a
// socket of the same machine sends.
func BenchmarkFrames(b *testing.B) {
	w := newWire(b, 1500)
	l, out := open(b, w.middle, "left", link.AFPacketOptions{}), open(b, w.middle, "right", link.AFPacketOptions{})
	raw := newRawSender(b, w.client, "eth0")
	r, wr, batch := l.Readers()[0], out.NewWriter(), newBatch(64)
	frame := udpFrame(1, 64)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		for range len(batch) {
			unix.Sendto(raw.fd, frame, 0, &raw.to)
		}
		b.StartTimer()
		for n := 0; n < len(batch); {
			k, err := r.Read(batch)
			if err != nil {
				b.Fatal(err)
			}
			for _, p := range batch[:k] {
				p.DstMAC = serverMAC
				packet.Parse(p)
			}
			wr.Write(batch[:k])
			n += k
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/64, "ns/frame")
}
