package dataplane

import (
	"fmt"

	"pktdirector/conntrack"
)

// Waiting returns how many packets wait for a neighbour, those of the engine's
// own not counted.
func (d *Director) Waiting() (n int) {
	d.neighbours.mu.Lock()
	defer d.neighbours.mu.Unlock()
	for _, e := range d.neighbours.entries {
		for _, p := range e.waiting {
			if Verdict(p.Verdict) != pending {
				n++
			}
		}
	}
	return n
}

// HelperEntries returns how many connections the FTP helper knows.
func (d *Director) HelperEntries() int {
	d.ftp.mu.Lock()
	defer d.ftp.mu.Unlock()
	return len(d.ftp.byFlow) + int(d.ftp.waiting.Load())
}

// CheckCounts compares every destination's counts, those of removed servers
// included, with the entries of the tables.
func (d *Director) CheckCounts() error {
	type counts struct{ active, inactive, templates int64 }
	all := d.dests.Load().all
	want := make([]counts, len(all))
	d.table.All(func(c conntrack.Conn) bool {
		if c.Active() {
			want[c.DestID].active++
		} else {
			want[c.DestID].inactive++
		}
		return true
	})
	d.templates.All(func(c conntrack.Conn) bool {
		want[c.DestID].templates++
		return true
	})
	for i, dest := range all {
		if got := (counts{dest.Active(), dest.Inactive(), dest.Persistent.Load()}); got != want[i] {
			return fmt.Errorf("%v of %v: counts %+v, its entries are %+v", dest.Server, dest.Service, got, want[i])
		}
	}
	return d.checkSources()
}

// CheckLimits holds what strangers can fill against its limits.
func (d *Director) CheckLimits() error {
	n := &d.neighbours
	n.mu.Lock()
	defer n.mu.Unlock()
	waiting, open, strangers := 0, 0, 0
	for _, e := range n.entries {
		if len(e.waiting) > neighbourQueue {
			return fmt.Errorf("%d packets wait for one neighbour", len(e.waiting))
		}
		if e.tries > 0 {
			open++
		}
		if !e.vital {
			waiting += len(e.waiting)
			strangers++
		}
	}
	if waiting != n.waiting || waiting > neighbourWaiting {
		return fmt.Errorf("%d packets wait for neighbours, %d are counted, %d allowed", waiting, n.waiting, neighbourWaiting)
	}
	if open != n.open || strangers > neighbourEntries {
		return fmt.Errorf("%d neighbours are asked for, %d are counted; %d are known", open, n.open, strangers)
	}
	if known := d.paths.known.Load(); known != nil && len(*known) > pathMTUEntries {
		return fmt.Errorf("%d path MTUs", len(*known))
	}
	return nil
}
