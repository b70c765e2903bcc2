package dataplane

// TakeWaiting gives a restored director what no image carries: fragments and
// packets that wait, with the neighbours that they wait for.
func (d *Director) TakeWaiting(from *Director) {
	d.fragments, d.forwarders = from.fragments, from.forwarders
	d.memory.Store(from.memory.Load())
	d.local.Store(from.local.Load())
	d.host.Store(from.host.Load())
	d.links.Store(from.links.Load())
	d.announce.Store(from.announce.Load())
	d.neighbours.waiting, d.neighbours.open, d.neighbours.woken = from.neighbours.waiting, from.neighbours.open, from.neighbours.woken
	for key, e := range from.neighbours.entries {
		if e.tries > 0 || len(e.waiting) > 0 || !e.known {
			d.neighbours.entries[key] = e
		}
	}
}
