package conntrack

import (
	"math/bits"
	"time"
)

// Tick is the resolution of all timers: the kernel's jiffy at HZ=250.
const Tick = 4 * time.Millisecond

// A timer wheel of four levels of 64 slots: level l holds entries that end
// within 64^(l+1) ticks, in slots 64^l ticks wide. 64^4 ticks are 18 hours; an
// entry that ends later waits in the last slot and is placed anew when that
// comes.
const (
	wheelBits   = 6
	wheelSlots  = 1 << wheelBits
	wheelLevels = 4
)

// heldTemplate is the lifetime of a template that its service's timeout has
// passed over while connections made through it live; the kernel's, from then on
// also for new connections through it.
const heldTemplate = 60 * time.Second

// never is a tick that does not come.
const never = ^uint64(0)

// wheel holds the entries of one shard by the tick at which they end. Setting
// an entry's end later moves nothing: the entry is looked at when its old slot
// comes, and placed anew then. Slots are doubly linked lists of handles; 0 is
// the end of a list.
type wheel struct {
	now      uint64 // all ticks up to and including now are done
	heads    [wheelLevels][wheelSlots]uint32
	occupied [wheelLevels]uint64 // bit per slot with entries
}

// place says where an entry that ends at tick `at` belongs, seen from w.now.
func (w *wheel) place(at uint64) (level, slot int) {
	at = max(at, w.now+1)
	for level = range wheelLevels - 1 {
		shift := level * wheelBits
		if at>>shift-w.now>>shift < wheelSlots {
			return level, int(at>>shift) & (wheelSlots - 1)
		}
	}
	level = wheelLevels - 1
	shift := level * wheelBits
	at = min(at, w.now+(wheelSlots-1)<<shift)
	return level, int(at>>shift) & (wheelSlots - 1)
}

// nextEvent returns the next tick after w.now at which a slot must be looked
// at, or never. No entry ends before it.
func (w *wheel) nextEvent() uint64 {
	next := never
	for level := range wheelLevels {
		if w.occupied[level] == 0 {
			continue
		}
		shift := level * wheelBits
		current := w.now >> shift
		ahead := bits.RotateLeft64(w.occupied[level], -int((current+1)&(wheelSlots-1)))
		next = min(next, (current+1+uint64(bits.TrailingZeros64(ahead)))<<shift)
	}
	return next
}

// arm links c into the slot for its end.
func (s *shard) arm(c *Conn) {
	level, slot := s.wheel.place(c.ends())
	head := &s.wheel.heads[level][slot]
	c.slot = uint8(level<<wheelBits | slot)
	c.prev, c.next = 0, *head
	if *head != 0 {
		s.conn(*head).prev = c.self
	}
	*head = c.self
	s.wheel.occupied[level] |= 1 << slot
}

// disarm takes c out of its slot.
func (s *shard) disarm(c *Conn) {
	level, slot := int(c.slot)>>wheelBits, int(c.slot)&(wheelSlots-1)
	if c.next != 0 {
		s.conn(c.next).prev = c.prev
	}
	if c.prev != 0 {
		s.conn(c.prev).next = c.next
		return
	}
	s.wheel.heads[level][slot] = c.next
	if c.next == 0 {
		s.wheel.occupied[level] &^= 1 << slot
	}
}

// armedFor returns the earliest tick at which c's slot is looked at; an entry
// that is to end sooner must be armed anew.
func (w *wheel) armedFor(c *Conn) uint64 {
	level, slot := int(c.slot)>>wheelBits, uint64(c.slot)&(wheelSlots-1)
	shift := level * wheelBits
	current := w.now >> shift
	ahead := (slot - current) & (wheelSlots - 1)
	if ahead == 0 {
		ahead = wheelSlots
	}
	return (current + ahead) << shift
}

// advance ends, in the order of their ticks, all entries due up to tick.
func (s *shard) advance(tick uint64, t *Table) {
	w := &s.wheel
	for {
		event := w.nextEvent()
		if event > tick {
			w.now = max(w.now, tick)
			break
		}
		w.now = event
		for level := wheelLevels - 1; level >= 0; level-- {
			shift := level * wheelBits
			if event&(1<<shift-1) != 0 {
				continue
			}
			s.empty(level, int(event>>shift)&(wheelSlots-1), t)
		}
	}
	s.due.Store(w.nextEvent())
}

// empty ends or places anew every entry of a slot whose time has come.
func (s *shard) empty(level, slot int, t *Table) {
	handle := s.wheel.heads[level][slot]
	s.wheel.heads[level][slot] = 0
	s.wheel.occupied[level] &^= 1 << slot
	for handle != 0 {
		c := s.conn(handle)
		handle = c.next
		if c.ends() <= s.wheel.now && (c.holders() > 0 || t.held != nil && t.held(c)) {
			// Connections hang on the entry: it gets a lifetime of its own.
			if c.Flags&Template != 0 {
				c.SetLifetime(uint32(heldTemplate / Tick))
			}
			c.setEnds(s.wheel.now + uint64(heldTemplate/Tick))
		}
		if c.ends() > s.wheel.now {
			s.arm(c)
			continue
		}
		t.endDisarmed(s, c)
	}
}
