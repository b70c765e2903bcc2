package main

import (
	"io"
	"runtime"
	"time"

	"pktdirector/dataplane"
	"pktdirector/image"
)

// writeAtRest writes the image of a director that rests, whose engine's time is now, and
// what k holds. Nothing may move or change meanwhile. Parts are encoded on all
// processors, and written in their order.
func writeAtRest(to io.Writer, d *dataplane.Director, now time.Duration, k *carried) error {
	m := d.Image(now, false)
	parts := 1 + m.Parts()
	ahead := 2 * runtime.GOMAXPROCS(0)
	encoded := make([]chan []byte, parts)
	for i := range encoded {
		encoded[i] = make(chan []byte, 1)
	}
	room := make(chan []byte, ahead) // buffers that are free
	for range ahead {
		room <- nil
	}
	go func() { // ends when all parts are encoded: the loop below takes them all
		for i := range parts {
			b := (<-room)[:0]
			go func() {
				if i == 0 {
					encoded[i] <- k.appendPart(b, i)
					return
				}
				encoded[i] <- m.AppendPart(b, i-1, i)
			}()
		}
	}()
	_, err := to.Write(image.AppendHead(nil))
	var size int64
	for _, one := range encoded {
		b := <-one
		if err == nil {
			_, err = to.Write(b)
		}
		size += int64(len(b))
		room <- b
	}
	if err == nil {
		_, err = to.Write(image.AppendEnd(nil, parts, size))
	}
	return err
}
