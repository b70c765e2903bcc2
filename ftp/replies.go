package ftp

import "bytes"

// Replies follows a server's side of a control connection line by line, so that
// what looks like an answer in the middle of something else is not taken for
// one: within a line, or within an answer of many lines (RFC 959 section 4.2).
// The zero Replies begins with whatever comes first. It is of fixed size and
// holds no pointers.
type Replies struct {
	next    uint32 // sequence number behind the last byte seen
	known   bool   // whether next means anything
	long    bool   // the present line is longer than MaxLine
	several uint16 // code of the answer of many lines that is not over; 0: none
	n       uint8
	begun   [MaxLine]byte // the present line so far, in earlier segments
}

// Read goes through the lines that end in a segment's new bytes; seq is the
// sequence number of its first byte. Bytes that were seen already are passed
// over; after a gap, a line is taken to begin. For each answer found reads gets
// the message and where the line began in the payload, which is below 0 when
// that was in an earlier segment.
func (r *Replies) Read(seq uint32, payload []byte, found func(m Message, began int)) {
	at := 0
	if seen := int32(r.next - seq); r.known && seen >= 0 {
		at = int(seen)
	} else {
		r.n, r.long, r.several = 0, false, 0
	}
	if at > len(payload) || len(payload) == 0 {
		return // all of it is old
	}
	r.next, r.known = seq+uint32(len(payload)), true
	for at < len(payload) {
		end := bytes.IndexByte(payload[at:], '\n')
		if end < 0 {
			r.keep(payload[at:])
			return
		}
		line, began := payload[at:at+end], at
		if r.n > 0 {
			began -= int(r.n)
			r.keep(line)
			line = r.begun[:r.n]
		}
		if !r.long && r.answers(line) {
			if m := ParseReply(line); m.Kind != Other {
				found(m, began)
			}
		}
		r.n, r.long = 0, false
		at += end + 1
	}
}

// keep adds to the line that has not ended.
func (r *Replies) keep(b []byte) {
	n := copy(r.begun[r.n:], b)
	r.n += uint8(n)
	r.long = r.long || n < len(b)
}

// answers reports whether a line is an answer of its own, and notes where an
// answer of many lines begins and ends.
func (r *Replies) answers(line []byte) bool {
	if len(line) < 4 || !digit(line[0]) || !digit(line[1]) || !digit(line[2]) {
		return false
	}
	code := uint16(line[0]-'0')*100 + uint16(line[1]-'0')*10 + uint16(line[2]-'0')
	switch {
	case r.several != 0:
		if code == r.several && line[3] == ' ' {
			r.several = 0
		}
		return false
	case line[3] == '-':
		r.several = code
		return false
	}
	return line[3] == ' '
}
