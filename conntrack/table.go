package conntrack

import (
	"errors"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"pktdirector/packet"
)

// Table holds every connection, sharded by client endpoint so that both
// directions meet under one lock.
type Table struct {
	shards                                     []shard
	shardBits                                  int
	seed                                       [2]uint64
	tick                                       atomic.Uint64 // the tick Advance has reached
	ended                                      func(*Conn)
	held                                       func(*Conn) bool
	timeouts                                   atomic.Pointer[Timeouts]
	tcpInput, tcpOutput, tcpInputOnly          *tcpTable
	sctpInput, sctpOutput, sctpInputOnly       *sctpTable
	secureInput, secureOutput, secureInputOnly *tcpTable
	secureTCP                                  atomic.Bool
	thinned                                    [thinning + 1]atomic.Uint32 // victims looked at, by their packets
	limit                                      limit
}

// DefaultShards keeps one shard of a table of ten million connections small
// enough (ten thousand entries) that growing its index is no pause.
const DefaultShards = 1024

// New returns an empty table. shards is rounded up to a power of two; seed
// makes the hash unpredictable for clients and reproducible for tests. ended is
// called, under the shard's lock, for each entry that ends.
func New(shards int, seed uint64, ended func(*Conn)) *Table {
	n := 1
	for n < shards {
		n <<= 1
	}
	t := &Table{
		shards:    make([]shard, n),
		shardBits: bits.Len(uint(n)) - 1,
		seed:      [2]uint64{mix(seed, 0x9e3779b97f4a7c15), mix(seed, 0xbf58476d1ce4e5b9) | 1},
		ended:     ended,
	}
	t.tcpInput, t.tcpOutput, t.tcpInputOnly = tcpTables()
	t.secureInput, t.secureOutput, t.secureInputOnly = secureTables()
	t.sctpInput, t.sctpOutput, t.sctpInputOnly = sctpTables()
	timeouts := DefaultTimeouts()
	t.timeouts.Store(&timeouts)
	t.limit.init(n)
	for i := range t.shards {
		t.shards[i].due.Store(never)
		t.shards[i].no = i
	}
	return t
}

// shard is one lock's part of the table.
type shard struct {
	mu    sync.Mutex
	due   atomic.Uint64 // no entry ends before this tick
	index index
	store store
	wheel wheel
	lines [numRanks]line // of the entries that make way when the table is full
	no    int            // index in Table.shards
	_     [64]byte       // keep two shards' locks off one cache line
}

// conn returns the entry behind a handle.
func (s *shard) conn(handle uint32) *Conn { return s.store.conn(handle) }

// Slot is the locked shard of one client endpoint.
type Slot struct {
	t    *Table
	s    *shard
	base uint64 // hash of protocol and client endpoint
}

// Lock locks the shard that holds every connection of this client endpoint.
// Whoever holds one Slot must not lock another.
func (t *Table) Lock(proto packet.Proto, client packet.Addr, port uint16) Slot {
	base := t.base(proto, client, port)
	s := &t.shards[base>>(64-t.shardBits)]
	s.mu.Lock()
	return Slot{t, s, base}
}

func (t *Table) base(proto packet.Proto, client packet.Addr, port uint16) uint64 {
	hi, lo := client.Words()
	return mix(hi^t.seed[0]^uint64(port)<<48^uint64(proto)<<40, lo^t.seed[1])
}

// Unlock releases the shard; Conns found through it must not be used any more.
func (l Slot) Unlock() { l.s.mu.Unlock() }

// tag hashes the other endpoint together with the client's.
func (l Slot) tag(addr packet.Addr, port uint16, dir Direction) uint32 {
	hi, lo := addr.Words()
	h := mix(l.base^hi^uint64(port)<<32^uint64(dir)<<16, lo^l.t.seed[0])
	return uint32(h>>32) ^ uint32(h)
}

// mix is a 64-bit hash step: a full multiplication folded.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0xa0761d6478bd642f, b^0xe7037ed1a0b428db)
	return hi ^ lo
}

// Request finds the connection whose client sent f, or nil.
func (l Slot) Request(f *packet.Flow) *Conn {
	return l.request(f, l.tag(f.Dst, f.DstPort, Request))
}

