package packet_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// datagram is a UDP packet with n bytes behind its IP header.
func datagram(tb testing.TB, v6 bool, n int) *packet.Packet {
	tb.Helper()
	s := packettest.Spec{Src: "198.51.100.7:5000", Dst: "203.0.113.80:53", UDP: true, NoDF: true, Payload: randomBytes(7, n-8)}
	if v6 {
		s.Src, s.Dst = "[2001:db8:1::7]:5000", "[2001:db8::80]:53"
	}
	return packettest.Build(tb, s)
}

func add(tb testing.TB, r *packet.Reassembler, p *packet.Packet, now time.Duration) packet.FragmentResult {
	tb.Helper()
	if e := packet.Parse(p); e != packet.ParseOK {
		tb.Fatal(e)
	}
	return r.Add(p, now)
}

func versions(t *testing.T, f func(t *testing.T, v6 bool)) {
	t.Helper()
	for _, v6 := range []bool{false, true} {
		t.Run(map[bool]string{false: "IPv4", true: "IPv6"}[v6], func(t *testing.T) { f(t, v6) })
	}
}

// slowDatagram is reassembly as one would write it without hurry: each piece is
// held against each run of pieces that came one behind the other.
type slowDatagram struct {
	runs  [][2]int
	bytes map[int]byte
	end   int // -1: not known
}

func (s *slowDatagram) add(at packettest.Piece, payload []byte) packet.FragmentOutcome {
	from, to := at.Offset, at.Offset+at.Len
	highest := 0
	for _, r := range s.runs {
		highest = max(highest, r[1])
	}
	switch {
	case s.end >= 0 && (to > s.end || at.Last && to != s.end), at.Last && highest > to:
		return packet.FragmentBroken
	}
	for _, r := range s.runs {
		if from >= r[0] && to <= r[1] {
			return packet.FragmentDuplicate
		}
	}
	for i := from; i < to; i++ {
		if _, there := s.bytes[i]; there {
			return packet.FragmentOverlaps
		}
	}
	behind := false
	for i := range s.runs {
		if s.runs[i][1] == highest && from == highest {
			s.runs[i][1], behind = to, true
		}
	}
	if !behind {
		s.runs = append(s.runs, [2]int{from, to})
	}
	for i := from; i < to; i++ {
		s.bytes[i] = payload[i]
	}
	if at.Last {
		s.end = to
	}
	if s.end == len(s.bytes) {
		return packet.FragmentCompletes
	}
	return packet.FragmentHeld
}

// TestReassemblyAsTheSlowModel sends pieces of several datagrams in a random
// order, some twice, some that overlap, some against the end: each outcome and
// each datagram is the model's.
func TestReassemblyAsTheSlowModel(t *testing.T) {
	outcomes := map[packet.FragmentOutcome]int{}
	rapid.Check(t, func(rt *rapid.T) {
		v6 := rapid.Bool().Draw(rt, "IPv6")
		n := rapid.IntRange(16, 400).Draw(rt, "bytes")
		p := datagram(t, v6, n)
		payload := p.Bytes()[p.Len()-n:]
		r, model := packet.NewReassembler(rapid.Uint64().Draw(rt, "seed")), map[uint32]*slowDatagram{}
		good := packettest.Pieces(n, 8*rapid.IntRange(1, 6).Draw(rt, "size"))
		for i := range rapid.IntRange(1, 120).Draw(rt, "fragments") {
			id := uint32(rapid.IntRange(1, 3).Draw(rt, "id"))
			piece := good[rapid.IntRange(0, len(good)-1).Draw(rt, "piece")]
			if rapid.IntRange(0, 24).Draw(rt, "hostile") == 0 {
				piece.Offset = 8 * rapid.IntRange(0, (n-8)/8).Draw(rt, "offset")
				piece.Len = 8 * rapid.IntRange(1, (n-piece.Offset)/8).Draw(rt, "length")
				piece.Last = rapid.Bool().Draw(rt, "last")
			}
			m := model[id]
			if m == nil {
				m = &slowDatagram{bytes: map[int]byte{}, end: -1}
				model[id] = m
			}
			want := m.add(piece, payload)
			res := add(t, r, packettest.Fragment(t, p, id, piece), 0)
			if res.Outcome != want {
				rt.Fatalf("fragment %d of datagram %d, %+v: outcome %d, want %d", i, id, piece, res.Outcome, want)
			}
			outcomes[want]++
			if want != packet.FragmentHeld && want != packet.FragmentDuplicate {
				delete(model, id)
			}
			if want == packet.FragmentCompletes {
				var got packet.Packet
				res.Datagram.Packet(&got)
				b := got.Bytes()[got.Len()-m.end:]
				for at, want := range m.bytes {
					if b[at] != want {
						rt.Fatalf("byte %d of datagram %d is %#x, want %#x", at, id, b[at], want)
					}
				}
			}
			if held, _ := r.Held(); held != len(model) {
				rt.Fatalf("%d datagrams are held, want %d", held, len(model))
			}
		}
		if r.Expire(packet.ReassemblyTimeIPv6, func(*packet.Datagram) {}); len(model) > 0 {
			if held, bytes := r.Held(); held != 0 || bytes != 0 {
				rt.Fatalf("%d datagrams and %d bytes are held after their time", held, bytes)
			}
		}
	})
	for _, o := range []packet.FragmentOutcome{packet.FragmentCompletes, packet.FragmentDuplicate, packet.FragmentOverlaps, packet.FragmentBroken} {
		if outcomes[o] == 0 {
			t.Errorf("outcome %d never came", o)
		}
	}
}

