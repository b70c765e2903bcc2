package dataplane

import "time"

// Modes of drop_entry, drop_packet and secure_tcp.
const (
	modeOff       = iota
	modeAutomatic // waits for memory to run low
	modeActive    // was automatic, and memory runs low
	modeAlways
)

// defending reports whether a defence of this mode is at work.
func defending(mode int) bool { return mode >= modeActive }

// SetMemory tells the engine how many pages of memory the host has available,
// which for the kernel's IPVS is what is free or in buffers. Once a second the
// automatic defences are held against it: below amemthresh those of mode 1 turn
// to 2, otherwise those of mode 2 to 1. An engine that is never told has enough.
func (d *Director) SetMemory(pages int64) { d.memory.Store(max(pages, 0)) }

// Tunables returns the settings as they are now.
func (d *Director) Tunables() Tunables { return *d.tunables.Load() }

// defend turns the automatic defences on and off and runs a round of drop_entry,
// once a second.
func (w *Worker) defend() {
	round := uint64(w.now / time.Second)
	if w.d.defended.Swap(round) == round {
		return
	}
	w.d.weighMemory()
	if !defending(w.d.tunables.Load().DropEntry) {
		return
	}
	w.d.table.DropSome(round, w.now)
	w.d.templates.DropSome(round, w.now)
}

// weighMemory sets each automatic defence to 1 or 2.
func (d *Director) weighMemory() {
	for {
		was := d.tunables.Load()
		next := *was
		mode := modeAutomatic
		if d.memory.Load() < int64(next.AMemThresh) {
			mode = modeActive
		}
		for _, m := range []*int{&next.DropEntry, &next.DropPacket, &next.SecureTCP} {
			if *m == modeAutomatic || *m == modeActive {
				*m = mode
			}
		}
		if next == *was || d.tunables.CompareAndSwap(was, &next) {
			d.table.SetSecureTCP(defending(d.tunables.Load().SecureTCP))
			return
		}
	}
}

// throttled reports whether drop_packet takes this new connection's packet:
// every am_droprate-th in mode 3; in mode 2 every n-th, where n is amemthresh
// divided by the pages that are missing, so that with half of them gone it is
// every second, and with none left every one.
func (w *Worker) throttled() bool {
	rate := w.throttling()
	return rate > 0 && w.d.drops.Add(1)%uint64(rate) == 0
}

// throttling is which part of new connections drop_packet drops: one in so many; 0:
// none.
func (w *Worker) throttling() int64 {
	tune := w.d.tunables.Load()
	rate := int64(tune.AmDropRate)
	switch tune.DropPacket {
	case modeAlways:
	case modeActive:
		missing := int64(tune.AMemThresh) - w.d.memory.Load()
		if missing <= 0 {
			return 0 // until the next look
		}
		rate = int64(tune.AMemThresh) / missing
	default:
		return 0
	}
	return rate
}

// Automatic reports whether a defence waits for memory to run low.
func (t *Tunables) Automatic() bool {
	for _, mode := range []int{t.DropEntry, t.DropPacket, t.SecureTCP} {
		if mode == modeAutomatic || mode == modeActive {
			return true
		}
	}
	return false
}
