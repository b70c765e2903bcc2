package dataplane

import (
	"fmt"
	"sync/atomic"
	"time"

	"pktdirector/conntrack"
	"pktdirector/image"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// Restored is a director that goes on where another was.
type Restored struct {
	*Director
	// Now is the engine's time in the image. The director's goes on from there.
	Now time.Duration
	// LeftOut counts connections whose place was another's already when the image
	// was made of a director at work; there are none in an image of one moment.
	LeftOut int
}

// Age lets time pass in which no director was at work: what was to end meanwhile
// has ended, and the host will say anew what it knows of neighbours. No packet may
// have come yet.
func (r *Restored) Age(passed time.Duration) {
	r.Now += min(max(passed, 0), longestAge)
	r.table.Advance(r.Now)
	r.templates.Advance(r.Now)
	r.neighbours.age(r.Now)
}

// longestAge is more than any timeout.
const longestAge = 100 * 365 * 24 * time.Hour

// Relink says that links have other places in their list now: to returns that of
// the link that was at a place. Neighbours on links that are gone are forgotten.
// Rules that give marks are the caller's to change, by SetMarks or Apply.
func (r *Restored) Relink(to func(link int) (now int, there bool)) { r.neighbours.relink(to) }

// Restore makes a director of an image. options is asked, with the image's seed, for
// the new director's options, whose own Seed and Shards do not count. each calls do for
// 0 to n-1, at once if it likes, until one fails. An image that is damaged, or
// contradicts itself, is refused as a whole.
func Restore(parts []image.Part, options func(seed uint64) Options, each func(n int, do func(int) error) error) (*Restored, error) {
	if err := each(len(parts), func(i int) error { return parts[i].Check() }); err != nil {
		return nil, err
	}
	byKind := map[image.Kind][]image.Part{}
	for _, p := range parts {
		if p.Kind > imageConnections {
			return nil, fmt.Errorf("a part of the image is of kind %d, which is not known", p.Kind)
		}
		byKind[p.Kind] = append(byKind[p.Kind], p)
	}
	for _, kind := range []image.Kind{imageRules, imageFTP, imageSources, imageHop} {
		if len(byKind[kind]) != 1 {
			return nil, fmt.Errorf("the image has %d parts of kind %d, must be one", len(byKind[kind]), kind)
		}
	}
	x := image.Reading(byKind[imageRules][0].Payload)
	var head imageHead
	if head.carry(x); x.Err() != nil {
		return nil, x.Err()
	}
	if len(byKind[imageConnections]) != imageParts(head.Shards) || len(byKind[imageTemplates]) != imageParts(head.Templates) {
		return nil, fmt.Errorf("the image has tables of %d and %d shards in %d and %d parts", head.Shards, head.Templates, len(byKind[imageConnections]), len(byKind[imageTemplates]))
	}
	o := options(head.Seed)
	o.Seed, o.Shards = head.Seed, int(head.Shards)
	d := New(o)
	if d.table.Shards() != int(head.Shards) || d.templates.Shards() != int(head.Templates) {
		return nil, fmt.Errorf("the image has tables of %d and %d shards, this program %d and %d", head.Shards, head.Templates, d.table.Shards(), d.templates.Shards())
	}
	d.table.SetTime(head.Now)
	d.templates.SetTime(head.Now)
	d.neighbours.now = head.Now
	r := &restoring{d: d, names: d.templates.NewRenamed(), controls: map[uint32]bool{}}
	if err := r.all(x, byKind, each); err != nil {
		return nil, fmt.Errorf("the image contradicts itself: %w", err)
	}
	d.templates.Settle()
	d.ftp.settle(r.controls)
	d.sources.settle()
	return &Restored{Director: d, Now: head.Now, LeftOut: int(r.out.Load())}, nil
}

// restoring reads an image into a new director.
type restoring struct {
	d     *Director
	names *conntrack.Renamed // of the templates
	size  int                // number of destinations
	out   atomic.Int64

	controls map[uint32]bool // records of FTP whose control connection is there; guarded by ftp.mu
}

func (r *restoring) all(x *image.Codec, parts map[image.Kind][]image.Part, each func(int, func(int) error) error) error {
	d := r.d
	if err := d.readRules(x); err != nil {
		return err
	}
	r.size = len(d.dests.Load().all)
	for kind, read := range map[image.Kind]func(*image.Codec){
		imageFTP: d.ftp.carry, imageSources: d.sources.read,
		imageHop: func(x *image.Codec) { d.neighbours.carry(x); d.paths.carry(x) },
	} {
		x := image.Reading(parts[kind][0].Payload)
		if read(x); x.End() != nil {
			return x.End()
		}
	}
	for _, of := range []struct {
		kind  image.Kind
		table *conntrack.Table
		names *conntrack.Renamed
		take  func(uint32) func(*conntrack.Conn) (bool, error)
	}{
		{imageTemplates, d.templates, r.names, func(uint32) func(*conntrack.Conn) (bool, error) { return r.template }},
		{imageConnections, d.table, nil, func(shard uint32) func(*conntrack.Conn) (bool, error) {
			return func(c *conntrack.Conn) (bool, error) { return r.connection(c, shard) }
		}},
	} {
		list := parts[of.kind]
		seen := make([]atomic.Bool, of.table.Shards())
		err := each(len(list), func(i int) error {
			x := image.Reading(list[i].Payload)
			var from uint32
			image.Num(x, &from)
			for shard := from; shard < from+shardsPerPart && int(shard) < len(seen); shard++ {
				if seen[shard].Swap(true) {
					return fmt.Errorf("shard %d stands there twice", shard)
				}
				out, err := of.table.RestoreShard(x, int(shard), of.names, of.take(shard))
				if err != nil {
					return fmt.Errorf("shard %d: %w", shard, err)
				}
				r.out.Add(int64(out))
			}
			return x.End()
		})
		if err != nil {
			return err
		}
		for i := range seen {
			if !seen[i].Load() {
				return fmt.Errorf("shard %d is missing", i)
			}
		}
	}
	return nil
}

// template counts a template of a destination.
func (r *restoring) template(c *conntrack.Conn) (bool, error) {
	if c.Flags&conntrack.Template == 0 || int(c.DestID) >= r.size {
		return false, fmt.Errorf("template of destination %d, of %d", c.DestID, r.size)
	}
	r.d.dests.Load().all[c.DestID].Persistent.Add(1)
	return true, nil
}

// connection counts a connection, and takes what it holds: template, source port,
// and the control connection that announced it.
func (r *restoring) connection(c *conntrack.Conn, shard uint32) (bool, error) {
	d := r.d
	if c.Flags&conntrack.Template != 0 || int(c.DestID) >= r.size {
		return false, fmt.Errorf("connection of destination %d, of %d", c.DestID, r.size)
	}
	if d.forwarders[c.Method] == nil {
		return false, fmt.Errorf("connection by %s, which the engine was given no forwarder for", c.Method.Short())
	}
	if c.SourcePort != 0 && !d.sources.adopt(keyOf(c, c.Source), c.SourcePort, shard) {
		return false, nil
	}
	if !d.ftp.adopt(c, r.controls) {
		if c.State == conntrack.Listen {
			return false, nil // nobody expects it any more
		}
		c.SetParent(0)
	}
	d.templates.Rehold(c, r.names)
	d.dests.Load().all[c.DestID].Recount(c.Counts())
	return true, nil
}

// carry carries the records of control connections. References to them are
// counted anew as connections are read.
func (h *ftpHelper) carry(x *image.Codec) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if x.Reads() {
		h.read(x)
		return
	}
	flows := make(map[uint32]packet.Flow, len(h.byFlow))
	for f, id := range h.byFlow {
		flows[id] = f
	}
	n := 0
	for i := range h.records {
		if h.records[i].refs > 0 {
			n++
		}
	}
	x.Count(n, 30)
	for i := range h.records {
		if r := &h.records[i]; r.refs > 0 {
			id := uint32(i + 1)
			flow, has := flows[id]
			image.Num(x, &id)
			x.Bool(&has)
			carryFlow(x, &flow)
			r.carry(x)
		}
	}
}

