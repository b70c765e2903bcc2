package packet

import (
	"container/list"
	"encoding/binary"
	"sync"
	"time"
)

// Limits of reassembly, the kernel's net.ipv4.ipfrag_high_thresh and
// net.ipv6.ip6frag_high_thresh, ipfrag_time and ip6frag_time, where they have a
// counterpart there.
const (
	// ReassemblyMemory is how many bytes the pieces of one IP version may
	// take, their bookkeeping included.
	ReassemblyMemory = 4 << 20
	// ReassemblyTimeIPv4 and ReassemblyTimeIPv6 are how long the pieces of a
	// datagram wait for the rest, counted from the first that came.
	ReassemblyTimeIPv4 = 30 * time.Second
	ReassemblyTimeIPv6 = 60 * time.Second
	// ReassemblyPieces is how many pieces a datagram may have: enough for the
	// largest one over the smallest MTU of IPv4 (68 bytes).
	ReassemblyPieces = 2048

	reassemblyShards = 8
	reassemblyShare  = ReassemblyMemory / reassemblyShards
	// pieceCost and datagramCost are what bookkeeping takes, in bytes, rounded
	// up: many tiny pieces must not take more memory than they are charged.
	pieceCost    = 256
	datagramCost = 512
	maxDatagram  = 65535
)

// FragmentKey names the datagram that a fragment belongs to. IPv6 leaves the
// protocol out, since it may differ between pieces (RFC 8200 section 4.5).
type FragmentKey struct {
	Src, Dst Addr
	ID       uint32
	Proto    Proto
}

// FragmentOutcome is what became of a fragment that was added.
type FragmentOutcome uint8

// Outcomes of Reassembler.Add.
const (
	FragmentHeld      FragmentOutcome = iota // waits for the others
	FragmentCompletes                        // was the last one missing
	FragmentDuplicate                        // all of it was there already
	FragmentOverlaps                         // part of it was there: the datagram is given up (RFC 5722)
	FragmentBroken                           // empty, misaligned, too long, or against the end known
	FragmentCongested                        // mixes congestion marks in a way nobody may (RFC 3168 section 5.3)
)

// FragmentResult is what Add did.
type FragmentResult struct {
	Outcome FragmentOutcome
	// Lost is how many pieces of the same datagram were given up with this
	// one.
	Lost int
	// Evicted is how many pieces of other datagrams made room for this one.
	Evicted int
	// Datagram is the complete datagram.
	Datagram *Datagram
}

// A Reassembler puts fragments together again. It holds a bounded number of
// bytes; the datagram that waits longest makes room for a new one. It has no
// clock: its callers say what time it is. Its methods may be called from any
// goroutine.
type Reassembler struct {
	seed   uint64
	shards [2][reassemblyShards]reassemblyShard // IPv4, IPv6
}

// reassemblyShard is a part of the datagrams under one lock.
type reassemblyShard struct {
	mu        sync.Mutex
	datagrams map[FragmentKey]*list.Element // of *Datagram
	order     list.List                     // longest waiting first
	bytes     int
}

// NewReassembler returns an empty Reassembler; seed is of the hash that spreads
// datagrams over locks.
func NewReassembler(seed uint64) *Reassembler {
	r := &Reassembler{seed: seed}
	for v := range r.shards {
		for i := range r.shards[v] {
			r.shards[v][i].datagrams = map[FragmentKey]*list.Element{}
		}
	}
	return r
}

func (r *Reassembler) shard(k FragmentKey) *reassemblyShard {
	v := 1
	if k.Src.Is4() {
		v = 0
	}
	h := r.seed ^ uint64(k.ID)<<8 ^ uint64(k.Proto)
	for _, word := range [...]uint64{k.Src.hi, k.Src.lo, k.Dst.hi, k.Dst.lo} {
		h = (h ^ word) * 0x9e3779b97f4a7c15 // the golden ratio, as Fibonacci hashing has it
		h ^= h >> 32
	}
	return &r.shards[v][h%reassemblyShards]
}

// fragment is what the headers of a fragment say.
type fragment struct {
	key        FragmentKey
	piece      piece
	offset     int
	length     int
	more       bool
	df         bool
	congestion uint8
}

