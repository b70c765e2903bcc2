package conntrack_test

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"pktdirector/conntrack"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// slowLimit says, by looking at every entry, which one makes way.
type slowLimit struct {
	entries map[packet.Flow]place
	turn    int
}

// place is where an entry stands: the half-open by age, the finished by their
// last packet, all others nowhere.
type place struct {
	kind string // half-open, finished or kept
	turn int
}

func (m *slowLimit) put(f packet.Flow, kind string) {
	m.turn++
	m.entries[f] = place{kind, m.turn}
}

func (m *slowLimit) stepped(f packet.Flow, state string, packets uint64, dir conntrack.Direction) {
	real := state == "ESTABLISHED" || f.Proto == packet.UDP && (packets > 1 || dir == conntrack.Reply)
	over := slices.Contains([]string{"TIME_WAIT", "CLOSE", "CLOSED", "REJECTED"}, state)
	switch was := m.entries[f].kind; {
	case was == "half-open" && real:
		m.put(f, "kept")
	case was == "half-open": // it keeps its place
	case over:
		m.put(f, "finished")
	case was == "finished":
		m.put(f, "half-open")
	}
}

func (m *slowLimit) victim() (victim packet.Flow, found bool) {
	for _, kind := range []string{"half-open", "finished"} {
		first := m.turn + 1
		for f, at := range m.entries {
			if at.kind == kind && at.turn < first {
				victim, found, first = f, true, at.turn
			}
		}
		if found {
			return victim, true
		}
	}
	return victim, false
}

// TestTheOldestHalfOpenEntryMakesWay compares with the slow model, over random
// sequences, which entry ends for which new one.
func TestTheOldestHalfOpenEntryMakesWay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var ended []packet.Flow
		table := conntrack.New(1, 1, func(c *conntrack.Conn) { ended = append(ended, request(*c)) })
		most := rapid.SampledFrom([]int{1, 2, 3, 4, 5, 6}).Draw(t, "most")
		table.SetMax(most)
		model := &slowLimit{entries: map[packet.Flow]place{}}
		now := time.Duration(0)
		for range 200 {
			ended = ended[:0]
			c := conn(addr("198.51.100.7"), rapid.SampledFrom([]uint16{1, 2, 3, 4, 5, 6, 7, 8}).Draw(t, "port"), lvs.Masq)
			c.Proto = rapid.SampledFrom([]packet.Proto{packet.TCP, packet.TCP, packet.TCP, packet.TCP, packet.UDP, packet.SCTP}).Draw(t, "protocol")
			f := request(c)
			slot := table.Lock(c.Proto, c.Client, c.ClientPort)
			if found := slot.Request(&f); found != nil {
				dir := conntrack.Direction(rapid.IntRange(0, 1).Draw(t, "direction"))
				what := rapid.SampledFrom([]uint8{packet.SYN, packet.ACK, packet.ACK, packet.FIN, packet.RST, 10, 11, 14}).Draw(t, "what")
				found.Count(dir, 1, 100)
				slot.Step(found, dir, what, now)
				packets, _ := found.Counted(conntrack.Request)
				model.stepped(f, found.State.String(), packets, dir)
			} else {
				want, some := model.victim()
				full := table.Len() == most
				_, err := slot.Insert(c)
				switch {
				case full && !some && !errors.Is(err, conntrack.ErrTableFull):
					t.Fatalf("nothing can make way, and the error is %v", err)
				case full && some && (err != nil || !slices.Equal(ended, []packet.Flow{want})):
					t.Fatalf("%v made way (%v), want %v", ended, err, want)
				case !full && (err != nil || len(ended) != 0):
					t.Fatalf("there is room, and %v ended (%v)", ended, err)
				}
				if err == nil {
					model.put(f, "half-open")
				}
			}
			slot.Unlock()
			now += time.Duration(rapid.SampledFrom([]int{0, 0, 0, 0, 0, 0, 0, 4, 5_000, 61_000}).Draw(t, "pause")) * time.Millisecond
			table.Advance(now)
			for _, e := range ended {
				delete(model.entries, e)
			}
			if table.Len() > most {
				t.Fatalf("%d entries, at most %d are allowed", table.Len(), most)
			}
		}
	})
}

