package main

import (
	"io"
	"time"

	"pktdirector/dataplane"
	"pktdirector/image"
)

// writeImage writes the image of a director at engine time now, part by part, so that
// no more than one is kept in memory. about says what stands beside the engine's state;
// from then until release is called, nobody may change what is balanced. It returns
// the bytes written.
func writeImage(w io.Writer, d *dataplane.Director, now time.Duration, about func() (k carried, release func())) (size int64, err error) {
	m := d.Image(now, false)
	buffer := image.AppendHead(nil)
	head := int64(len(buffer))
	put := func() {
		n, e := w.Write(buffer)
		size, err, buffer = size+int64(n), e, buffer[:0]
	}
	put()
	n := m.Parts()
	for i := 0; i < n-1 && err == nil; i++ {
		buffer = m.AppendPart(buffer, i, i)
		put()
	}
	if err != nil {
		return size, err
	}
	// The last part has the rules: they are those that what stands beside is about.
	k, release := about()
	buffer = m.AppendPart(buffer, n-1, n-1)
	release()
	buffer = k.appendPart(buffer, n)
	if put(); err != nil {
		return size, err
	}
	buffer = image.AppendEnd(buffer, n+1, size-head)
	put()
	return size, err
}
