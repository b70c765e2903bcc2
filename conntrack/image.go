package conntrack

import (
	"fmt"
	"slices"
	"time"

	"pktdirector/image"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// A table is carried into an image shard by shard, and back into a table with as
// many shards and the same seed: an entry's shard stays the same. Times are the
// engine's, so the table that they are read into goes on at the same time.

// fields carries an entry's fields. What the table itself keeps of it is made anew.
func (c *Conn) fields(x *image.Codec) {
	x.Addr(&c.Client)
	x.Addr(&c.Virtual)
	x.Addr(&c.Dest)
	x.Addr(&c.Source)
	image.Num(x, &c.ClientPort)
	image.Num(x, &c.VirtualPort)
	image.Num(x, &c.DestPort)
	image.Num(x, &c.SourcePort)
	image.Num(x, &c.Proto)
	image.Num(x, &c.Method)
	image.Num(x, &c.State)
	image.Num(x, &c.Flags)
	image.Num(x, &c.DestID)
	image.Num(x, &c.note)
	image.Num(x, &c.Control.shard)
	image.Num(x, &c.Control.handle)
	image.Num(x, &c.began)
	for dir := range c.packets {
		image.Num(x, &c.packets[dir])
		image.Num(x, &c.bytes[dir])
		image.Num(x, &c.bytesHigh[dir])
	}
	image.Num(x, &c.packetsHigh)
	image.Num(x, &c.expires)
	image.Num(x, &c.expiresHigh)
}

// leastEntry is what an entry takes at least in an image; it bounds lists of them.
const leastEntry = 64

// fault says what makes an entry one that no table has.
func (c *Conn) fault() string {
	template := c.Flags&Template != 0
	switch {
	case c.Method > lvs.FullNAT:
		return fmt.Sprintf("forwarding method %d", c.Method)
	case c.Method != lvs.Tunnel && c.Dest.Is4() != c.Client.Is4() && c.Client.IsValid():
		return "a real server of another IP version"
	case !c.Dest.IsValid():
		return "no real server"
	case template && (c.ClientPort != 0 || c.State != None && c.State != Assured || c.SourcePort != 0):
		return "a template that is a connection"
	case template:
		return ""
	case !c.Client.IsValid() || c.Virtual.Is4() != c.Client.Is4():
		return "a VIP of another IP version than the client's, or no client"
	case (c.Method == lvs.FullNAT) != (c.SourcePort != 0) || c.SourcePort != 0 && c.Source.Is4() != c.Dest.Is4():
		return "a source that does not fit the forwarding method"
	case c.Parent() != 0 && c.Proto != packet.TCP:
		return "a control connection that announces none such"
	case c.Tunnel().Validate() != nil:
		return "no such tunnel"
	case c.Flags&NoClientPort != 0 && (c.ClientPort != 0 || c.State != Listen || c.Parent() == 0):
		return "an expected connection that has begun"
	}
	switch c.Proto {
	case packet.TCP:
		if int(c.State) < numTCPStates {
			return ""
		}
	case packet.UDP:
		if c.State == UDP || c.State == None {
			return ""
		}
	case packet.SCTP:
		if c.State == None || c.State >= SCTPNone && c.State < numStates {
			return ""
		}
	}
	return fmt.Sprintf("state %d of protocol %d", c.State, c.Proto)
}

// longest bounds timeouts in images: ipvsadm takes seconds below 2^31.
const longest = (1<<31 - 1) * time.Second

// Shards returns the number of shards.
func (t *Table) Shards() int { return len(t.shards) }

// CarryShard writes shard i into an image. Its lock is held meanwhile.
func (t *Table) CarryShard(x *image.Codec, i int) {
	s := &t.shards[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for range s.store.all {
		n++
	}
	x.Count(n, leastEntry)
	for c := range s.store.all {
		image.Num(x, &c.self)
		entry := *c
		entry.fields(x)
	}
	// The lines, in their order: handles.
	for r := halfOpen; r < numRanks; r++ {
		n := 0
		for h := s.lines[r].first; h != 0; h = s.conn(h).behind {
			n++
		}
		x.Count(n, 4)
		for h := s.lines[r].first; h != 0; h = s.conn(h).behind {
			image.Num(x, &h)
		}
	}
}

// Renamed tells the names that templates, or other entries, have in a table by
// those they had in the one whose image was read. Each shard is written by whoever
// reads it.
type Renamed struct{ byShard []handles }

// handles tells present handles by earlier ones, which are in order.
type handles struct{ was, now []uint32 }

func (h *handles) find(was uint32) (now uint32, there bool) {
	i, there := slices.BinarySearch(h.was, was)
	if !there {
		return 0, false
	}
	return h.now[i], true
}

// NewRenamed returns room for the names of t's entries.
func (t *Table) NewRenamed() *Renamed { return &Renamed{make([]handles, len(t.shards))} }

// ref returns the present name of a template that was called was.
func (r *Renamed) ref(was TemplateRef) (TemplateRef, bool) {
	if int(was.shard) >= len(r.byShard) {
		return TemplateRef{}, false
	}
	now, there := r.byShard[was.shard].find(was.handle)
	return TemplateRef{was.shard, now}, there
}

// RestoreShard reads shard i from an image, into a table that has been given the
// image's time by SetTime. take is called, under the shard's lock, for each entry
// before it is entered: it may change what it refers to, or leave it out. It
// returns how many were left out.
func (t *Table) RestoreShard(x *image.Codec, i int, names *Renamed, take func(*Conn) (bool, error)) (out int, err error) {
	s := &t.shards[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	n := x.Count(0, leastEntry)
	s.index.reserve(2 * n)
	var renamed handles
	last := uint32(0)
	for range n {
		var c Conn
		var was uint32
		image.Num(x, &was)
		c.fields(x)
		if x.Err() != nil {
			return out, x.Err()
		}
		if why := c.fault(); why != "" {
			return out, fmt.Errorf("an entry of %s for %s has %s", packet.Endpoint(c.Client, c.ClientPort), packet.Endpoint(c.Virtual, c.VirtualPort), why)
		}
		if was <= last {
			return out, fmt.Errorf("entry %d comes after entry %d", was, last)
		}
		last = was
		l := Slot{t, s, t.base(c.Proto, c.Client, c.ClientPort)}
		if l.base>>(64-t.shardBits) != uint64(i) {
			return out, fmt.Errorf("an entry of %s stands in shard %d, where it does not belong", packet.Endpoint(c.Client, c.ClientPort), i)
		}
		if l.taken(&c) {
			out++ // its place was given to another while the image was made
			continue
		}
		if yes, err := take(&c); err != nil {
			return out, err
		} else if !yes {
			out++
			continue
		}
		renamed.was, renamed.now = append(renamed.was, was), append(renamed.now, l.restore(c))
	}
	if names != nil {
		names.byShard[i] = renamed
	}
	for r := halfOpen; r < numRanks; r++ {
		for range x.Count(0, 4) {
			var was uint32
			image.Num(x, &was)
			if h, there := renamed.find(was); there && s.conn(h).rank == kept {
				t.enqueue(s, s.conn(h), r)
			}
		}
	}
	return out, x.Err()
}

// taken reports whether an entry's keys are another's already.
func (l Slot) taken(c *Conn) bool {
	if c.hasReplyKey() {
		if f := c.replyFlow(); l.facing(c).Reply(&f) != nil {
			return true
		}
	}
	// Templates out of use have one key together: see Rename.
	if c.Flags&Template != 0 && c.VirtualPort == unused {
		return false
	}
	return l.Request(&packet.Flow{Proto: c.Proto, Src: c.Client, SrcPort: c.ClientPort, Dst: c.Virtual, DstPort: c.VirtualPort}) != nil
}

// restore enters an entry as it was and returns its handle.
func (l Slot) restore(c Conn) uint32 {
	s := l.s
	entry := s.store.take()
	c.self, c.Flags = entry.self, c.Flags&^flagActive|used
	if c.Flags&Template != 0 {
		c.Control.handle = 0 // who holds it will say so: Rehold
	}
	if c.Flags&Template == 0 && c.State.counts() {
		c.Flags |= flagActive
	}
	*entry = c
	s.index.insert(l.tag(c.Virtual, c.VirtualPort, Request), entry.self, Request)
	if c.hasReplyKey() {
		s.index.insert(l.facing(&c).tag(c.Dest, c.DestPort, Reply), entry.self, Reply)
	}
	l.t.limit.entries.Add(1)
	l.arm(entry)
	return entry.self
}

// Counts reports whether the entry is to be an ActiveConn of its destination.
func (c *Conn) Counts() bool { return c.Flags&Template == 0 && c.State.counts() }

// Rehold makes a connection that was read from an image hold its template again,
// by the template's present name. It reports false, and leaves the connection
// without one, where the template is not there or leads elsewhere.
func (t *Table) Rehold(c *Conn, names *Renamed) bool {
	if c.Control.IsZero() {
		return true
	}
	ref, there := names.ref(c.Control)
	c.Control = TemplateRef{}
	if !there {
		return false
	}
	s := &t.shards[ref.shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	template := s.conn(ref.handle)
	if template.DestID != c.DestID {
		return false
	}
	template.Control.handle++
	t.dequeue(s, template)
	c.Control = ref
	return true
}

// Settle puts the templates that no connection holds any more where they may make
// way, once all connections were read from an image.
func (t *Table) Settle() {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		for c := range s.store.all {
			if c.Flags&Template != 0 && c.holders() == 0 && c.State != Assured && c.rank == kept {
				t.enqueue(s, c, halfOpen)
			}
		}
		s.mu.Unlock()
	}
}

// SetTime makes now the time of an empty table.
func (t *Table) SetTime(now time.Duration) {
	t.tick.Store(uint64(now / Tick))
	for i := range t.shards {
		t.shards[i].wheel.now = uint64(now / Tick)
	}
}

// Carry carries what belongs to no shard: the timeouts and what the table counts.
func (t *Table) Carry(x *image.Codec) {
	timeouts, evicted := *t.timeouts.Load(), t.limit.evicted.Load()
	if n := x.Count(len(timeouts), 8); n != len(timeouts) {
		x.Fail("timeouts of %d states: there are %d", n, len(timeouts))
		return
	}
	for i := range timeouts {
		if image.Num(x, &timeouts[i]); timeouts[i] < 0 || timeouts[i] > longest {
			x.Fail("a timeout of %v", timeouts[i])
			return
		}
	}
	image.Num(x, &evicted)
	for i := range t.thinned {
		n := t.thinned[i].Load()
		if image.Num(x, &n); x.Reads() {
			t.thinned[i].Store(n)
		}
	}
	// Whoever writes stores nothing: it would take back what is counted meanwhile.
	if x.Reads() {
		t.timeouts.Store(&timeouts)
		t.limit.evicted.Store(evicted)
	}
}