// Of finished connections the one makes way whose last packet is oldest.
func TestAFinishedConnectionThatIsUsedMakesWayLast(t *testing.T) {
	table := conntrack.New(1, 1, func(*conntrack.Conn) {})
	table.SetMax(2)
	step := func(port uint16, flags ...uint8) {
		c := conn(addr("198.51.100.7"), port, lvs.Route)
		f := request(c)
		slot := table.Lock(c.Proto, c.Client, c.ClientPort)
		defer slot.Unlock()
		entered := slot.Request(&f)
		if entered == nil {
			entered, _ = slot.Insert(c)
		}
		for _, what := range flags {
			slot.Step(entered, conntrack.Request, what, 0)
		}
	}
	step(1, packet.SYN, packet.ACK, packet.RST)
	step(2, packet.SYN, packet.ACK, packet.RST)
	step(1, packet.ACK)
	step(3, packet.SYN)
	for port, want := range map[uint16]bool{1: true, 2: false, 3: true} {
		if q, _ := find(table, conn(addr("198.51.100.7"), port, lvs.Route)); q != want {
			t.Errorf("connection %d is there: %v, want %v", port, q, want)
		}
	}
}

// However the entries are spread over shards, one that may make way is found,
// and established connections stay.
func TestAnyShardsHalfOpenEntryMakesWay(t *testing.T) {
	for _, shards := range []int{1, 2, 64, 256} {
		table := conntrack.New(shards, 1, func(*conntrack.Conn) {})
		const most = 100
		table.SetMax(most)
		add := func(i int, flags ...uint8) error {
			c := conn(packet.AddrFrom4([]byte{10, 0, byte(i >> 8), byte(i)}), 1000, lvs.Route)
			slot := table.Lock(c.Proto, c.Client, c.ClientPort)
			defer slot.Unlock()
			entered, err := slot.Insert(c)
			for _, f := range flags {
				if err == nil {
					slot.Step(entered, conntrack.Request, f, 0)
				}
			}
			return err
		}
		for i := range most - 1 {
			if err := add(i, packet.SYN, packet.ACK); err != nil {
				t.Fatal(err)
			}
		}
		// One place is left, which each next one takes from the one before,
		// whatever shards they are in.
		for i := range 1000 {
			if err := add(1000+i, packet.SYN); err != nil {
				t.Fatalf("%d shards: SYN %d: %v", shards, i, err)
			}
		}
		if table.Len() != most || table.Evicted() != 999 {
			t.Errorf("%d shards: %d entries, %d made way, want %d and 999", shards, table.Len(), table.Evicted(), most)
		}
		// The last is established and ends: now it is the one that makes way.
		if err := add(5000, packet.SYN, packet.ACK, packet.RST); err != nil {
			t.Fatal(err)
		}
		if err := add(5001, packet.SYN, packet.ACK); err != nil {
			t.Errorf("%d shards: a finished connection did not make way: %v", shards, err)
		}
		if err := add(5002, packet.SYN); !errors.Is(err, conntrack.ErrTableFull) {
			t.Errorf("%d shards: established connections only, and the error is %v", shards, err)
		}
		for i := range most - 1 {
			c := conn(packet.AddrFrom4([]byte{10, 0, byte(i >> 8), byte(i)}), 1000, lvs.Route)
			if q, _ := find(table, c); !q {
				t.Errorf("%d shards: established connection %d is gone", shards, i)
			}
		}
	}
}

