package conntrack_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"pktdirector/conntrack"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// slowTimers is the slow model: it looks at every entry at every step.
type slowTimers struct {
	ends   map[packet.Flow]time.Duration // a multiple of a tick
	active map[packet.Flow]bool
}

// next returns the end of the entry that ends first after now.
func (m *slowTimers) next(now time.Duration) (first time.Duration, ok bool) {
	for _, end := range m.ends {
		if end > now && (!ok || end < first) {
			first, ok = end, true
		}
	}
	return first, ok
}

// TestTimersAreExactToTheTick plays packets of all protocols with timeouts from
// a tick to a month, and stops the clock a tick before, at and after the times at
// which the model says that an entry ends. Meanwhile the counts that Step and the
// end of entries tell are those of the model's entries.
func TestTimersAreExactToTheTick(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		active, inactive := 0, 0
		table := conntrack.New(1<<rapid.IntRange(0, 2).Draw(t, "shard bits"), 1, func(c *conntrack.Conn) {
			if c.Active() {
				active--
			} else {
				inactive--
			}
		})
		timeouts := conntrack.DefaultTimeouts()
		for s := range timeouts {
			timeouts[s] = rapid.SampledFrom([]time.Duration{
				conntrack.Tick, 63 * conntrack.Tick, 64 * conntrack.Tick, 4097 * conntrack.Tick, 10 * time.Second, 61 * time.Second, 15 * time.Minute, 31 * 24 * time.Hour,
			}).Draw(t, "timeout")
		}
		table.SetTimeoutsForTest(timeouts)
		m := slowTimers{map[packet.Flow]time.Duration{}, map[packet.Flow]bool{}}
		now := time.Duration(rapid.IntRange(0, 1<<40).Draw(t, "start"))
		table.Advance(now)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			c := conn(addr("198.51.100.7"), uint16(rapid.IntRange(1, 12).Draw(t, "port")), lvs.Masq)
			c.Proto = rapid.SampledFrom([]packet.Proto{packet.TCP, packet.UDP, packet.SCTP}).Draw(t, "protocol")
			key := request(c)
			slot := table.Lock(c.Proto, c.Client, c.ClientPort)
			entry := slot.Request(&key)
			if entry == nil {
				var err error
				if entry, err = slot.Insert(c); err != nil {
					t.Fatal(err)
				}
				inactive++
			}
			dir := conntrack.Direction(rapid.IntRange(0, 1).Draw(t, "direction"))
			if slot.Step(entry, dir, rapid.Byte().Draw(t, "flags or chunk"), now) {
				if entry.Active() {
					active, inactive = active+1, inactive-1
				} else {
					active, inactive = active-1, inactive+1
				}
			}
			m.ends[key] = (now + timeouts[entry.State] + conntrack.Tick - 1) / conntrack.Tick * conntrack.Tick
			m.active[key] = entry.Active()
			slot.Unlock()

			if end, ok := m.next(now); ok && rapid.Bool().Draw(t, "to an end") {
				now = max(now, end+time.Duration(rapid.IntRange(-1, 1).Draw(t, "ticks off"))*conntrack.Tick)
			} else {
				now += time.Duration(rapid.IntRange(0, 1<<rapid.IntRange(1, 52).Draw(t, "bits")).Draw(t, "pause"))
			}
			table.Advance(now)
			for key, end := range m.ends {
				if end <= now/conntrack.Tick*conntrack.Tick {
					delete(m.ends, key)
					delete(m.active, key)
				}
			}
			wantActive := 0
			for key := range m.ends {
				slot := table.Lock(key.Proto, key.Src, key.SrcPort)
				if slot.Request(&key) == nil {
					t.Fatalf("at %v: %v has ended, it is to end at %v", now, key, m.ends[key])
				}
				slot.Unlock()
				if m.active[key] {
					wantActive++
				}
			}
			if table.Len() != len(m.ends) {
				t.Fatalf("at %v: %d entries, want %d", now, table.Len(), len(m.ends))
			}
			if active != wantActive || inactive != len(m.ends)-wantActive {
				t.Fatalf("%d active and %d inactive are counted, there are %d and %d", active, inactive, wantActive, len(m.ends)-wantActive)
			}
		}
	})
}