func (h *ftpHelper) read(x *image.Codec) {
	n, last := x.Count(0, 30), uint32(0)
	if n > 0 {
		h.byFlow = map[packet.Flow]uint32{}
	}
	for range n {
		var id uint32
		var has bool
		var flow packet.Flow
		var r ftpRecord
		image.Num(x, &id)
		x.Bool(&has)
		carryFlow(x, &flow)
		r.carry(x)
		if id <= last || id > ftpRecords || h.byFlow[flow] != 0 && has {
			x.Fail("record %d of FTP after %d: they are 1 to %d, in order, and one for each control connection", id, last, ftpRecords)
		}
		if x.Err() != nil {
			return
		}
		for len(h.records) < int(id) {
			h.records = append(h.records, ftpRecord{})
		}
		h.records[id-1] = r
		last = id
		if has {
			h.byFlow[flow] = id
		}
	}
}

func (r *ftpRecord) carry(x *image.Codec) {
	x.Bool(&r.askedPASV)
	x.Bool(&r.askedEPSV)
	r.replies.Carry(x)
	r.edits.Carry(x)
}

// carryFlow carries a flow.
func carryFlow(x *image.Codec, f *packet.Flow) {
	image.Num(x, &f.Proto)
	x.Addr(&f.Src)
	x.Addr(&f.Dst)
	image.Num(x, &f.SrcPort)
	image.Num(x, &f.DstPort)
}