func (l Slot) request(f *packet.Flow, tag uint32) *Conn {
	x := &l.s.index
	if len(x.cells) == 0 {
		return nil
	}
	for i := x.home(tag); ; i = x.after(i) {
		at := x.cells[i].get()
		if at == 0 {
			return nil
		}
		if at.tag() == tag && at.dir() == Request {
			c := l.s.conn(at.handle())
			if c.Virtual == f.Dst && c.Client == f.Src && c.VirtualPort == f.DstPort && c.ClientPort == f.SrcPort && c.Proto == f.Proto {
				return c
			}
		}
	}
}

// Reply finds the connection whose real server sent f, or nil.
func (l Slot) Reply(f *packet.Flow) *Conn {
	return l.reply(f, l.tag(f.Src, f.SrcPort, Reply))
}

func (l Slot) reply(f *packet.Flow, tag uint32) *Conn {
	x := &l.s.index
	if len(x.cells) == 0 {
		return nil
	}
	for i := x.home(tag); ; i = x.after(i) {
		at := x.cells[i].get()
		if at == 0 {
			return nil
		}
		if at.tag() == tag && at.dir() == Reply {
			c := l.s.conn(at.handle())
			if c.replyFlow() == *f {
				return c
			}
		}
	}
}

// ErrReplyTaken is returned by Insert when the replies of the new connection
// could not be told from those of one that exists: one client port talks to two
// VIPs and both were given the same real server and port.
var ErrReplyTaken = errors.New("conntrack: another connection of this client port has the same real server and port")

// newEntryTimeout is how long an entry lives before its first state step.
const newEntryTimeout = 3 * time.Second

// Insert adds a copy of c, whose client must be the Slot's. It must not be
// there already. In a full table an entry that is worth less makes way; where
// there is none the error is ErrTableFull.
func (l Slot) Insert(c Conn) (*Conn, error) {
	s := l.s
	if c.hasReplyKey() {
		if f := c.replyFlow(); l.facing(&c).Reply(&f) != nil {
			return nil, ErrReplyTaken
		}
	}
	if !l.t.admit(s) {
		return nil, ErrTableFull
	}
	entry := s.store.take()
	c.self = entry.self
	c.Flags |= used
	c.rank = kept
	*entry = c
	l.t.enqueue(s, entry, halfOpen)
	s.index.insert(l.tag(c.Virtual, c.VirtualPort, Request), entry.self, Request)
	if c.hasReplyKey() {
		s.index.insert(l.facing(&c).tag(c.Dest, c.DestPort, Reply), entry.self, Reply)
	}
	now := l.t.tick.Load()
	entry.began = uint32(now / beganUnit)
	entry.setEnds(now + uint64(newEntryTimeout/Tick))
	l.arm(entry)
	return entry, nil
}

// arm puts an entry into the wheel. A wheel with nothing due stands still, so
// it is first brought to the present, which no slot's time lies before.
func (l Slot) arm(c *Conn) {
	due := l.s.due.Load()
	if tick := l.t.tick.Load(); tick < due {
		l.s.wheel.now = max(l.s.wheel.now, tick)
	}
	l.s.arm(c)
	if at := l.s.wheel.armedFor(c); at < due {
		l.s.due.Store(at)
	}
}

// Step moves c on for one packet at engine time now, which Count was told of: the
// next state, its timeout from now, and whether it now counts as active. It
// reports whether that count changed.
// what is the segment's TCP flags, or the type of the packet's decisive SCTP chunk.
func (l Slot) Step(c *Conn, dir Direction, what uint8, now time.Duration) (moved bool) {
	switch c.Proto {
	case packet.TCP:
		c.State = l.t.nextTCP(c, dir, what)
	case packet.SCTP:
		c.State = l.t.nextSCTP(c, dir, what)
	default:
		c.State = UDP
	}
	l.expireAt(c, now+l.t.timeouts.Load()[c.State])
	l.rerank(c, dir)
	if c.State.counts() != c.Active() {
		c.Flags ^= flagActive
		return true
	}
	return false
}

// expireAt sets the entry's end. Only an end earlier than the wheel would look
// moves the entry.
func (l Slot) expireAt(c *Conn, at time.Duration) {
	ends := uint64((at + Tick - 1) / Tick)
	c.setEnds(ends)
	if ends < l.s.wheel.armedFor(c) {
		l.s.disarm(c)
		l.arm(c)
	}
}

