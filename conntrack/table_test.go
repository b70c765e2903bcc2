package conntrack_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"pktdirector/conntrack"
	"pktdirector/lvs"
	"pktdirector/packet"
)

func addr(s string) packet.Addr { return packet.MustParseAddr(s) }

var vip, rip = addr("192.0.2.10"), addr("10.2.0.1")

func conn(client packet.Addr, port uint16, m lvs.Method) conntrack.Conn {
	return conntrack.Conn{Proto: packet.TCP, Client: client, ClientPort: port, Virtual: vip, VirtualPort: 80, Dest: rip, DestPort: 8080, Method: m}
}

func request(c conntrack.Conn) packet.Flow {
	return packet.Flow{Proto: c.Proto, Src: c.Client, SrcPort: c.ClientPort, Dst: c.Virtual, DstPort: c.VirtualPort}
}

func reply(c conntrack.Conn) packet.Flow {
	return packet.Flow{Proto: c.Proto, Src: c.Dest, SrcPort: c.DestPort, Dst: c.Client, DstPort: c.ClientPort}
}

func insert(t *conntrack.Table, c conntrack.Conn) error {
	slot := t.Lock(c.Proto, c.Client, c.ClientPort)
	defer slot.Unlock()
	_, err := slot.Insert(c)
	return err
}

// find looks a flow up as a director does and returns a copy.
func find(t *conntrack.Table, c conntrack.Conn) (byRequest, byReply bool) {
	slot := t.Lock(c.Proto, c.Client, c.ClientPort)
	defer slot.Unlock()
	f, r := request(c), reply(c)
	return slot.Request(&f) != nil, slot.Reply(&r) != nil
}

func TestAConnectionIsFoundFromBothSides(t *testing.T) {
	for _, client := range []string{"198.51.100.7", "2001:db8::7"} {
		table := conntrack.New(8, 1, func(*conntrack.Conn) {})
		c := conn(addr(client), 1000, lvs.Masq)
		if err := insert(table, c); err != nil {
			t.Fatal(err)
		}
		if q, r := find(table, c); !q || !r {
			t.Errorf("client %s: found by request %v, by reply %v", client, q, r)
		}
	}
}

func TestDirectRoutingHasNoReplyKey(t *testing.T) {
	table := conntrack.New(8, 1, func(*conntrack.Conn) {})
	c := conn(addr("198.51.100.7"), 1000, lvs.Route)
	if err := insert(table, c); err != nil {
		t.Fatal(err)
	}
	if q, r := find(table, c); !q || r {
		t.Errorf("found by request %v, by reply %v", q, r)
	}
}

func TestATakenReplyKeyIsNoticed(t *testing.T) {
	table := conntrack.New(8, 1, func(*conntrack.Conn) {})
	a := conn(addr("198.51.100.7"), 1000, lvs.Masq)
	b := a
	b.Virtual = addr("192.0.2.11") // the same client port, another VIP, the same real server
	if err := insert(table, a); err != nil {
		t.Fatal(err)
	}
	if err := insert(table, b); err != conntrack.ErrReplyTaken {
		t.Errorf("second insert: %v, want ErrReplyTaken", err)
	}
	if table.Len() != 1 {
		t.Errorf("%d entries, want 1", table.Len())
	}
}

// TestTableAgreesWithAMap runs random inserts, steps, removals and pauses
// against a plain map and compares after each.
func TestTableAgreesWithAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var ended []conntrack.Conn
		table := conntrack.New(1<<rapid.IntRange(0, 3).Draw(t, "shard bits"), rapid.Uint64().Draw(t, "seed"),
			func(c *conntrack.Conn) { ended = append(ended, *c) })
		type entry struct {
			conn    conntrack.Conn
			expires time.Duration
		}
		model := map[packet.Flow]entry{}
		timeouts := conntrack.DefaultTimeouts()
		now := time.Duration(0)
		pick := func() conntrack.Conn {
			return conn(addr("198.51.100.7"), uint16(rapid.IntRange(1, 40).Draw(t, "port")), lvs.Method(rapid.IntRange(0, 2).Draw(t, "method")))
		}
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			ended = ended[:0]
			c := pick()
			key := request(c)
			had, known := model[key]
			slot := table.Lock(c.Proto, c.Client, c.ClientPort)
			found := slot.Request(&key)
			if (found != nil) != known {
				t.Fatalf("%v: in the table %v, in the map %v", key, found != nil, known)
			}
			switch rapid.IntRange(0, 3).Draw(t, "op") {
			case 0:
				if known {
					break
				}
				entered, err := slot.Insert(c)
				if err != nil {
					t.Fatal(err)
				}
				slot.Step(entered, conntrack.Request, packet.SYN, now)
				model[key] = entry{c, now + timeouts[conntrack.SynRecv]}
			case 1:
				if !known {
					break
				}
				slot.Step(found, conntrack.Request, rapid.SampledFrom([]uint8{packet.ACK, packet.FIN, packet.RST, 0}).Draw(t, "flags"), now)
				had.expires = now + timeouts[found.State]
				model[key] = had
			case 2:
				if known {
					slot.Remove(found)
					delete(model, key)
				}
			}
			slot.Unlock()
			now += time.Duration(rapid.SampledFrom([]int{0, 4, 100, 5_000, 61_000, 400_000}).Draw(t, "pause")) * time.Millisecond
			table.Advance(now)
			for k, e := range model {
				if e.expires <= now {
					delete(model, k)
				}
			}
			if table.Len() != len(model) {
				t.Fatalf("at %v: %d entries, the map has %d", now, table.Len(), len(model))
			}
			for k, e := range model {
				s := table.Lock(k.Proto, k.Src, k.SrcPort)
				if got := s.Request(&k); got == nil {
					t.Fatalf("at %v: %v is lost, due %v", now, k, e.expires)
				} else if got.Expires() != e.expires {
					t.Fatalf("%v ends at %v, want %v", k, got.Expires(), e.expires)
				}
				s.Unlock()
			}
		}
	})
}

