package dataplane_test

import (
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"

	"pktdirector/dataplane"
	"pktdirector/lvs"
)

// slowPool is a pool as a list of free ports that is searched: the port that came
// back longest ago is the first.
type slowPool struct {
	ports lvs.PortRange
	used  map[uint16]uint32
	freed map[uint16]int // when each port came back; 0: never used
	clock int
}

func (s *slowPool) in(p uint16) bool { return p >= s.ports.From && p <= s.ports.To }

// mayGive reports whether a port may be given next: it is of the range, free, and
// no other came back before it.
func (s *slowPool) mayGive(port uint16) bool {
	if _, used := s.used[port]; used || !s.in(port) {
		return false
	}
	for p := int(s.ports.From); p <= int(s.ports.To); p++ {
		if _, used := s.used[uint16(p)]; !used && s.freed[uint16(p)] < s.freed[port] {
			return false
		}
	}
	return true
}

func (s *slowPool) full() bool {
	for p := int(s.ports.From); p <= int(s.ports.To); p++ {
		if _, used := s.used[uint16(p)]; !used {
			return false
		}
	}
	return true
}

// TestMemoryOfAPool: 256 KiB, a little for bookkeeping, and 2 bytes for each port
// of the range.
func TestMemoryOfAPool(t *testing.T) {
	pool := reflect.TypeFor[dataplane.SourcePool]()
	if size := pool.Size(); size > 256<<10+128 {
		t.Errorf("a pool has %d bytes, want 256 KiB and a little", size)
	}
	if free, _ := pool.Field(0).Type.FieldByName("free"); free.Type.Elem().Size() != 2 {
		t.Errorf("a port of the range has %d bytes, want 2", free.Type.Elem().Size())
	}
}

// TestPoolsGiveWhatASlowPoolWouldGive takes and gives back ports at random, while
// the range changes now and then.
func TestPoolsGiveWhatASlowPoolWouldGive(t *testing.T) {
	ranges := []lvs.PortRange{{From: 1, To: 8}, {From: 5, To: 30}, {From: 65530, To: 65535}, {From: 10, To: 10}}
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		pool, slow := &dataplane.SourcePool{}, &slowPool{ports: ranges[0], used: map[uint16]uint32{}, freed: map[uint16]int{}}
		for i := range 3000 {
			if r.IntN(2) == 0 {
				if r.IntN(100) == 0 {
					// The order of what is free begins anew with another range.
					if next := ranges[r.IntN(len(ranges))]; next != slow.ports {
						slow.ports, slow.freed = next, map[uint16]int{}
					}
				}
				shard := r.Uint32N(1024)
				port, ok := pool.Take(slow.ports, shard)
				switch {
				case !ok:
					t.Fatalf("step %d: out of use", i)
				case port == 0 && slow.full():
					continue
				case port == 0 || !slow.mayGive(port):
					t.Fatalf("step %d: given %d of %v, used %v, freed %v", i, port, slow.ports, slow.used, slow.freed)
				}
				slow.used[port] = shard
			} else if len(slow.used) > 0 {
				for port := range slow.used {
					pool.Put(port)
					delete(slow.used, port)
					slow.clock++
					slow.freed[port] = slow.clock
					break
				}
			}
			for _, p := range []uint16{1, 7, 10, 30, 65535} {
				shard, used := pool.Owner(p)
				if want, is := slow.used[p]; used != is || used && shard != want {
					t.Fatalf("step %d: port %d is of shard %d, %v; want %d, %v", i, p, shard, used, want, is)
				}
			}
		}
		if pool.Retire() != (len(slow.used) == 0) {
			t.Errorf("retired with %d ports in use", len(slow.used))
		}
	}
}

// TestWorkersNeverGetOnePortTwice: eight goroutines take and give back ports of a
// small pool; no two ever hold the same.
func TestWorkersNeverGetOnePortTwice(t *testing.T) {
	pool := &dataplane.SourcePool{}
	ports := lvs.PortRange{From: 100, To: 107}
	var mu sync.Mutex
	held := map[uint16]bool{}
	var all sync.WaitGroup
	for shard := range uint32(8) {
		all.Go(func() {
			for range 2000 {
				port, ok := pool.Take(ports, shard)
				if !ok || port == 0 {
					continue
				}
				mu.Lock()
				if held[port] {
					t.Errorf("port %d is held twice", port)
				}
				held[port] = true
				mu.Unlock()
				mu.Lock()
				delete(held, port)
				mu.Unlock()
				pool.Put(port)
			}
		})
	}
	all.Wait()
	for range 8 {
		if port, _ := pool.Take(ports, 0); port == 0 {
			t.Error("a port is lost")
		}
	}
}