// readFragment reads a parsed packet whose Frag is not Whole.
func readFragment(p *Packet) (f fragment, ok bool) {
	b := p.Buf[p.L3:p.End]
	f.key = FragmentKey{Src: p.Flow.Src, Dst: p.Flow.Dst}
	f.piece = piece{link: p.Link, tagged: p.Tagged, vlan: p.VLAN, vlanType: p.VLANType, eth: p.EtherType}
	if p.EtherType == EtherIPv4 {
		field := binary.BigEndian.Uint16(b[6:])
		f.piece.header = p.L4 - p.L3
		f.key.ID, f.key.Proto = uint32(binary.BigEndian.Uint16(b[4:])), p.Flow.Proto
		f.offset, f.more = int(field&ipv4OffsetMask)*fragmentUnit, field&ipv4MoreFragments != 0
		f.df, f.congestion = field&ipv4DontFragment != 0, b[1]&3
	} else {
		next, field, at := b[6], 6, IPv6HeaderLen
		for range maxExtensions {
			if next == extFragment || len(b) < at+8 {
				break
			}
			size := (int(b[at+1]) + 1) * 8
			if next == extAuth {
				size = (int(b[at+1]) + 2) * 4
			}
			field, next, at = at, b[at], at+size
		}
		if next != extFragment || len(b) < at+fragmentHeaderLen {
			return f, false
		}
		bits := binary.BigEndian.Uint16(b[at+2:])
		f.key.ID = binary.BigEndian.Uint32(b[at+4:])
		f.piece.header, f.piece.skip, f.piece.nextAt = at, fragmentHeaderLen, field
		f.offset, f.more = int(bits&^7), bits&1 != 0
		f.congestion = b[1] >> 4 & 3
	}
	f.length = len(b) - f.piece.header - f.piece.skip
	if f.more && p.EtherType == EtherIPv6 && f.length%fragmentUnit != 0 {
		return f, false // RFC 8200 section 4.5
	}
	if f.more {
		// An IPv4 fragment loses what does not fit the unit of offsets.
		f.length = f.length / fragmentUnit * fragmentUnit
	}
	return f, f.length > 0 && f.piece.header+f.offset+f.length <= maxDatagram
}

// Add takes a fragment: a parsed packet whose Frag is not Whole. It copies what
// it keeps, with the checksum finished if the sender left that to its device.
func (r *Reassembler) Add(p *Packet, now time.Duration) FragmentResult {
	f, ok := readFragment(p)
	if !ok || !FinishChecksum(p) {
		return FragmentResult{Outcome: FragmentBroken}
	}
	f.piece.raw = p.Buf[p.L3 : p.L3+f.piece.header+f.piece.skip+f.length]
	s := r.shard(f.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.datagrams[f.key]
	if e == nil {
		e = s.order.PushBack(&Datagram{key: f.key, began: now, bytes: datagramCost})
		s.datagrams[f.key] = e
		s.bytes += datagramCost
	}
	d := e.Value.(*Datagram)
	var res FragmentResult
	if res.Outcome = d.add(&f); res.Outcome == FragmentHeld {
		cost := cap(f.piece.raw) + pieceCost // of the copy, as the allocator rounds it
		d.bytes += cost
		s.bytes += cost
		if d.ended && d.have == d.end {
			res.Outcome, res.Datagram = FragmentCompletes, d
			if !congestionAllowed(d.marks) {
				res.Outcome, res.Datagram = FragmentCongested, nil
			}
		}
	}
	switch res.Outcome {
	case FragmentCompletes:
		s.remove(e)
	case FragmentOverlaps, FragmentBroken:
		res.Lost = d.count
		s.remove(e)
	case FragmentCongested:
		res.Lost = d.count - 1
		s.remove(e)
	case FragmentHeld:
		if res.Evicted = s.evict(e); s.bytes > reassemblyShare {
			// Its own pieces, or their headers, take more than there is.
			res.Outcome, res.Lost = FragmentBroken, d.count-1
			s.remove(e)
		}
	}
	return res
}

// remove takes a datagram out. s.mu is held.
func (s *reassemblyShard) remove(e *list.Element) {
	d := e.Value.(*Datagram)
	s.bytes -= d.bytes
	delete(s.datagrams, d.key)
	s.order.Remove(e)
}

// evict makes room by giving the longest waiting datagrams up, keep the last. It
// returns how many pieces that were. s.mu is held.
func (s *reassemblyShard) evict(keep *list.Element) int {
	n := 0
	for s.bytes > reassemblyShare {
		e := s.order.Front()
		if e == keep {
			if e = e.Next(); e == nil {
				break
			}
		}
		n += e.Value.(*Datagram).count
		s.remove(e)
	}
	return n
}

// Expire gives up the datagrams whose time is over and hands each to gone.
func (r *Reassembler) Expire(now time.Duration, gone func(*Datagram)) {
	for v, hold := range [2]time.Duration{ReassemblyTimeIPv4, ReassemblyTimeIPv6} {
		for i := range r.shards[v] {
			s := &r.shards[v][i]
			var over []*Datagram
			s.mu.Lock()
			for e := s.order.Front(); e != nil && now-e.Value.(*Datagram).began >= hold; e = s.order.Front() {
				over = append(over, e.Value.(*Datagram))
				s.remove(e)
			}
			s.mu.Unlock()
			for _, d := range over {
				gone(d)
			}
		}
	}
}

// Held returns how many datagrams and bytes, bookkeeping included, wait.
func (r *Reassembler) Held() (datagrams, bytes int) {
	for v := range r.shards {
		for i := range r.shards[v] {
			s := &r.shards[v][i]
			s.mu.Lock()
			datagrams += len(s.datagrams)
			bytes += s.bytes
			s.mu.Unlock()
		}
	}
	return datagrams, bytes
}
