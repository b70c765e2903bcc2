package testbed

import (
	"context"
	"io"
	"net"
	"os"
)

// Wire builds a lab's machines and cables, and gives no host its role yet.
func Wire(t *Topology) (*Lab, error) {
	l := &Lab{Topology: t, opts: Options{Program: Self, Link: AFPacket}, machines: map[string]*machine{}}
	return l, l.wire()
}

// Configure gives a host its role.
func (l *Lab) Configure(h *Host) error { return l.configure(h) }

// SwitchName is the machine that has the bridges.
const SwitchName = switchName

// Call has a keeper of the lab answer a caller on c.
func Call(ctx context.Context, l *Lab, c *net.UnixConn) {
	k := NewKeeper(l)
	close(k.closed)
	k.serve(ctx, c)
}

// Follow reads what a keeper tells while it builds its lab.
func Follow(ctx context.Context, from *os.File, tell func(Step)) error {
	return (&Standing{Name: "nat"}).follow(ctx, from, tell)
}

// ParseTCPCounters is parseTCPCounters.
func ParseTCPCounters(from io.Reader) (sent, retransmitted uint64, err error) {
	c, err := parseTCPCounters(from)
	return c.sent, c.retransmitted, err
}
