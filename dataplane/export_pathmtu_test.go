package dataplane

import (
	"time"

	"pktdirector/packet"
)

// LearnPathMTU notes a path MTU and returns how many are remembered.
func (d *Director) LearnPathMTU(to packet.Addr, mtu int, now time.Duration) int {
	d.paths.learn(to, mtu, 1500, now)
	return len(*d.paths.known.Load())
}

// PathMTU returns what is remembered, or 1500.
func (d *Director) PathMTU(to packet.Addr, now time.Duration) int {
	return d.paths.limit(to, 1500, now)
}
