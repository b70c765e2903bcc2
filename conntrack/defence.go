package conntrack

import (
	"time"

	"pktdirector/packet"
)

// SetSecureTCP chooses the TCP tables that distrust clients
// (net.ipv4.vs.secure_tcp): a connection is established only by its real server.
func (t *Table) SetSecureTCP(on bool) { t.secureTCP.Store(on) }

// secureTables returns the three TCP tables used while secure_tcp is on.
func secureTables() (input, output, inputOnly *tcpTable) {
	input, output, inputOnly = tcpTables()
	input[evSYN][SynAck] = SynAck
	input[evFIN][SynAck] = SynAck
	input[evACK][SynRecv] = SynRecv
	input[evACK][SynAck] = SynAck
	input[evRST][SynAck] = Close
	output[evSYN][SynRecv] = SynAck
	output[evSYN][SynAck] = SynAck
	for _, from := range []State{None, FinWait, TimeWait, Close, CloseWait, LastAck, Listen, SynAck} {
		inputOnly[evSYN][from] = SynAck
	}
	return input, output, inputOnly
}

// A defence round looks at one shard in 32, as the kernel looks at that part of
// its chains each second.
const defenceShare = 32

// idleBefore is how long an established connection must be idle before the
// defence may take it.
const idleBefore = 60 * time.Second

// thinning is the most packets a connection may have been given to be a
// victim. Of those with n packets, every n-th is taken.
const thinning = 8

// DropSome ends entries that look least worth keeping, in a random part of the
// table (net.ipv4.vs.drop_entry): half-open connections, idle ones that had
// few packets, and templates of which no connection was ever established. round
// chooses the part; call it once a second.
func (t *Table) DropSome(round uint64, now time.Duration) {
	for i := range max(1, len(t.shards)/defenceShare) {
		s := &t.shards[mix(round, t.seed[0]+uint64(i))>>(64-t.shardBits)]
		s.mu.Lock()
		for c := range s.store.all {
			if c.holders() == 0 && t.victim(c, now) {
				t.end(s, c)
			}
		}
		s.mu.Unlock()
	}
}

// victim reports whether the defence takes an entry.
func (t *Table) victim(c *Conn, now time.Duration) bool {
	switch {
	case c.Flags&Template != 0:
		return c.State != Assured
	case c.State == SynRecv, c.State == SynAck, c.State == SCTPInit1, c.State == SCTPInit:
		return true
	case c.Proto == packet.TCP && c.State != Established, c.Proto == packet.SCTP && c.State != SCTPEstablished:
		return false
	}
	idle := now - (c.Expires() - t.timeouts.Load()[c.State])
	n, _ := c.Counted(Request)
	if idle < idleBefore || n == 0 || n > thinning {
		return false
	}
	return t.thinned[n].Add(1)%uint32(n) == 0
}
