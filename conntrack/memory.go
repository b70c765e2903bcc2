package conntrack

import "unsafe"

// Memory returns the bytes that entries and their index take at present, those
// included that are kept for the next entries. Each shard is locked for a moment.
func (t *Table) Memory() uint64 {
	var pages, places uint64
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		pages += uint64(len(s.store.pages) - len(s.store.gaps))
		places += uint64(len(s.index.cells)) + uint64(cap(s.store.pages)) // a pointer is as large as a cell
		s.mu.Unlock()
	}
	return pages*uint64(unsafe.Sizeof(page{})) + places*uint64(unsafe.Sizeof(place{}))
}
