package conntrack

// How the whole table is gone through: page by page, so that a shard is locked for
// no more than pageSize entries at a time, however many it has. Entries never move
// while they live: each that lives all the while is met exactly once.

// All yields a copy of every entry, shard by shard. No lock is held meanwhile.
func (t *Table) All(yield func(Conn) bool) { t.Select(nil)(yield) }

// Select yields a copy of every entry for which wanted, nil for all, returns true;
// it is called under the entry's shard's lock. None is held while yield runs.
func (t *Table) Select(wanted func(*Conn) bool) func(yield func(Conn) bool) {
	return func(yield func(Conn) bool) {
		copies := make([]Conn, 0, pageSize)
		for i := range t.shards {
			s := &t.shards[i]
			for at, more := 0, true; more; at++ {
				copies = copies[:0]
				more = s.withPage(at, func(c *Conn) {
					if wanted == nil || wanted(c) {
						copies = append(copies, *c)
					}
				})
				for j := range copies {
					if !yield(copies[j]) {
						return
					}
				}
			}
		}
	}
}

// withPage locks the shard and calls do with each entry of one page, which may end
// it. It reports whether there is a page after it.
func (s *shard) withPage(at int, do func(*Conn)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at < len(s.store.pages) {
		s.store.each(at, func(c *Conn) bool { do(c); return true })
	}
	return at+1 < len(s.store.pages)
}

// RemoveIf ends every entry for which unwanted returns true, but templates that
// connections hold; it is called under the entry's shard's lock.
func (t *Table) RemoveIf(unwanted func(*Conn) bool) {
	t.eachLocked(func(s *shard, c *Conn) {
		if c.holders() == 0 && unwanted(c) {
			t.end(s, c)
		}
	})
}

// Dismiss is RemoveIf also for templates that connections hold: those go out of
// use, as by Rename. It returns how many entries there were.
func (t *Table) Dismiss(unwanted func(*Conn) bool) (n int) {
	t.eachLocked(func(s *shard, c *Conn) {
		if c.Dismissed() || !unwanted(c) {
			return
		}
		n++
		if c.holders() == 0 {
			t.end(s, c)
			return
		}
		Slot{t, s, t.base(c.Proto, c.Client, c.ClientPort)}.Rename(c)
	})
	return n
}

func (t *Table) eachLocked(do func(*shard, *Conn)) {
	for i := range t.shards {
		s := &t.shards[i]
		for at, more := 0, true; more; at++ {
			more = s.withPage(at, func(c *Conn) { do(s, c) })
		}
	}
}

// unused is the port of templates that are out of use.
const unused = 0xffff

// Dismissed reports whether the entry is a template that is out of use and only
// waits for its connections to end.
func (c *Conn) Dismissed() bool {
	return c.Flags&Template != 0 && c.VirtualPort == unused && c.DestPort == unused
}
