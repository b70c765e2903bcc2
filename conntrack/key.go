package conntrack

import (
	"unsafe"

	"pktdirector/packet"
)

// Key is where the entry of a packet is looked for. Of a batch, the keys of all packets
// are made before the first is taken, and what each needs is brought into the
// processor's cache while the others are read: in a large table each of the three steps
// is a wait for memory, which one packet cannot shorten, but which a batch can share.
//
// No lock is held meanwhile, and nothing of an entry is read: another worker may give
// its place to another connection at any time. What is fetched then is of no use, and
// that is all.
type Key struct {
	s    *shard
	base uint64
	tag  uint32
	cell cell
}

// RequestKey returns the key of the connection whose client sent f.
func (t *Table) RequestKey(f *packet.Flow) Key {
	base := t.base(f.Proto, f.Src, f.SrcPort)
	s := &t.shards[base>>(64-t.shardBits)]
	return Key{s: s, base: base, tag: Slot{t, s, base}.tag(f.Dst, f.DstPort, Request)}
}

// ReplyKey returns the key of the connection whose real server sent f to the client's
// own address and port; FullNAT's are found by LockReply.
func (t *Table) ReplyKey(f *packet.Flow) Key {
	base := t.base(f.Proto, f.Dst, f.DstPort)
	s := &t.shards[base>>(64-t.shardBits)]
	return Key{s: s, base: base, tag: Slot{t, s, base}.tag(f.Src, f.SrcPort, Reply)}
}

// FetchShard is the first step: whose place follows from the key.
func (k *Key) FetchShard() { k.s.due.Load() }

// FetchCell is the second step: which entry it may be.
func (k *Key) FetchCell() {
	if cells := k.s.index.seen.Load(); cells != nil {
		k.cell = (*cells)[k.tag&uint32(len(*cells)-1)].get()
	}
}

// FetchEntry is the third step. An entry that stands behind another of the same place
// is not fetched: most do not.
func (k *Key) FetchEntry() {
	if k.cell == 0 {
		return
	}
	at := k.cell.handle() - 1
	pages := k.s.store.seen.Load()
	if pages == nil || int(at/pageSize) >= len(*pages) {
		return
	}
	if p := (*pages)[at/pageSize].Load(); p != nil {
		prefetch(unsafe.Pointer(&p.conns[at%pageSize]))
	}
}

// LockKey is Lock for the connection's key.
func (t *Table) LockKey(k *Key) Slot {
	k.s.mu.Lock()
	return Slot{t, k.s, k.base}
}

// RequestAt is Request for the key of f.
func (l Slot) RequestAt(k *Key, f *packet.Flow) *Conn { return l.request(f, k.tag) }

// ReplyAt is Reply for the key of f.
func (l Slot) ReplyAt(k *Key, f *packet.Flow) *Conn { return l.reply(f, k.tag) }
