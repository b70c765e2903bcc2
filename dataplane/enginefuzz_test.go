package dataplane_test

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

// FuzzEngine plays scripts to a director: frames, built and random, broken and
// whole, between commands of an operator and steps of time. Whatever comes,
//
//   - nothing panics,
//   - each packet has one verdict, at the latest when its neighbour was asked
//     for in vain,
//   - ActiveConn, InActConn and the number of templates of each real server, those
//     that were removed included, are those of the table's entries,
//   - the tables and caches stay within their limits,
//   - what leaves is within its buffer and for a link that there is; and where
//     nothing broken came in, all checksums that leave are right,
//   - in the end, when time has passed, nothing is left.
func FuzzEngine(f *testing.F) {
	for _, s := range engineSeeds() {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 4096 {
			return
		}
		playScript(t, text)
	})
}

// script is a fuzzer's bytes, read as numbers; it ends in zeros.
type script struct{ rest []byte }

func (s *script) done() bool { return len(s.rest) == 0 }

func (s *script) byte() byte {
	if s.done() {
		return 0
	}
	b := s.rest[0]
	s.rest = s.rest[1:]
	return b
}

func (s *script) word() uint16 { return uint16(s.byte())<<8 | uint16(s.byte()) }

func (s *script) bytes(n int) []byte {
	n = min(n, len(s.rest))
	b := s.rest[:n]
	s.rest = s.rest[n:]
	return b
}

// below returns a number from 0 to n-1.
func (s *script) below(n int) int { return int(s.byte()) % n }

// player takes a script through an arena.
type player struct {
	*arena
	t       testing.TB
	s       *script
	in      uint64           // packets that came in
	broken  bool             // a packet with wrong bytes came in
	left    []*packet.Packet // some of what left, to be answered
	entries int              // in the table after the last step
}

func playScript(t testing.TB, text []byte) {
	s := &script{text}
	p := &player{arena: newArena(t, int(s.byte())), t: t, s: s}
	for !s.done() {
		p.step()
		p.check()
		if t.Failed() {
			return
		}
	}
	// Neighbours are asked for three times, fragments wait for less.
	for range 80 {
		p.pass(time.Second)
	}
	if n := p.counted(); n != p.in {
		t.Errorf("%d packets came in, %d have a verdict", p.in, n)
	}
	// No timeout of an arena is longer.
	p.pass(3 * time.Hour)
	p.pass(3 * time.Hour)
	p.pass(3 * time.Hour)
	p.check()
	if c, m := p.d.Table().Connections, p.d.Table().Templates; c != 0 || m != 0 {
		t.Errorf("%d connections and %d templates are left", c, m)
	}
	if n := p.d.HelperEntries(); n != 0 {
		t.Errorf("the FTP helper keeps %d records", n)
	}
}

// step does what the script's next bytes say.
func (p *player) step() {
	switch op := p.s.byte(); op % 16 {
	case 0:
		p.random()
	case 1, 2, 3, 4, 5, 6:
		p.process(p.built())
	case 7, 8, 9:
		p.answer()
	case 10:
		p.complain()
	case 11, 12:
		p.command()
	case 13:
		p.pass(time.Duration(p.s.word()) * 4 * time.Millisecond)
	case 14:
		p.pass(time.Duration(p.s.byte()) * 30 * time.Second)
	case 15:
		p.neighbour()
	}
}

// process takes packets in as one batch.
func (p *player) process(batch ...*packet.Packet) {
	p.in += uint64(len(batch))
	out := p.workers[p.in%2].Process(batch, p.now)
	p.look(out)
	if len(out) > 0 && p.in%7 == 0 {
		p.workers[p.in%2].Unsent(out[0])
	}
}

// pass lets time pass.
func (p *player) pass(d time.Duration) {
	p.now += d
	p.look(p.workers[0].Tick(p.now))
}

