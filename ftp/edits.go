package ftp

// maxEdits is how many replacements are remembered one by one. Older ones are
// forgotten as places: everything now moves by their sum. Only a
// retransmission from before all of them would come out wrong, and those bytes
// have long been acknowledged.
const maxEdits = 8

// edit is one replacement in a stream: old bytes from at on became fresh ones.
type edit struct {
	at         uint32
	old, fresh uint8
}

// Edits maps a byte stream's sequence numbers to those of the same stream with
// pieces replaced by others of other lengths, and back. Every replacement puts
// in the same text. Byte k of a replaced piece becomes byte k of the text; the
// last one also what is left over, and bytes beyond the text become nothing, so
// that a piece sent again in other segments comes out the same. The zero Edits
// changes nothing. It is of fixed size and holds no pointers.
type Edits struct {
	list [maxEdits]edit
	n    uint8
	base int32 // by how much positions in front of list[0] move
}

// Any reports whether anything was replaced yet.
func (e *Edits) Any() bool { return e.n > 0 || e.base != 0 }

// Add notes that the old bytes from at on are replaced by a text of fresh
// bytes. at must lie behind all earlier replacements; both lengths must be above
// 0 and below 256.
func (e *Edits) Add(at uint32, old, fresh int) {
	if e.n == maxEdits {
		e.forget()
	}
	e.list[e.n] = edit{at, uint8(old), uint8(fresh)}
	e.n++
}

func (e *Edits) forget() {
	e.base += int32(e.list[0].fresh) - int32(e.list[0].old)
	copy(e.list[:], e.list[1:e.n])
	e.n--
}

// longAgo is how far behind the stream a replacement is forgotten: before
// sequence numbers, which are compared within half of their range, come round.
const longAgo = 1 << 30

// Forget drops the places of replacements that lie far before seq, the present
// position in the original stream.
func (e *Edits) Forget(seq uint32) {
	for e.n > 0 && int32(seq-e.list[0].at) > longAgo {
		e.forget()
	}
}

// moved returns how many bytes of the text stand before byte k of a piece.
func (d edit) moved(k int) int {
	if k >= int(d.old) {
		return int(d.fresh)
	}
	return min(k, int(d.fresh))
}

// Seq maps a position of the original stream to the edited one.
func (e *Edits) Seq(x uint32) uint32 {
	shift := e.base
	for _, d := range e.list[:e.n] {
		k := int32(x - d.at)
		if k <= 0 {
			break
		}
		if k < int32(d.old) {
			return d.at + uint32(shift) + uint32(d.moved(int(k)))
		}
		shift += int32(d.fresh) - int32(d.old)
	}
	return x + uint32(shift)
}

// Ack maps a position of the edited stream back: to the last byte of the
// original that is wholly before it.
func (e *Edits) Ack(y uint32) uint32 {
	shift := e.base
	for _, d := range e.list[:e.n] {
		j := int32(y - d.at - uint32(shift))
		if j <= 0 {
			break
		}
		if j < int32(d.fresh) {
			return d.at + uint32(min(j, int32(d.old)-1))
		}
		shift += int32(d.fresh) - int32(d.old)
	}
	return y - uint32(shift)
}

// Growth returns by how many bytes the n bytes from seq on grow.
func (e *Edits) Growth(seq uint32, n int) int {
	if e.n == 0 || n == 0 {
		return 0
	}
	return int(int32(e.Seq(seq+uint32(n))-e.Seq(seq))) - n
}

// Rewrite copies the bytes from, which begin at seq of the original stream, to
// the beginning of to, replacing pieces by text, and returns how many bytes
// that were. to must have room for the growth and not overlap from.
func (e *Edits) Rewrite(to, from []byte, seq uint32, text []byte) int {
	n, at := 0, 0
	for _, d := range e.list[:e.n] {
		first, last := int(int32(d.at-seq)), int(int32(d.at+uint32(d.old)-seq))
		if last <= at || first >= len(from) {
			continue
		}
		if first > at {
			n += copy(to[n:], from[at:first])
		}
		end := min(last, len(from))
		n += copy(to[n:], text[d.moved(max(at, first)-first):d.moved(end-first)])
		at = end
	}
	return n + copy(to[n:], from[at:])
}
