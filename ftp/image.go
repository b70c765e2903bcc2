package ftp

import "pktdirector/image"

// Carry writes what is known of a server's answers into an image of a director, or
// reads it back.
func (r *Replies) Carry(x *image.Codec) {
	image.Num(x, &r.next)
	x.Bool(&r.known)
	x.Bool(&r.long)
	image.Num(x, &r.several)
	line := string(r.begun[:r.n])
	x.Text(&line)
	if len(line) > MaxLine {
		x.Fail("a line of %d bytes: at most %d are kept", len(line), MaxLine)
		return
	}
	r.n = uint8(copy(r.begun[:], line))
}

// Carry writes the replacements into an image of a director, or reads them back.
func (e *Edits) Carry(x *image.Codec) {
	n := x.Count(int(e.n), 6)
	if n > maxEdits {
		x.Fail("%d replacements: at most %d are kept", n, maxEdits)
		return
	}
	e.n = uint8(n)
	for i := range e.list[:n] {
		image.Num(x, &e.list[i].at)
		image.Num(x, &e.list[i].old)
		image.Num(x, &e.list[i].fresh)
		if e.list[i].old == 0 || e.list[i].fresh == 0 {
			x.Fail("a replacement of nothing")
			return
		}
	}
	image.Num(x, &e.base)
}