// TestAReassembledDatagramIsTheOneThatWasCut: whatever the order.
func TestAReassembledDatagramIsTheOneThatWasCut(t *testing.T) {
	versions(t, func(t *testing.T, v6 bool) {
		p := datagram(t, v6, 4008)
		for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
			r := packet.NewReassembler(1)
			pieces := packettest.Fragments(t, p, 0x1234, 1448)
			for i, at := range order {
				res := add(t, r, pieces[at], 0)
				if i < 2 {
					if res.Outcome != packet.FragmentHeld {
						t.Fatalf("order %v: outcome %d of piece %d", order, res.Outcome, at)
					}
					continue
				}
				var got packet.Packet
				if res.Outcome != packet.FragmentCompletes {
					t.Fatalf("order %v: outcome %d of the last piece", order, res.Outcome)
				}
				res.Datagram.Packet(&got)
				if err := packettest.Verify(got.Bytes()); err != nil {
					t.Errorf("order %v: %v", order, err)
				}
				if n := 4008; !bytes.Equal(got.Bytes()[got.Len()-n:], p.Bytes()[p.Len()-n:]) {
					t.Errorf("order %v: another payload", order)
				}
			}
			if held, bytes := r.Held(); held != 0 || bytes != 0 {
				t.Errorf("order %v: %d datagrams and %d bytes are left", order, held, bytes)
			}
		}
	})
}

// TestFragmentsOfDifferentPackets do not mix.
func TestFragmentsOfDifferentPackets(t *testing.T) {
	first, last := packettest.Piece{Offset: 0, Len: 1480}, packettest.Piece{Offset: 1480, Len: 2528, Last: true}
	p := datagram(t, false, 4008)
	for name, change := range map[string]func(b []byte){
		"another identification": func(b []byte) { b[5]++ },
		"another sender":         func(b []byte) { b[15]++ },
		"another receiver":       func(b []byte) { b[19]++ },
		"another protocol":       func(b []byte) { b[9] = 6 },
	} {
		r := packet.NewReassembler(1)
		add(t, r, packettest.Fragment(t, p, 5, first), 0)
		other := packettest.Fragment(t, p, 5, last)
		change(other.Bytes())
		packet.PutIPv4Checksum(other.Bytes()[:20])
		if res := add(t, r, other, 0); res.Outcome != packet.FragmentHeld {
			t.Errorf("%s: outcome %d", name, res.Outcome)
		}
	}
}

// TestFragmentsWaitTheirTime to the nanosecond, and no longer when more come.
func TestFragmentsWaitTheirTime(t *testing.T) {
	versions(t, func(t *testing.T, v6 bool) {
		hold := packet.ReassemblyTimeIPv4
		if v6 {
			hold = packet.ReassemblyTimeIPv6
		}
		r := packet.NewReassembler(1)
		pieces := packettest.Fragments(t, datagram(t, v6, 4008), 7, 1448)
		add(t, r, pieces[1], time.Second)
		add(t, r, pieces[0], 20*time.Second)
		gone := 0
		r.Expire(hold+time.Second-1, func(*packet.Datagram) { gone++ })
		if gone != 0 {
			t.Error("given up too early")
		}
		r.Expire(hold+time.Second, func(d *packet.Datagram) {
			var first packet.Packet
			if gone++; d.Count() != 2 || !d.First(&first) || first.Flow.DstPort != 53 {
				t.Errorf("%d pieces, the first to port %d", d.Count(), first.Flow.DstPort)
			}
		})
		if gone != 1 {
			t.Errorf("%d datagrams given up, want 1", gone)
		}
	})
}

// TestCongestionMarksOfFragments (RFC 3168 section 5.3).
func TestCongestionMarksOfFragments(t *testing.T) {
	const notECT, ect1, ect0, ce = 0, 1, 2, 3
	for _, tt := range []struct {
		marks [2]byte
		want  int // mark of the whole; -1: given up
	}{
		{[2]byte{notECT, notECT}, notECT}, {[2]byte{ect0, ect0}, ect0}, {[2]byte{ect0, ce}, ce}, {[2]byte{ce, ect1}, ce},
		{[2]byte{notECT, ce}, -1}, {[2]byte{ect0, notECT}, -1},
	} {
		t.Run(fmt.Sprint(tt.marks), func(t *testing.T) {
			versions(t, func(t *testing.T, v6 bool) {
				r := packet.NewReassembler(1)
				var res packet.FragmentResult
				for i, f := range packettest.Fragments(t, datagram(t, v6, 2408), 7, 1448) {
					if b := f.Bytes(); v6 {
						b[1] |= tt.marks[i] << 4
					} else {
						b[1] |= tt.marks[i]
						packet.PutIPv4Checksum(b[:20])
					}
					res = add(t, r, f, 0)
				}
				got := -1
				if res.Outcome == packet.FragmentCompletes {
					var p packet.Packet
					res.Datagram.Packet(&p)
					if got = int(p.Bytes()[1] & 3); v6 {
						got = int(p.Bytes()[1] >> 4 & 3)
					}
				}
				if got != tt.want {
					t.Errorf("mark %d (outcome %d), want %d", got, res.Outcome, tt.want)
				}
			})
		})
	}
}

func BenchmarkReassembly(b *testing.B) {
	pieces := packettest.Fragments(b, datagram(b, false, 4008), 7, 1480)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(pieces), func(i, j int) { pieces[i], pieces[j] = pieces[j], pieces[i] })
	r := packet.NewReassembler(1)
	b.ReportAllocs()
	for b.Loop() {
		for _, p := range pieces {
			packet.Parse(p)
			r.Add(p, 0)
		}
	}
}
