package packet_test

import (
	"bytes"
	"runtime"
	"testing"

	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// TestFloodOfFragments: the bound holds whatever comes, for the memory that
// the process has, too, and new datagrams still come through.
func TestFloodOfFragments(t *testing.T) {
	p, p6 := datagram(t, false, 60000), datagram(t, true, 60000)
	for name, piece := range map[string]func(i int) (uint32, packettest.Piece){
		"lone second fragments": func(i int) (uint32, packettest.Piece) { return uint32(i), packettest.Piece{Offset: 1480, Len: 1480} },
		"tiny ones":             func(i int) (uint32, packettest.Piece) { return uint32(i), packettest.Piece{Offset: 8, Len: 8} },
		"large ones":            func(i int) (uint32, packettest.Piece) { return uint32(i), packettest.Piece{Offset: 8, Len: 59000} },
		"every other 8 bytes of few": func(i int) (uint32, packettest.Piece) {
			return uint32(i % 16), packettest.Piece{Offset: 16 * (i / 16 % 3000), Len: 8}
		},
		"backwards": func(i int) (uint32, packettest.Piece) {
			return uint32(i % 16), packettest.Piece{Offset: 16 * (3000 - i/16%3000), Len: 8}
		},
		"first fragments of few, random": func(i int) (uint32, packettest.Piece) {
			return uint32(i * 7919 % 5000), packettest.Piece{Offset: 8 * (i % 100), Len: 8}
		},
		"last fragments with large gaps": func(i int) (uint32, packettest.Piece) {
			return uint32(i), packettest.Piece{Offset: 59992, Len: 8, Last: true}
		},
		"two halves of different lengths": func(i int) (uint32, packettest.Piece) {
			return uint32(i / 2), packettest.Piece{Offset: 8 + i%2*1480, Len: 8 + i%2*1000}
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := memory()
			r := packet.NewReassembler(1)
			in, gone := 0, 0
			for i := range 60_000 {
				q := p
				if i%2 == 0 {
					q = p6
				}
				id, at := piece(i / 2)
				res := add(t, r, packettest.Fragment(t, q, id, at), 0)
				in++
				gone += res.Lost + res.Evicted
				if res.Outcome != packet.FragmentHeld {
					gone++
				}
				if _, bytes := r.Held(); i%1000 == 0 && bytes > 2*packet.ReassemblyMemory {
					t.Fatalf("after %d: %d bytes are held, at most %d", i, bytes, 2*packet.ReassemblyMemory)
				}
			}
			if grown := memory() - before; grown > 2*packet.ReassemblyMemory {
				t.Errorf("the process grew by %d bytes, at most %d", grown, 2*packet.ReassemblyMemory)
			}
			left := 0
			good := datagram(t, false, 4008)
			for i, f := range packettest.Fragments(t, good, 77777, 1480) {
				res := add(t, r, f, 0)
				gone += res.Evicted
				if (i == 2) != (res.Outcome == packet.FragmentCompletes) {
					t.Errorf("piece %d of a good datagram: outcome %d", i, res.Outcome)
				}
			}
			r.Expire(packet.ReassemblyTimeIPv6, func(d *packet.Datagram) { left += d.Count() })
			if left+gone != in {
				t.Errorf("%d fragments came, %d went by name and %d waited", in, gone, left)
			}
			runtime.KeepAlive(r)
		})
	}
}

func memory() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// TestTooManyPieces: a datagram has at most 2,048, and their headers must fit the
// memory as well.
func TestTooManyPieces(t *testing.T) {
	p := datagram(t, false, 60000)
	r := packet.NewReassembler(1)
	for i := 0; ; i++ {
		res := add(t, r, packettest.Fragment(t, p, 1, packettest.Piece{Offset: 16 * i, Len: 8}), 0)
		if res.Outcome == packet.FragmentHeld {
			continue
		}
		if res.Outcome != packet.FragmentBroken || res.Lost != i || i > packet.ReassemblyPieces || i < 1366 {
			t.Errorf("piece %d: outcome %d, %d lost with it", i, res.Outcome, res.Lost)
		}
		break
	}
	if held, bytes := r.Held(); held != 0 || bytes != 0 {
		t.Errorf("%d datagrams and %d bytes are left", held, bytes)
	}
	// The largest datagram over the smallest MTU, 68 bytes, passes.
	pieces := packettest.Fragments(t, datagram(t, false, 65512), 2, 48)
	for i, f := range pieces {
		if res := add(t, r, f, 0); (res.Outcome == packet.FragmentCompletes) != (i == len(pieces)-1) {
			t.Fatalf("piece %d of %d: outcome %d", i, len(pieces), res.Outcome)
		}
	}
}