// Renew starts a template's lifetime anew: it lives on with each connection
// made through it.
func (l Slot) Renew(c *Conn, now time.Duration) {
	l.expireAt(c, now+time.Duration(c.Lifetime())*Tick)
}

// Hold counts a connection that is made through the template c and returns
// what it holds it by.
func (l Slot) Hold(c *Conn) TemplateRef {
	c.Control.handle++
	l.t.dequeue(l.s, c)
	return TemplateRef{l.Shard(), c.self}
}

// Rename takes a template out of use: it keeps its entry, under a port that no
// packet has, until the connections made through it have ended.
func (l Slot) Rename(c *Conn) {
	l.t.unindex(l.s, c)
	c.VirtualPort, c.DestPort = unused, unused
	l.s.index.insert(l.tag(c.Virtual, c.VirtualPort, Request), c.self, Request)
}

// Release takes back a Hold.
func (t *Table) Release(r TemplateRef) {
	s := &t.shards[r.shard]
	s.mu.Lock()
	c := s.conn(r.handle)
	c.Control.handle--
	if c.Control.handle == 0 && c.State != Assured {
		t.enqueue(s, c, halfOpen)
	}
	s.mu.Unlock()
}

// Assure notes that a connection made through the template was established.
func (t *Table) Assure(r TemplateRef) {
	s := &t.shards[r.shard]
	s.mu.Lock()
	s.conn(r.handle).State = Assured
	s.mu.Unlock()
}

// SetTimeouts changes three timeouts for the next packet of every connection,
// as ipvsadm --set does; 0 keeps what is.
func (t *Table) SetTimeouts(tcp, tcpFin, udp time.Duration) {
	next := *t.timeouts.Load()
	for state, d := range map[State]time.Duration{Established: tcp, FinWait: tcpFin, UDP: udp} {
		if d > 0 {
			next[state] = d
		}
	}
	t.timeouts.Store(&next)
}

// Now returns the time that Advance has reached.
func (t *Table) Now() time.Duration { return time.Duration(t.tick.Load()) * Tick }

// Remove ends an entry now.
func (l Slot) Remove(c *Conn) { l.t.end(l.s, c) }

// end takes an entry of a locked shard out of it.
func (t *Table) end(s *shard, c *Conn) {
	s.disarm(c)
	t.endDisarmed(s, c)
}

// endDisarmed is end for an entry that stands in no slot of the wheel.
func (t *Table) endDisarmed(s *shard, c *Conn) {
	t.ended(c)
	t.forget(s, c)
}

// forget takes an entry that stands in no slot of the wheel out of a locked
// shard.
func (t *Table) forget(s *shard, c *Conn) {
	t.unindex(s, c)
	t.dequeue(s, c)
	s.store.release(c)
	t.limit.entries.Add(-1)
}

// unindex takes an entry's keys out of its shard's index.
func (t *Table) unindex(s *shard, c *Conn) {
	l := Slot{t, s, t.base(c.Proto, c.Client, c.ClientPort)}
	s.index.remove(l.tag(c.Virtual, c.VirtualPort, Request), c.self, Request)
	if c.hasReplyKey() {
		s.index.remove(l.facing(c).tag(c.Dest, c.DestPort, Reply), c.self, Reply)
	}
}

// Advance ends every entry whose time has come by engine time now. Time does
// not go back: a smaller now than before changes nothing.
func (t *Table) Advance(now time.Duration) {
	tick := uint64(now / Tick)
	for {
		old := t.tick.Load()
		if tick <= old {
			return
		}
		if t.tick.CompareAndSwap(old, tick) {
			break
		}
	}
	for i := range t.shards {
		s := &t.shards[i]
		if s.due.Load() > tick {
			continue
		}
		s.mu.Lock()
		s.advance(tick, t)
		s.mu.Unlock()
	}
}

// Len counts the entries.
func (t *Table) Len() int { return int(t.limit.entries.Load()) }

// Timeouts returns the timeouts as they are now.
func (t *Table) Timeouts() Timeouts { return *t.timeouts.Load() }
