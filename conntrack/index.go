package conntrack

import "sync/atomic"

// cell is one place of an index: the key's 32-bit tag above, the entry's handle
// and the key's direction below. 0 is an empty place.
type cell uint64

func newCell(tag, handle uint32, dir Direction) cell {
	return cell(tag)<<32 | cell(handle)<<1 | cell(dir)
}

func (c cell) tag() uint32    { return uint32(c >> 32) }
func (c cell) handle() uint32 { return uint32(c) >> 1 }
func (c cell) dir() Direction { return Direction(c & 1) }

// index finds entries by the tags of their keys: open addressing with linear
// probing, at most three quarters full and, after a removal, at least an eighth.
// A removal shifts followers back, so there are no tombstones to clean up.
type index struct {
	cells []place // length 0 or a power of two
	used  int
	// seen is cells for whoever looks without the lock: see Key.
	seen atomic.Pointer[[]place]
}

// place holds a cell. It is written under the shard's lock, and read by some without.
type place struct{ cell atomic.Uint64 }

func (p *place) get() cell  { return cell(p.cell.Load()) }
func (p *place) set(c cell) { p.cell.Store(uint64(c)) }

const firstIndexSize = 16

// home returns where the search for a tag begins, after where it goes on; it
// ends at an empty place. The index must not be empty.
func (x *index) home(tag uint32) uint32 { return tag & uint32(len(x.cells)-1) }

func (x *index) after(i uint32) uint32 { return (i + 1) & uint32(len(x.cells)-1) }

func (x *index) insert(tag, handle uint32, dir Direction) {
	if (x.used+1)*4 > len(x.cells)*3 {
		x.resize(max(firstIndexSize, 2*len(x.cells)))
	}
	x.put(newCell(tag, handle, dir))
	x.used++
}

// reserve makes room for n keys more.
func (x *index) reserve(n int) {
	size := max(firstIndexSize, len(x.cells))
	for (x.used+n)*4 > size*3 {
		size *= 2
	}
	if n > 0 && size > len(x.cells) {
		x.resize(size)
	}
}

func (x *index) put(c cell) {
	i := x.home(c.tag())
	for x.cells[i].get() != 0 {
		i = x.after(i)
	}
	x.cells[i].set(c)
}

func (x *index) resize(n int) {
	old := x.cells
	cells := make([]place, n)
	x.cells = cells
	for i := range old {
		if c := old[i].get(); c != 0 {
			x.put(c)
		}
	}
	x.seen.Store(&cells)
}

// remove takes out the cell of a key.
func (x *index) remove(tag, handle uint32, dir Direction) {
	mask := uint32(len(x.cells) - 1)
	want := newCell(tag, handle, dir)
	i := tag & mask
	for x.cells[i].get() != want {
		if x.cells[i].get() == 0 {
			panic("conntrack: an entry's key is not in the index")
		}
		i = (i + 1) & mask
	}
	x.used--
	// Close the gap: a follower moves back unless that would put it in
	// front of its own place.
	gap := i
	for {
		i = (i + 1) & mask
		c := x.cells[i].get()
		if c == 0 {
			break
		}
		home := c.tag() & mask
		if (i-home)&mask >= (i-gap)&mask {
			x.cells[gap].set(c)
			gap = i
		}
	}
	x.cells[gap].set(0)
	if len(x.cells) > firstIndexSize && x.used*8 < len(x.cells) {
		x.resize(len(x.cells) / 2)
	}
}