// TestEntriesEndExactlyOnTheirTick checks timeouts from one tick to a month.
func TestEntriesEndExactlyOnTheirTick(t *testing.T) {
	for _, timeout := range []time.Duration{
		conntrack.Tick, 63 * conntrack.Tick, 64 * conntrack.Tick, 65 * conntrack.Tick, time.Second, 10 * time.Second, 60 * time.Second,
		900 * time.Second, 18 * time.Hour, 31 * 24 * time.Hour, 60 * 24 * time.Hour,
	} {
		for _, start := range []time.Duration{0, 4 * time.Millisecond, 255 * time.Millisecond, 77 * time.Hour} {
			t.Run(fmt.Sprintf("%v from %v", timeout, start), func(t *testing.T) {
				table := conntrack.New(1, 1, func(*conntrack.Conn) {})
				timeouts := conntrack.DefaultTimeouts()
				timeouts[conntrack.Established] = timeout
				table.SetTimeoutsForTest(timeouts)
				table.Advance(start)
				c := conn(addr("198.51.100.7"), 1000, lvs.Route)
				slot := table.Lock(c.Proto, c.Client, c.ClientPort)
				entered, _ := slot.Insert(c)
				slot.Step(entered, conntrack.Request, packet.ACK, start)
				slot.Unlock()
				end := (start + timeout + conntrack.Tick - 1) / conntrack.Tick * conntrack.Tick
				table.Advance(end - conntrack.Tick)
				if table.Len() != 1 {
					t.Error("ended a tick early")
				}
				table.Advance(end)
				if table.Len() != 0 {
					t.Error("still there on its tick")
				}
			})
		}
	}
}

func TestWorkersOnOneTable(t *testing.T) {
	var mu sync.Mutex
	active := 0
	table := conntrack.New(16, 7, func(c *conntrack.Conn) {
		mu.Lock()
		defer mu.Unlock()
		if c.Active() {
			active--
		}
	})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 1))
			for i := range 5000 {
				c := conn(addr("198.51.100.7"), uint16(rng.IntN(500)+1), lvs.Route)
				f := request(c)
				slot := table.Lock(c.Proto, c.Client, c.ClientPort)
				found := slot.Request(&f)
				if found == nil {
					found, _ = slot.Insert(c)
				}
				was := found.Active()
				if slot.Step(found, conntrack.Request, []uint8{packet.SYN, packet.ACK, packet.FIN, packet.RST}[rng.IntN(4)], time.Duration(i)*time.Millisecond) {
					mu.Lock()
					if was {
						active--
					} else {
						active++
					}
					mu.Unlock()
				}
				slot.Unlock()
				if i%100 == 0 {
					table.Advance(time.Duration(i) * time.Millisecond)
				}
			}
		})
	}
	wg.Wait()
	table.Advance(time.Hour)
	if table.Len() != 0 || active != 0 {
		t.Errorf("after all timeouts: %d entries, %d active", table.Len(), active)
	}
}

func filled(tb testing.TB, n int) (*conntrack.Table, []conntrack.Conn) {
	tb.Helper()
	table := conntrack.New(conntrack.DefaultShards, 1, func(*conntrack.Conn) {})
	conns := make([]conntrack.Conn, n)
	for i := range conns {
		conns[i] = conn(packet.AddrFrom4([]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), uint16(i>>24+1000), lvs.Masq)
		if err := insert(table, conns[i]); err != nil {
			tb.Fatal(err)
		}
	}
	return table, conns
}

func TestAHitAllocatesNothing(t *testing.T) {
	table, conns := filled(t, 1000)
	i := 0
	if n := testing.AllocsPerRun(1000, func() {
		f := request(conns[i%len(conns)])
		i++
		slot := table.Lock(f.Proto, f.Src, f.SrcPort)
		slot.Step(slot.Request(&f), conntrack.Request, packet.ACK, time.Duration(i)*time.Millisecond)
		slot.Unlock()
	}); n != 0 {
		t.Errorf("%v allocations a hit", n)
	}
}

func BenchmarkHit(b *testing.B) {
	for _, n := range []int{1 << 16, 1 << 20} {
		b.Run(fmt.Sprintf("%d connections", n), func(b *testing.B) {
			table, conns := filled(b, n)
			rng := rand.New(rand.NewPCG(1, 2))
			b.ReportAllocs()
			for b.Loop() {
				f := request(conns[rng.IntN(n)])
				slot := table.Lock(f.Proto, f.Src, f.SrcPort)
				slot.Step(slot.Request(&f), conntrack.Request, packet.ACK, 0)
				slot.Unlock()
			}
		})
	}
}
