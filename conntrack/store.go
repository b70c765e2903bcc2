package conntrack

import "sync/atomic"

// pageSize is the number of entries allocated at once.
const pageSize = 64

// store holds the entries of one shard in pages that never move. Entries are
// named by handles, which count from 1. A page without entries is given back,
// but for one that waits for the next entry.
type store struct {
	pages []pageRef // without a page: given back
	// seen is pages, up to its capacity, for whoever looks without the lock: see Key.
	seen  atomic.Pointer[[]pageRef]
	gaps  []uint32 // indexes of pages that were given back
	roomy uint32   // first page, by index+1, of the list of those with room; 0: none
	empty int      // pages without entries
}

// pageRef holds a page. It is written under the shard's lock, and read by some
// without.
type pageRef = atomic.Pointer[page]

type page struct {
	conns      [pageSize]Conn
	free       uint32 // first handle of the free list; 0: none
	used       int
	prev, next uint32 // neighbours in the list of pages with room, by index+1
}

// conn returns the entry behind a handle.
func (s *store) conn(handle uint32) *Conn {
	return &s.pages[(handle-1)/pageSize].Load().conns[(handle-1)%pageSize]
}

// take returns a free entry, with only its handle set.
func (s *store) take() *Conn {
	if s.roomy == 0 {
		s.grow()
	}
	p := s.pages[s.roomy-1].Load()
	c := s.conn(p.free)
	p.free = c.next
	if p.used == 0 {
		s.empty--
	}
	if p.used++; p.used == pageSize {
		s.unlist(p)
	}
	return c
}

// grow adds a page.
func (s *store) grow() {
	var at uint32
	if n := len(s.gaps); n > 0 {
		at, s.gaps = s.gaps[n-1], s.gaps[:n-1]
	} else {
		at = uint32(len(s.pages))
		s.widen()
	}
	p := &page{free: at*pageSize + 1}
	for i := range p.conns {
		p.conns[i].self = p.free + uint32(i)
		p.conns[i].next = p.free + uint32(i) + 1
	}
	p.conns[pageSize-1].next = 0
	s.pages[at].Store(p)
	s.empty++
	s.list(p, at)
}

// widen adds a place for a page.
func (s *store) widen() {
	n := len(s.pages)
	if n == cap(s.pages) {
		wider := make([]pageRef, n, max(4, 2*n))
		for i := range s.pages {
			wider[i].Store(s.pages[i].Load())
		}
		all := wider[:cap(wider)]
		s.pages = wider
		s.seen.Store(&all)
	}
	s.pages = s.pages[:n+1]
}

// release takes back an entry that is in no index, wheel or line any more.
func (s *store) release(c *Conn) {
	at := (c.self - 1) / pageSize
	p := s.pages[at].Load()
	*c = Conn{self: c.self, next: p.free}
	p.free = c.self
	if p.used == pageSize {
		s.list(p, at)
	}
	if p.used--; p.used > 0 {
		return
	}
	if s.empty == 0 {
		s.empty = 1
		return
	}
	s.unlist(p)
	s.pages[at].Store(nil)
	s.gaps = append(s.gaps, at)
}

// list puts a page on the list of those with room, in front.
func (s *store) list(p *page, at uint32) {
	p.prev, p.next = 0, s.roomy
	if p.next != 0 {
		s.pages[p.next-1].Load().prev = at + 1
	}
	s.roomy = at + 1
}

func (s *store) unlist(p *page) {
	if p.next != 0 {
		s.pages[p.next-1].Load().prev = p.prev
	}
	if p.prev != 0 {
		s.pages[p.prev-1].Load().next = p.next
	} else {
		s.roomy = p.next
	}
}

// all yields the entries in the order of their handles. Any of them may be
// released meanwhile.
func (s *store) all(yield func(*Conn) bool) {
	for at := range s.pages {
		if !s.each(at, yield) {
			return
		}
	}
}

// each is all for one page. It reports whether yield asked for more.
func (s *store) each(at int, yield func(*Conn) bool) bool {
	p := s.pages[at].Load()
	if p == nil {
		return true
	}
	for i := range p.conns {
		if c := &p.conns[i]; c.Flags&used != 0 && !yield(c) {
			return false
		}
	}
	return true
}
