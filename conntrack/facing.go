package conntrack

import (
	"pktdirector/lvs"
	"pktdirector/packet"
)

// With FullNAT, a real server's packets do not name the client: they go to an
// address and port of the director's. The entry stays in the shard of its
// client; whoever gave the port away remembers the shard's number and finds the
// entry by LockReply. So both directions meet under one lock here, too, and any
// port can be given to any client.

// Shard returns the locked shard's number.
func (l Slot) Shard() uint32 { return uint32(l.s.no) }

// LockReply locks the shard of that number, to find by Reply a connection whose
// real server sends to an address and port of the director's.
func (t *Table) LockReply(shard uint32, proto packet.Proto, to packet.Addr, port uint16) Slot {
	s := &t.shards[int(shard)&(len(t.shards)-1)]
	s.mu.Lock()
	return Slot{t, s, t.base(proto, to, port)}
}

// facing returns the slot as the real server of c sees it.
func (l Slot) facing(c *Conn) Slot {
	if c.Method == lvs.FullNAT {
		l.base = l.t.base(c.Proto, c.Source, c.SourcePort)
	}
	return l
}
