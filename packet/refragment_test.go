package packet_test

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// slowLengths says how many payload bytes the fragments of a packet have that came
// in pieces of the given lengths, behind a header (a fragment header included),
// towards a link of limit bytes: the same ones if each fits, else as many as fit
// the link and the largest piece (in IPv6 at least 1280 bytes), rounded down to 8.
func slowLengths(pieces []int, header, limit int, v6 bool) []int {
	total, largest := 0, 0
	for _, n := range pieces {
		total, largest = total+n, max(largest, n+header)
	}
	if largest <= limit && len(pieces) > 1 {
		return pieces
	}
	if len(pieces) > 1 {
		if v6 {
			largest = max(largest, 1280)
		}
		limit = min(limit, largest)
	}
	room := (limit - header) / 8 * 8
	var lengths []int
	for total > 0 && room > 0 {
		lengths = append(lengths, min(room, total))
		total -= lengths[len(lengths)-1]
	}
	return lengths
}

// TestPiecesGoOnInPieces sends a datagram in random pieces and a random order,
// cuts what they make again for a random link, and joins that: the bytes are the
// same, the lengths those of the slow model, none larger than the link or the
// largest piece, in order, and only the last has no more to come.
func TestPiecesGoOnInPieces(t *testing.T) {
	kept, cutAnew := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		v6 := rapid.Bool().Draw(rt, "IPv6")
		header := 20
		if v6 {
			header = 48
		}
		var pieces []int
		total := 0
		for range rapid.IntRange(1, 6).Draw(rt, "pieces") - 1 {
			n := 8 * rapid.IntRange(1, 300).Draw(rt, "size in 8 bytes")
			pieces, total = append(pieces, n), total+n
		}
		n := rapid.IntRange(9, 1500).Draw(rt, "last")
		pieces, total = append(pieces, n), total+n
		p := datagram(t, v6, total)
		var sent []*packet.Packet
		at := 0
		for i, n := range pieces {
			sent = append(sent, packettest.Fragment(t, p, 0x77, packettest.Piece{Offset: at, Len: n, Last: i == len(pieces)-1}))
			at += n
		}
		largest := 0
		for _, f := range sent {
			largest = max(largest, f.Len())
		}
		r := packet.NewReassembler(1)
		var whole packet.Packet
		if len(pieces) == 1 {
			whole.CopyFrom(p)
		}
		for _, i := range rapid.Permutation(indices(len(sent))).Draw(rt, "order") {
			if len(pieces) == 1 {
				break // a whole packet
			}
			if res := add(t, r, sent[i], 0); res.Outcome == packet.FragmentCompletes {
				res.Datagram.Packet(&whole)
			}
		}
		if e := packet.Parse(&whole); e != packet.ParseOK {
			rt.Fatal(e)
		}
		limit := rapid.IntRange(header+8, 2600).Draw(rt, "limit")
		if rapid.Bool().Draw(rt, "near the largest") {
			limit = max(header+8, largest+rapid.IntRange(-9, 9).Draw(rt, "nearer"))
		}
		want := slowLengths(pieces, header, limit, v6)
		list := cut(t, &whole, limit)
		var got []int
		for i, f := range list {
			got = append(got, f.Len()-header)
			if more := moreToCome(f.Bytes()); more != (i < len(list)-1) {
				rt.Errorf("fragment %d of %d: more to come is %t", i, len(list), more)
			}
			if most := max(largest, map[bool]int{true: 1280}[v6]); len(pieces) > 1 && f.Len() > min(limit, most) {
				rt.Errorf("fragment %d has %d bytes, the largest piece %d, the link %d", i, f.Len(), largest, limit)
			}
		}
		if !slices.Equal(got, want) {
			rt.Fatalf("pieces of %v towards %d go on as %v, want %v", pieces, limit, got, want)
		}
		if slices.Equal(got, pieces) {
			kept++
		} else {
			cutAnew++
		}
		joined, err := packettest.Join(list)
		if err != nil {
			rt.Fatal(err)
		}
		head := header
		if v6 {
			head = 40
		}
		if !bytes.Equal(joined.Bytes()[head:], p.Bytes()[head:]) || joined.Len() != p.Len() {
			rt.Fatalf("%d bytes became others, %d of them", p.Len(), joined.Len())
		}
	})
	if kept == 0 || cutAnew == 0 {
		t.Errorf("%d times in the same pieces, %d times in others: both must come", kept, cutAnew)
	}
}

func indices(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

func moreToCome(b []byte) bool {
	if b[0]>>4 == 4 {
		return b[6]&0x20 != 0
	}
	return b[43]&1 != 0
}