// TestFragmentsThatMakeNoSense are refused alone, or with what came before.
func TestFragmentsThatMakeNoSense(t *testing.T) {
	p, p6 := datagram(t, false, 4008), datagram(t, true, 4008)
	type step struct {
		at   packettest.Piece
		want packet.FragmentOutcome
		lost int
	}
	held := packet.FragmentHeld
	for name, steps := range map[string][]step{
		"beyond the end":              {{packettest.Piece{Offset: 80, Len: 20, Last: true}, held, 0}, {packettest.Piece{Offset: 104, Len: 8}, packet.FragmentBroken, 1}},
		"another end":                 {{packettest.Piece{Offset: 80, Len: 20, Last: true}, held, 0}, {packettest.Piece{Offset: 80, Len: 16, Last: true}, packet.FragmentBroken, 1}},
		"an end before what is there": {{packettest.Piece{Offset: 80, Len: 16}, held, 0}, {packettest.Piece{Offset: 0, Len: 16, Last: true}, packet.FragmentBroken, 1}},
		"half of a piece again":       {{packettest.Piece{Offset: 80, Len: 16}, held, 0}, {packettest.Piece{Offset: 88, Len: 8}, packet.FragmentDuplicate, 0}},
		"across two pieces": {{packettest.Piece{Offset: 0, Len: 16}, held, 0}, {packettest.Piece{Offset: 32, Len: 16}, held, 0},
			{packettest.Piece{Offset: 8, Len: 32}, packet.FragmentOverlaps, 2}},
		"around a piece":       {{packettest.Piece{Offset: 8, Len: 8}, held, 0}, {packettest.Piece{Offset: 0, Len: 24}, packet.FragmentOverlaps, 1}},
		"the end of the first": {{packettest.Piece{Offset: 0, Len: 24}, held, 0}, {packettest.Piece{Offset: 16, Len: 24}, packet.FragmentOverlaps, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, q := range []*packet.Packet{p, p6} {
				r := packet.NewReassembler(1)
				for i, s := range steps {
					if res := add(t, r, packettest.Fragment(t, q, 9, s.at), 0); res.Outcome != s.want || res.Lost != s.lost {
						t.Errorf("%v, fragment %d: outcome %d with %d lost, want %d with %d", q.EtherType, i, res.Outcome, res.Lost, s.want, s.lost)
					}
				}
			}
		})
	}
	empty := packettest.Fragment(t, p, 9, packettest.Piece{Offset: 8})
	if res := add(t, packet.NewReassembler(1), empty, 0); res.Outcome != packet.FragmentBroken {
		t.Errorf("an empty fragment: outcome %d", res.Outcome)
	}
	tooFar := packettest.Fragment(t, p, 9, packettest.Piece{Offset: 0, Len: 1480, Last: true})
	b := tooFar.Bytes()
	b[6], b[7] = 0x1f, 0xff // 65,528 + 1,480: the "ping of death"
	packet.PutIPv4Checksum(b[:20])
	if res := add(t, packet.NewReassembler(1), tooFar, 0); res.Outcome != packet.FragmentBroken {
		t.Errorf("a datagram of more than 65,535 bytes: outcome %d", res.Outcome)
	}
	odd := packettest.Fragment(t, p6, 9, packettest.Piece{Offset: 8, Len: 12})
	if res := add(t, packet.NewReassembler(1), odd, 0); res.Outcome != packet.FragmentBroken {
		t.Errorf("12 bytes with more to come over IPv6: outcome %d", res.Outcome)
	}
}

// FuzzReassembly: raw bytes as fragments, in any number. Nothing panics, the
// memory stays within its bound, and each fragment is accounted for.
func FuzzReassembly(f *testing.F) {
	for _, v6 := range []bool{false, true} {
		var seed []byte
		for _, p := range packettest.Fragments(f, datagram(f, v6, 400), 7, 160) {
			seed = append(append(seed, byte(p.Len())), p.Bytes()...)
		}
		f.Add(seed, v6)
		f.Add(append(bytes.Clone(seed[:250]), seed...), v6)
	}
	f.Fuzz(func(t *testing.T, b []byte, v6 bool) {
		kind := packet.EtherIPv4
		if v6 {
			kind = packet.EtherIPv6
		}
		r := packet.NewReassembler(1)
		in, gone := 0, 0
		for len(b) > 1 {
			n := min(int(b[0]), len(b)-1)
			p := packettest.Packet(b[1:1+n], kind)
			b = b[1+n:]
			if v4 := p.Bytes(); !v6 && n >= 20 && int(v4[0]&15)*4 <= n && v4[0]&15 >= 5 {
				packet.PutIPv4Checksum(v4[:int(v4[0]&15)*4])
			}
			if packet.Parse(p) != packet.ParseOK || p.Frag == packet.Whole {
				continue
			}
			in++
			res := r.Add(p, 0)
			gone += res.Lost + res.Evicted
			switch res.Outcome {
			case packet.FragmentHeld:
			case packet.FragmentCompletes:
				gone += res.Datagram.Count()
				var q packet.Packet
				res.Datagram.Packet(&q)
				if e := packet.Parse(&q); e == packet.ParseOK && q.Len() != q.End-q.L3 {
					t.Fatal("the length is not that of the bytes")
				}
			default:
				gone++
			}
		}
		r.Expire(packet.ReassemblyTimeIPv6, func(d *packet.Datagram) {
			var first packet.Packet
			d.First(&first)
			gone += d.Count()
		})
		if held, bytes := r.Held(); held != 0 || bytes != 0 || in != gone {
			t.Fatalf("%d datagrams and %d bytes are left; %d fragments came, %d went", held, bytes, in, gone)
		}
	})
}