// A lower limit takes effect as entries are made, two for one.
func TestALoweredLimit(t *testing.T) {
	table := conntrack.New(4, 1, func(*conntrack.Conn) {})
	table.SetMax(1000)
	for i := range 1000 {
		if err := insert(table, conn(packet.AddrFrom4([]byte{10, 0, byte(i >> 8), byte(i)}), 1, lvs.Route)); err != nil {
			t.Fatal(err)
		}
	}
	table.SetMax(100)
	refused := 0
	for i := range 1000 {
		if insert(table, conn(packet.AddrFrom4([]byte{10, 1, byte(i >> 8), byte(i)}), 1, lvs.Route)) != nil {
			refused++
		}
	}
	if table.Len() != 100 {
		t.Errorf("%d entries, want 100", table.Len())
	}
	if refused == 0 || refused == 1000 {
		t.Errorf("%d of 1000 refused while the table shrank", refused)
	}
}

// Workers that all make room at once neither block each other nor pass the
// limit.
func TestWorkersOnAFullTable(t *testing.T) {
	table := conntrack.New(8, 1, func(*conntrack.Conn) {})
	const most, workers = 200, 8
	table.SetMax(most)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range 3000 {
				c := conn(packet.AddrFrom4([]byte{10, byte(w), byte(i >> 8), byte(i)}), 1, lvs.Route)
				slot := table.Lock(c.Proto, c.Client, c.ClientPort)
				slot.Room()
				if entered, err := slot.Insert(c); err == nil {
					slot.Step(entered, conntrack.Request, packet.SYN, 0)
				}
				slot.Unlock()
				if n := table.Len(); n > most+workers {
					t.Errorf("%d entries, at most %d are allowed", n, most)
					return
				}
			}
		})
	}
	wg.Wait()
	n := 0
	for range table.All {
		n++
	}
	if n != table.Len() || n > most {
		t.Errorf("%d entries, counted as %d, at most %d are allowed", n, table.Len(), most)
	}
}

// heap returns the bytes in use after a collection.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A flood of any length needs no more memory than the limit allows, and gives
// it back.
func TestMemoryOfAFlood(t *testing.T) {
	const most, flood = 100_000, 1_000_000
	before := heap()
	table := conntrack.New(128, 1, func(*conntrack.Conn) {})
	table.SetMax(most)
	for i := range flood {
		c := conn(packet.AddrFrom4([]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 1000, lvs.Masq)
		slot := table.Lock(c.Proto, c.Client, c.ClientPort)
		entered, err := slot.Insert(c)
		if err != nil {
			t.Fatal(err)
		}
		slot.Step(entered, conntrack.Request, packet.SYN, 0)
		slot.Unlock()
	}
	full := heap() - before
	t.Logf("%d bytes an entry", full/most)
	if full > most*conntrack.BytesPerEntry {
		t.Errorf("%d entries take %d bytes, more than %d each", table.Len(), full, conntrack.BytesPerEntry)
	}
	if table.Len() != most || table.Evicted() != flood-most {
		t.Errorf("%d entries, %d made way", table.Len(), table.Evicted())
	}
	table.Advance(time.Hour)
	if left := heap() - before; left > full/4 {
		t.Errorf("of %d bytes %d are left in use when all entries have ended", full, left)
	}
	runtime.KeepAlive(table)
}

// BenchmarkFlood is what one SYN of a flood costs in a full table.
func BenchmarkFlood(b *testing.B) {
	const most = 1 << 20
	table := conntrack.New(conntrack.DefaultShards, 1, func(*conntrack.Conn) {})
	table.SetMax(most)
	rng := rand.New(rand.NewPCG(1, 2))
	syn := func() {
		x := rng.Uint64()
		c := conn(packet.AddrFrom4([]byte{byte(x >> 24), byte(x >> 16), byte(x >> 8), byte(x)}), uint16(x>>32), lvs.Masq)
		slot := table.Lock(c.Proto, c.Client, c.ClientPort)
		if f := request(c); slot.Request(&f) == nil {
			if entered, err := slot.Insert(c); err == nil {
				slot.Step(entered, conntrack.Request, packet.SYN, 0)
			}
		}
		slot.Unlock()
	}
	for table.Len() < most {
		syn()
	}
	b.ReportAllocs()
	for b.Loop() {
		syn()
	}
}
