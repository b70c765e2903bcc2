package conntrack_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pktdirector/conntrack"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// However many entries a shard has, few are looked at while it is locked: others
// get the lock in between.
func TestAShardIsLockedForAFewEntriesAtATime(t *testing.T) {
	const entries, most = 5000, 64
	table := conntrack.New(1, 1, func(*conntrack.Conn) {})
	for i := range entries {
		if err := insert(table, conn(packet.AddrFrom4([]byte{10, 0, byte(i >> 8), byte(i)}), 1000, lvs.Masq)); err != nil {
			t.Fatal(err)
		}
	}
	// A page's entries are met without a pause; the time between two tells
	// nothing, so the last one of a page lets somebody else have the lock.
	inOne, longest, met := 0, 0, 0
	for range table.Select(func(*conntrack.Conn) bool { inOne++; longest = max(longest, inOne); return true }) {
		met++
		if inOne > 0 {
			slot := table.Lock(packet.TCP, vip, 1) // the only shard: no lock is held
			slot.Unlock()
		}
		inOne = 0
	}
	if met != entries || longest > most {
		t.Errorf("%d entries were met, up to %d under one lock; want %d and %d", met, longest, entries, most)
	}
	inOne, longest = 0, 0
	conntrack.OnPage(table, func() { inOne = 0 }, func(*conntrack.Conn) { inOne++; longest = max(longest, inOne) })
	if longest > most {
		t.Errorf("%d entries under one lock where they are ended", longest)
	}
}

// Entries that live while the table is gone through are met once, whatever comes
// and goes.
func TestEntriesThatStayAreMetOnce(t *testing.T) {
	table := conntrack.New(2, 1, func(*conntrack.Conn) {})
	at := func(i int) conntrack.Conn {
		return conn(packet.AddrFrom4([]byte{10, 0, byte(i >> 8), byte(i)}), 1000, lvs.Masq)
	}
	for i := range 1000 {
		if err := insert(table, at(i)); err != nil {
			t.Fatal(err)
		}
	}
	met, next := map[packet.Addr]int{}, 1000
	for c := range table.All {
		met[c.Client]++
		// One of the second half goes, and a new one comes.
		gone := at(500 + next%500)
		slot := table.Lock(gone.Proto, gone.Client, gone.ClientPort)
		f := request(gone)
		if e := slot.Request(&f); e != nil {
			slot.Remove(e)
		}
		slot.Unlock()
		if next < 3000 {
			if err := insert(table, at(next)); err != nil {
				t.Fatal(err)
			}
			next++
		}
	}
	for i := range 500 {
		if n := met[at(i).Client]; n != 1 {
			t.Errorf("entry %d was met %d times", i, n)
		}
	}
}

// A template that a connection holds goes out of use and ends after it; one that
// none holds ends at once.
func TestDismissingTemplates(t *testing.T) {
	ended := 0
	table := conntrack.New(1, 1, func(*conntrack.Conn) { ended++ })
	template := func(client string) conntrack.Conn {
		c := conntrack.Conn{Proto: packet.TCP, Client: addr(client), Virtual: vip, VirtualPort: 80, Dest: rip, DestPort: 80, Flags: conntrack.Template}
		c.SetLifetime(uint32(time.Minute / conntrack.Tick))
		return c
	}
	var ref conntrack.TemplateRef
	for i, client := range []string{"198.51.100.1", "198.51.100.2"} {
		c := template(client)
		slot := table.Lock(c.Proto, c.Client, 0)
		entry, err := slot.Insert(c)
		if err != nil {
			t.Fatal(err)
		}
		slot.Renew(entry, 0)
		if i == 0 {
			ref = slot.Hold(entry)
		}
		slot.Unlock()
	}
	all := func(*conntrack.Conn) bool { return true }
	if n := table.Dismiss(all); n != 2 || ended != 1 || table.Len() != 1 {
		t.Fatalf("%d dismissed, %d ended, %d left; want 2, 1, 1", n, ended, table.Len())
	}
	if found, _ := find(table, template("198.51.100.1")); found {
		t.Error("the dismissed template is still found")
	}
	if n := table.Dismiss(all); n != 0 {
		t.Errorf("%d dismissed a second time", n)
	}
	for now := time.Duration(0); now < 10*time.Minute; now += time.Second {
		table.Advance(now)
	}
	if table.Len() != 1 {
		t.Error("it ended before its connection")
	}
	table.Release(ref)
	table.Advance(12 * time.Minute)
	if table.Len() != 0 || ended != 2 {
		t.Errorf("%d entries are left, %d ended", table.Len(), ended)
	}
}

// BenchmarkWhileListing is a hit while somebody goes through a table of a million
// entries all the time. "max-us" is the longest that a hit took, "listed/s" how
// many entries were met.
func BenchmarkWhileListing(b *testing.B) {
	const n = 1 << 20
	for _, listing := range []bool{false, true} {
		b.Run(fmt.Sprintf("listing %v", listing), func(b *testing.B) {
			table, conns := filled(b, n)
			stop, met := make(chan struct{}), make(chan int)
			go func() {
				count := 0
				defer func() { met <- count }()
				for {
					for range table.All {
						if count++; count%64 != 0 {
							continue
						}
						select {
						case <-stop:
							return
						default:
						}
					}
					if !listing {
						<-stop
						return
					}
				}
			}()
			rng := rand.New(rand.NewPCG(1, 2))
			longest := time.Duration(0)
			b.ReportAllocs()
			for b.Loop() {
				f := request(conns[rng.IntN(n)])
				began := time.Now()
				slot := table.Lock(f.Proto, f.Src, f.SrcPort)
				slot.Step(slot.Request(&f), conntrack.Request, packet.ACK, 0)
				slot.Unlock()
				longest = max(longest, time.Since(began))
			}
			close(stop)
			b.ReportMetric(float64(<-met)/b.Elapsed().Seconds(), "listed/s")
			b.ReportMetric(float64(longest.Microseconds()), "max-us")
		})
	}
}

// BenchmarkShardLockedByListing lists a million entries as the API does. "hold-max-us"
// is the longest that a shard was locked, waiting for the lock included, "hold-p99-ns" what one
// lock in a hundred exceeds; a lock is for 64 entries at most.
func BenchmarkShardLockedByListing(b *testing.B) {
	const n = 1 << 20
	table, _ := filled(b, n)
	var held []time.Duration
	copies := make([]conntrack.Conn, 0, 64)
	for b.Loop() {
		held = held[:0]
		var began time.Time
		end := func() {
			if !began.IsZero() {
				held = append(held, time.Since(began))
			}
			copies = copies[:0]
			began = time.Now()
		}
		conntrack.OnPage(table, end, func(c *conntrack.Conn) { copies = append(copies, *c) })
		end()
	}
	slices.Sort(held)
	b.ReportMetric(float64(held[len(held)-1].Nanoseconds())/1000, "hold-max-us")
	b.ReportMetric(float64(held[len(held)*99/100].Nanoseconds()), "hold-p99-ns")
	b.ReportMetric(float64(len(held)), "locks")
}