// adopt counts what a connection that was read refers to. It reports false where
// the connection that announced it is not known.
func (h *ftpHelper) adopt(c *conntrack.Conn, controls map[uint32]bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.Parent() != 0 && (int(c.Parent()) > len(h.records)) {
		return false
	}
	if ftpControl(c) {
		if id := h.byFlow[requestFlow(c)]; id != 0 {
			h.record(id).refs++
			controls[id] = true
		}
	}
	if c.Parent() == 0 {
		return true
	}
	r := h.record(c.Parent())
	r.refs++
	if c.State == conntrack.Listen {
		r.expected++
	}
	if c.Flags&conntrack.NoClientPort != 0 {
		h.waiting.Add(1)
	}
	return true
}

// settle frees the records that no connection refers to, and forgets control
// connections that are not there.
func (h *ftpHelper) settle(controls map[uint32]bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := len(h.records); i > 0; i-- { // the first is given first
		if r := h.record(uint32(i)); r.refs == 0 {
			*r = ftpRecord{next: h.free}
			h.free = uint32(i)
		}
	}
	for flow, id := range h.byFlow {
		if !controls[id] {
			delete(h.byFlow, flow)
		}
	}
}

// write writes the pools: ranges, and the ports that are free in their order.
func (s *sourcePools) write(x *image.Codec) {
	all := *s.byKey.Load()
	x.Count(len(all), 40)
	for key, p := range all {
		x.Addr(&key.rip)
		x.Addr(&key.source)
		image.Num(x, &key.proto)
		p.mu.Lock()
		p.ports.Carry(x)
		x.Count(p.n, 2)
		for i := range p.n {
			image.Num(x, &p.free[(p.first+i)%len(p.free)])
		}
		p.mu.Unlock()
	}
}

// read reads what write has written.
func (s *sourcePools) read(x *image.Codec) {
	all := map[sourceKey]*sourcePool{}
	for range x.Count(0, 40) {
		var key sourceKey
		p := &sourcePool{}
		x.Addr(&key.rip)
		x.Addr(&key.source)
		image.Num(x, &key.proto)
		p.ports.Carry(x)
		image.List(x, &p.free, 2, func(x *image.Codec, port *uint16) { image.Num(x, port) })
		if p.ports != (lvs.PortRange{}) && (p.ports.From == 0 || p.ports.To < p.ports.From) || len(p.free) > int(p.ports.To)-int(p.ports.From)+1 || all[key] != nil {
			x.Fail("source ports %s, %d of them free", p.ports, len(p.free))
		}
		if x.Err() != nil {
			return
		}
		all[key] = p
	}
	s.byKey.Store(&all)
}

// adopt notes that a connection that was read has a port. It reports false when
// another has it.
func (s *sourcePools) adopt(key sourceKey, port uint16, shard uint32) bool {
	p := s.pool(key)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone { // others made room for themselves meanwhile
		return false
	}
	if p.owner[port].Load() != 0 {
		return false
	}
	p.owner[port].Store(shard + 1)
	p.used++
	return true
}

// settle makes the ports that no connection has free, in the order that was read.
func (s *sourcePools) settle() {
	for _, p := range *s.byKey.Load() {
		p.mu.Lock()
		p.settle()
		p.mu.Unlock()
	}
}

func (p *sourcePool) settle() {
	if p.ports == (lvs.PortRange{}) {
		return // none was ever given: refill will see to it
	}
	ring := make([]uint16, int(p.ports.To)-int(p.ports.From)+1)
	p.first, p.n = 0, 0
	done := make([]bool, 1<<16)
	put := func(port uint16) {
		if port < p.ports.From || port > p.ports.To || done[port] || p.owner[port].Load() != 0 {
			return
		}
		done[port] = true
		ring[p.n] = port
		p.n++
	}
	for _, port := range p.free {
		put(port)
	}
	for port := int(p.ports.From); port <= int(p.ports.To); port++ {
		put(uint16(port)) // its connection ended while the image was made
	}
	p.free = ring
}
