package capture

import "io"

// Sizes of a window, in bytes.
const (
	windowStart = 64 << 10
	windowMost  = 1 << 20
)

// window reads a stream through a buffer that grows as far as a record needs it,
// and whose bytes can be looked at in place. A bufio.Reader cannot grow, and with
// many files open a buffer for the largest record each would be too much.
type window struct {
	from io.Reader
	buf  []byte
	r, w int // what was read and not yet taken is buf[r:w]
	err  error
}

// peek returns the next n bytes, at most windowMost, without taking them. They
// stay valid until the next peek. Fewer come with the error that ended the
// stream: io.EOF at its end.
func (w *window) peek(n int) ([]byte, error) {
	for w.w-w.r < n && w.err == nil {
		w.fill(n)
	}
	if have := w.w - w.r; have < n {
		return w.buf[w.r:w.w], w.err
	}
	return w.buf[w.r : w.r+n], nil
}

// fill reads once. What has been peeked at moves to the front: less than n bytes.
func (w *window) fill(n int) {
	buf := w.buf
	if len(buf) < n {
		size := max(windowStart, len(buf))
		for size < n {
			size *= 2
		}
		buf = make([]byte, size)
	}
	w.r, w.w, w.buf = 0, copy(buf, w.buf[w.r:w.w]), buf
	for tries := 0; ; tries++ {
		k, err := w.from.Read(w.buf[w.w:])
		w.w, w.err = w.w+k, err
		if k > 0 || err != nil {
			return
		}
		if tries == 100 {
			w.err = io.ErrNoProgress
			return
		}
	}
}

// take takes n bytes that peek returned. They stay valid as peek says.
func (w *window) take(n int) { w.r += n }

// discard takes n bytes that may be more than fit, and returns how many there were.
func (w *window) discard(n int) (int, error) {
	for left := n; ; {
		b, err := w.peek(min(left, windowStart))
		w.take(len(b))
		left -= len(b)
		if left == 0 || err != nil {
			return n - left, err
		}
	}
}

// Read implements io.Reader, behind what was taken: for streams that turn out to
// be packed.
func (w *window) Read(p []byte) (int, error) {
	if w.r == w.w && w.err == nil {
		if len(p) >= windowStart {
			return w.from.Read(p)
		}
		w.fill(1)
	}
	n := copy(p, w.buf[w.r:w.w])
	w.r += n
	if n == 0 {
		return 0, w.err
	}
	return n, nil
}
