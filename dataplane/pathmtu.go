package dataplane

import (
	"sync"
	"sync/atomic"
	"time"

	"pktdirector/packet"
)

// Limits of what is remembered of path MTUs.
const (
	// pathMTUAge is how long a path MTU holds: the kernel's
	// net.ipv4.route.mtu_expires.
	pathMTUAge = 10 * time.Minute
	// pathMTUEntries is how many real servers have one at a time.
	pathMTUEntries = 1024
	// minPathMTU is the least that a router is believed over IPv4: the kernel's
	// net.ipv4.route.min_pmtu.
	minPathMTU = 552
	// minPathMTU6 is the least MTU of IPv6 (RFC 8200 section 5).
	minPathMTU6 = 1280
)

// pathMTUs remembers what routers said of the largest packet that reaches a real
// server by a tunnel, or with the option that tells a FullNAT server its client
// (RFC 1191, RFC 8201). Packets for it look at the map without a lock; it is
// replaced as a whole.
type pathMTUs struct {
	learning sync.Mutex
	known    atomic.Pointer[map[packet.Addr]pathMTU] // nil: none
}

type pathMTU struct {
	mtu     int
	expires time.Duration // engine time
}

// limit returns the MTU towards a real server by a hop with the given MTU.
func (m *pathMTUs) limit(to packet.Addr, mtu int, now time.Duration) int {
	known := m.known.Load()
	if known == nil {
		return mtu
	}
	if p, ok := (*known)[to]; ok && now < p.expires {
		return min(mtu, p.mtu)
	}
	return mtu
}

// learn notes that a router said mtu about a packet to a real server. Only
// a smaller one than what holds changes anything.
func (m *pathMTUs) learn(to packet.Addr, mtu, holds int, now time.Duration) {
	least := minPathMTU
	if !to.Is4() {
		least = minPathMTU6
	}
	if mtu = max(mtu, least); mtu >= holds {
		return
	}
	m.learning.Lock()
	defer m.learning.Unlock()
	next := map[packet.Addr]pathMTU{}
	if known := m.known.Load(); known != nil {
		for a, p := range *known {
			if now < p.expires {
				next[a] = p
			}
		}
	}
	if _, ok := next[to]; !ok && len(next) >= pathMTUEntries {
		return
	}
	next[to] = pathMTU{mtu, now + pathMTUAge}
	m.known.Store(&next)
}
