package dataplane

import (
	"fmt"

	"pktdirector/conntrack"
	"pktdirector/lvs"
)

// SourcePool is a pool of FullNAT ports for tests.
type SourcePool struct{ p sourcePool }

// Take gives a port to a connection of a shard; 0: none is left. It reports false
// when the pool is out of use.
func (s *SourcePool) Take(ports lvs.PortRange, shard uint32) (uint16, bool) {
	return s.p.take(ports, shard, 7)
}

// Put takes a port back.
func (s *SourcePool) Put(port uint16) { s.p.put(port) }

// Owner returns the shard of the connection that has a port.
func (s *SourcePool) Owner(port uint16) (shard uint32, ok bool) {
	n := s.p.owner[port].Load()
	return n - 1, n != 0
}

// Retire takes the pool out of use unless a port is in use.
func (s *SourcePool) Retire() bool { return s.p.retire() }

// checkSources holds the pools against the connections: each port in use belongs
// to one connection, which its owner's shard has.
func (d *Director) checkSources() error {
	all := *d.sources.byKey.Load()
	used := map[sourceKey]map[uint16]bool{}
	var wrong error
	d.table.All(func(c conntrack.Conn) bool {
		if c.SourcePort == 0 {
			return true
		}
		key := keyOf(&c, c.Source)
		if used[key] == nil {
			used[key] = map[uint16]bool{}
		}
		switch p := all[key]; {
		case used[key][c.SourcePort]:
			wrong = fmt.Errorf("two connections share %v port %d", key, c.SourcePort)
		case p == nil || p.owner[c.SourcePort].Load() == 0:
			wrong = fmt.Errorf("%v port %d is in use, but free", key, c.SourcePort)
		}
		used[key][c.SourcePort] = true
		return true
	})
	for key, p := range all {
		if p.used != len(used[key]) {
			wrong = fmt.Errorf("%v counts %d ports in use, connections have %d", key, p.used, len(used[key]))
		}
	}
	return wrong
}