// look judges what left, and keeps some of it.
func (p *player) look(out []*packet.Packet) {
	for _, o := range out {
		if o.Start < 0 || o.Start > o.End || o.End > len(o.Buf) {
			p.t.Fatalf("a packet from %d to %d in %d bytes left", o.Start, o.End, len(o.Buf))
		}
		if o.Link < 0 || o.Link >= arenaLinks {
			p.t.Fatalf("a packet left by link %d", o.Link)
		}
		if !p.broken {
			p.verify(o)
		}
		if o.EtherType != packet.EtherARP && o.Len() > 0 {
			c := new(packet.Packet)
			c.CopyFrom(o)
			p.left = append(p.left, c)
		}
	}
	if n := len(p.left); n > 16 {
		p.left = append(p.left[:0], p.left[n-16:]...)
	}
}

// verify checks a packet as it would be on the wire.
func (p *player) verify(o *packet.Packet) {
	if o.EtherType == packet.EtherARP {
		return
	}
	c := new(packet.Packet)
	c.CopyFrom(o)
	whole := func(b []byte) {
		if pieceOfMore(b) {
			return // its checksum covers the whole
		}
		if err := packettest.Verify(b); err != nil {
			p.t.Fatalf("%v left: %v\n%x", o.Flow, err, b)
		}
	}
	if c.GSO != packet.GSONone {
		var seg packet.Segmenter
		if err := seg.Reset(c); err != nil {
			p.t.Fatalf("%v left and cannot be cut: %v", o.Flow, err)
		}
		var room [packet.MaxSegmentHeader]byte
		for {
			h, b := seg.Next(room[:])
			if len(h)+len(b) == 0 {
				return
			}
			whole(append(bytes.Clone(h), b...))
		}
	}
	if c.CsumPartial {
		packet.FinishChecksum(c)
	}
	whole(c.Bytes())
}

// pieceOfMore reports whether a packet is a fragment.
func pieceOfMore(b []byte) bool {
	if b[0]>>4 == 6 {
		return b[6] == 44
	}
	return binary.BigEndian.Uint16(b[6:])&0x3fff != 0
}

// counted returns how many packets have a verdict.
func (p *player) counted() (n uint64) {
	for _, v := range p.d.Verdicts() {
		if int64(v.Count) < 0 {
			p.t.Fatalf("verdict %v was counted %d times", v.Name, int64(v.Count))
		}
		n += v.Count
	}
	return n
}

// check holds the director against its promises.
func (p *player) check() {
	if n, w := p.counted(), p.d.Waiting(); n+uint64(w) > p.in {
		p.t.Errorf("%d packets came in, %d have a verdict and %d wait", p.in, n, w)
	}
	if err := p.d.CheckCounts(); err != nil {
		p.t.Error(err)
	}
	s := p.d.Table()
	if n := s.Connections + s.Templates; s.Connections > max(s.Max, p.entries) || s.Templates > max(s.Max, p.entries) {
		p.t.Errorf("%d connections and %d templates, %d are allowed", s.Connections, s.Templates, s.Max)
	} else {
		p.entries = n
	}
	if err := p.d.CheckLimits(); err != nil {
		p.t.Error(err)
	}
}

// random takes in bytes that nobody has looked at.
func (p *player) random() {
	kinds := []packet.EtherType{packet.EtherIPv4, packet.EtherIPv6, packet.EtherARP, 0x1234}
	how := p.s.byte()
	raw := p.s.bytes(int(p.s.byte()))
	if how&4 != 0 {
		raw = bytes.Clone(raw)
		repair(raw)
	}
	q := packettest.Packet(raw, kinds[how%4])
	q.Link, q.Class = int(how>>3)%arenaLinks, packet.Class(how>>5)%5
	q.Truncated = how == 0xff
	p.broken = true
	p.process(q)
}

// spoil changes a byte of a packet, or cuts it.
func (p *player) spoil(q *packet.Packet) {
	if q.Len() == 0 {
		return
	}
	at := q.Start + int(p.s.byte())%q.Len()
	switch how := p.s.byte(); how % 4 {
	case 0:
		q.End = at
	case 1:
		q.Buf[at] ^= 1 << (how >> 5)
	default:
		q.Buf[at] = p.s.byte()
	}
	if p.s.byte()%2 == 0 {
		repair(q.Bytes())
	}
	p.broken = true
}
