package dataplane

import (
	"maps"
	"slices"
	"time"

	"pktdirector/image"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// What the parts of a director's image hold.
const (
	// ImageOfCaller is what who writes the image keeps beside the engine's state.
	ImageOfCaller image.Kind = 1 + iota
	imageRules
	imageFTP
	imageSources
	imageHop
	imageTemplates
	imageConnections
)

// shardsPerPart is how many shards of a table one part of an image holds.
const shardsPerPart = 8

// Image takes the director's state apart into parts. Each can be encoded by
// another goroutine; a shard's lock is held while it is encoded, and no other. While
// packets pass, parts are of different moments: connections come first, and what they
// refer to after them. Restore makes the best of it. For an image of one moment, all
// workers must rest.
//
// Not carried: fragments and packets that wait, the host's routes, links and memory,
// and decisions.
type Image struct {
	d     *Director
	held  bool
	now   time.Duration
	parts []imagePart
}

type imagePart struct {
	kind image.Kind
	from int // first shard
}

// Image returns what the director's state can be written by; now is the engine's
// time, not before that of any packet. held tells that the caller has called Hold.
func (d *Director) Image(now time.Duration, held bool) *Image {
	m := &Image{d: d, now: now, held: held}
	for from := 0; from < d.table.Shards(); from += shardsPerPart {
		m.parts = append(m.parts, imagePart{imageConnections, from})
	}
	for from := 0; from < d.templates.Shards(); from += shardsPerPart {
		m.parts = append(m.parts, imagePart{imageTemplates, from})
	}
	for _, kind := range []image.Kind{imageFTP, imageSources, imageHop, imageRules} {
		m.parts = append(m.parts, imagePart{kind, 0})
	}
	return m
}

// Parts returns how many parts there are. The last one has the rules.
func (m *Image) Parts() int { return len(m.parts) }

// AppendPart appends part i, as number n of a file.
func (m *Image) AppendPart(b []byte, i, n int) []byte {
	return image.AppendPart(b, m.parts[i].kind, n, func(b []byte) []byte {
		x := image.Writing(b)
		m.write(x, m.parts[i])
		return x.Bytes()
	})
}

func (m *Image) write(x *image.Codec, p imagePart) {
	d := m.d
	switch p.kind {
	case imageConnections, imageTemplates:
		table := d.table
		if p.kind == imageTemplates {
			table = d.templates
		}
		from := uint32(p.from)
		image.Num(x, &from)
		for i := p.from; i < min(p.from+shardsPerPart, table.Shards()); i++ {
			table.CarryShard(x, i)
		}
	case imageFTP:
		d.ftp.carry(x)
	case imageSources:
		d.sources.write(x)
	case imageHop:
		d.neighbours.carry(x)
		d.paths.carry(x)
	case imageRules:
		if !m.held {
			defer d.Hold()()
		}
		d.writeRules(x, m.now)
	}
}

// Hold keeps administrators from changing anything until release is called. What
// they ask for waits.
func (d *Director) Hold() (release func()) {
	d.applying.Lock()
	return d.applying.Unlock
}

// imageHead is what must be known before anything else of an image.
type imageHead struct {
	Seed              uint64
	Shards, Templates uint32
	Now               time.Duration
}

func (h *imageHead) carry(x *image.Codec) {
	image.Num(x, &h.Seed)
	image.Num(x, &h.Shards)
	image.Num(x, &h.Templates)
	image.Num(x, &h.Now)
	const most = 1 << 20
	if h.Now < 0 || h.Now > longestAge || h.Shards == 0 || h.Templates == 0 || h.Shards > most || h.Templates > most {
		x.Fail("tables of %d and %d shards, at %v", h.Shards, h.Templates, h.Now)
	}
}

// age makes now the time, and forgets what the host said.
func (n *neighbours) age(now time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.now = max(n.now, now)
	maps.DeleteFunc(n.entries, func(_ neighbourKey, e *neighbour) bool { return e.fromHost })
}

// relink moves neighbours to where their links are now.
func (n *neighbours) relink(to func(link int) (int, bool)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	moved := make(map[neighbourKey]*neighbour, len(n.entries))
	for key, e := range n.entries {
		if link, there := to(key.link); there {
			key.link = link
			moved[key] = e
		}
	}
	n.entries = moved
}

// imageParts returns how many parts a table of so many shards takes.
func imageParts(shards uint32) int { return (int(shards) + shardsPerPart - 1) / shardsPerPart }

// writeRules writes all but connections and what is found by them. d.applying is
// held.
func (d *Director) writeRules(x *image.Codec, now time.Duration) {
	head := imageHead{d.seed, uint32(d.table.Shards()), uint32(d.templates.Shards()), now}
	head.carry(x)
	d.carryCounts(x)
	d.table.Carry(x)
	d.templates.Carry(x)
	tune := *d.tunables.Load()
	carryTunables(x, &tune)

	rules := d.rules.Load()
	marks := slices.Clone(rules.marks)
	image.List(x, &marks, 20, func(x *image.Codec, m *lvs.MarkRule) { m.Carry(x) })
	x.Count(len(rules.services), 30)
	for _, svc := range rules.services {
		svc.mu.Lock()
		svc.carry(x, nil)
		svc.mu.Unlock()
	}
	x.Count(len(d.retired), 30)
	for key, list := range d.retired {
		key.Carry(x)
		carryIDs(x, list)
	}
	// Destinations last: whoever was named above is among them.
	all := d.dests.Load().all
	x.Count(len(all), 100)
	for _, dest := range all {
		dest.Carry(x)
	}
}

// carryCounts carries what the engine counts beside services and tables.
func (d *Director) carryCounts(x *image.Codec) {
	for _, n := range []interface {
		Load() uint64
		Store(uint64)
	}{
		&d.defended, &d.estimated, &d.drops, &d.bounced, &d.choices.scheduled, &d.choices.fallback, &d.choices.template, &d.choices.none,
		&d.choices.overloaded, &d.choices.abandoned, &d.choices.reused, &d.choices.expired,
	} {
		v := n.Load()
		image.Num(x, &v)
		if x.Reads() {
			n.Store(v)
		}
	}
	id, standby := d.ipID.Load(), d.standby.Load()
	image.Num(x, &id)
	x.Bool(&standby)
	// Whoever writes stores nothing: it would take back what is counted meanwhile.
	if x.Reads() {
		d.ipID.Store(id)
		d.standby.Store(standby)
	}
	d.past.Carry(x)
	// Verdicts by name: another program may know more or less of them.
	words := verdictWords()
	n := x.Count(int(numVerdicts-1), 12)
	for i := range n {
		var name string
		var count uint64
		if !x.Reads() {
			name, count = words[i+1][0], d.verdicts[i+1].Load()
		}
		x.Text(&name)
		image.Num(x, &count)
		if !x.Reads() {
			continue
		}
		if at := slices.IndexFunc(words[1:], func(w [2]string) bool { return w[0] == name }); at >= 0 {
			d.verdicts[at+1].Store(count)
		}
	}
}

// carryTunables carries settings by name.
func carryTunables(x *image.Codec, t *Tunables) {
	all := Settings()
	n := x.Count(len(all), 12)
	for i := range n {
		var name string
		var value int
		if !x.Reads() {
			name, value = all[i].Name, *all[i].field(t)
		}
		x.Text(&name)
		image.Num(x, &value)
		if !x.Reads() {
			continue
		}
		at := slices.IndexFunc(all, func(s Setting) bool { return s.Name == name })
		if at < 0 || value < 0 || value > all[at].Most {
			x.Fail("setting %q of %d", name, value)
			return
		}
		*all[at].field(t) = value
	}
}

// carryIDs writes destinations by their IDs.
func carryIDs(x *image.Codec, list []*lvs.Destination) {
	x.Count(len(list), 4)
	for _, d := range list {
		image.Num(x, &d.ID)
	}
}

// carry writes the neighbours that are known, or reads them.
func (n *neighbours) carry(x *image.Codec) {
	n.mu.Lock()
	defer n.mu.Unlock()
	known := 0
	for _, e := range n.entries {
		if e.known {
			known++
		}
	}
	each := func(key neighbourKey, e *neighbour) {
		x.Addr(&key.addr)
		image.Num(x, &key.link)
		image.Num(x, &key.vlan)
		for i := range e.mac {
			image.Num(x, &e.mac[i])
		}
		x.Bool(&e.fromHost)
		x.Bool(&e.permanent)
		x.Bool(&e.vital)
		image.Num(x, &e.confirmed)
		const mostLinks = 1 << 16
		if x.Reads() && (key.link < 0 || key.link >= mostLinks) {
			x.Fail("a neighbour on link %d", key.link)
		}
		if x.Reads() && x.Err() == nil {
			e.known = true
			n.entries[key] = e
		}
	}
	known = x.Count(known, 40)
	if x.Reads() {
		for range known {
			each(neighbourKey{}, &neighbour{})
		}
		return
	}
	for key, e := range n.entries {
		if e.known {
			each(key, e)
		}
	}
}

// carry writes the path MTUs, or reads them.
func (m *pathMTUs) carry(x *image.Codec) {
	m.learning.Lock()
	defer m.learning.Unlock()
	all := map[packet.Addr]pathMTU{}
	if known := m.known.Load(); known != nil {
		all = *known
	}
	const maxMTU = 1 << 16
	each := func(to packet.Addr, p pathMTU) {
		x.Addr(&to)
		image.Num(x, &p.mtu)
		image.Num(x, &p.expires)
		if x.Reads() && (p.mtu < minPathMTU || p.mtu > maxMTU) {
			x.Fail("a path MTU of %d", p.mtu)
		}
		if x.Reads() {
			all[to] = p
		}
	}
	n := x.Count(len(all), 32) // at most pathMTUEntries, and what is too old
	if !x.Reads() {
		for to, p := range all {
			each(to, p)
		}
		return
	}
	if n > pathMTUEntries {
		x.Fail("%d path MTUs: at most %d are kept", n, pathMTUEntries)
		return
	}
	for range n {
		each(packet.Addr{}, pathMTU{})
	}
	m.known.Store(&all)
}
