package ftp_test

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"pktdirector/ftp"
)

// slowStream is a byte stream with replacements, written out: for each position
// of the original, where it stands in the edited one.
type slowStream struct {
	edited []byte
	at     []int // of position i of the original; one longer than it
}

type replacement struct{ at, old int }

func slow(original []byte, list []replacement, text []byte) slowStream {
	var s slowStream
	for i := 0; i < len(original); {
		if len(list) > 0 && list[0].at == i {
			for k := range list[0].old {
				s.at = append(s.at, len(s.edited))
				switch {
				case k == list[0].old-1 && k < len(text):
					s.edited = append(s.edited, text[k:]...)
				case k < len(text):
					s.edited = append(s.edited, text[k])
				}
			}
			i += list[0].old
			list = list[1:]
			continue
		}
		s.at = append(s.at, len(s.edited))
		s.edited = append(s.edited, original[i])
		i++
	}
	s.at = append(s.at, len(s.edited))
	return s
}

// back maps a position of the edited stream to the last of the original that
// is wholly before it.
func (s *slowStream) back(y int) int {
	for i := len(s.at) - 1; ; i-- {
		if s.at[i] <= y {
			return i
		}
	}
}

// TestEditsAgreeWithAStreamWithInsertions sends a stream in random segments,
// again and again, through Edits, and compares every byte and number with the
// stream written out.
func TestEditsAgreeWithAStreamWithInsertions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := bytes.Repeat([]byte("#"), rapid.IntRange(1, 20).Draw(t, "text"))
		for i := range text {
			text[i] = byte('A' + i)
		}
		var list []replacement
		end := 0
		for range rapid.IntRange(0, 8).Draw(t, "edits") {
			r := replacement{end + rapid.IntRange(0, 30).Draw(t, "gap"), rapid.IntRange(1, 20).Draw(t, "old")}
			list = append(list, r)
			end = r.at + r.old
		}
		original := bytes.Repeat([]byte("."), end+rapid.IntRange(1, 40).Draw(t, "rest"))
		for i := range original {
			original[i] = byte('a' + i%26)
		}
		first := rapid.Uint32().Draw(t, "first")
		var e ftp.Edits
		for _, r := range list {
			e.Add(first+uint32(r.at), r.old, len(text))
		}
		want := slow(original, list, text)
		for x, y := range want.at {
			if got := e.Seq(first + uint32(x)); got != first+uint32(y) {
				t.Fatalf("position %d became %d, want %d", x, int32(got-first), y)
			}
		}
		for y := range len(want.edited) + 1 {
			if got, back := e.Ack(first+uint32(y)), want.back(y); int32(got-first) != int32(back) {
				t.Fatalf("edited position %d is %d of the original, want %d", y, int32(got-first), back)
			}
		}
		for range 5 {
			from := rapid.IntRange(0, len(original)-1).Draw(t, "from")
			to := rapid.IntRange(from, len(original)).Draw(t, "to")
			out := make([]byte, 400)
			n := e.Rewrite(out, original[from:to], first+uint32(from), text)
			if piece := want.edited[want.at[from]:want.at[to]]; !bytes.Equal(out[:n], piece) {
				t.Fatalf("segment %d to %d became %q, want %q", from, to, out[:n], piece)
			}
			if grown := e.Growth(first+uint32(from), to-from); grown != n-(to-from) {
				t.Fatalf("growth %d, want %d", grown, n-(to-from))
			}
		}
	})
}

// TestManyEdits: only the last ones are known one by one, but positions behind
// all of them stay right, also when sequence numbers have come round.
func TestManyEdits(t *testing.T) {
	var e ftp.Edits
	at, shift := uint32(7), uint32(0)
	for range 1000 {
		e.Forget(at)
		e.Add(at, 8, 10)
		at += 40_000_000
		shift += 2
		if got := e.Seq(at); got != at+shift {
			t.Fatalf("position %d became %d, want %d", at, got, at+shift)
		}
		if got := e.Ack(at + shift); got != at {
			t.Fatalf("%d is %d, want %d", at+shift, got, at)
		}
	}
}
