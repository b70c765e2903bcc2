package conntrack_test

import (
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"

	"pktdirector/conntrack"
	"pktdirector/lvs"
)

// An entry with its counters is as large as one without was: pages of 64 entries
// fill the allocator's next size.
func TestSizeOfAConnection(t *testing.T) {
	if n := unsafe.Sizeof(conntrack.Conn{}); n > 144 {
		t.Errorf("a connection takes %d bytes, want 144 at most", n)
	}
}

// What is counted is the sum of it, each way, and stays at the most there is.
func TestCountersOfAConnection(t *testing.T) {
	const mostPackets, mostBytes = 1<<36 - 1, 1<<48 - 1
	rapid.Check(t, func(t *rapid.T) {
		var c conntrack.Conn
		var want [2][2]uint64
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			dir := conntrack.Direction(rapid.IntRange(0, 1).Draw(t, "direction"))
			n := rapid.SampledFrom([]uint64{1, 44, 1<<32 - 1, 1 << 32, 1 << 35, 1<<36 + 5}).Draw(t, "packets")
			bytes := rapid.SampledFrom([]uint64{20, 1500, 65535, 1<<32 - 1, 1 << 47, 1<<48 - 2}).Draw(t, "bytes")
			c.Count(dir, n, bytes)
			want[dir][0] = min(want[dir][0]+n, mostPackets)
			want[dir][1] = min(want[dir][1]+bytes, mostBytes)
			for dir := range want {
				packets, bytes := c.Counted(conntrack.Direction(dir))
				if packets != want[dir][0] || bytes != want[dir][1] {
					t.Fatalf("direction %d: %d packets of %d bytes, want %v", dir, packets, bytes, want[dir])
				}
			}
		}
	})
}

// A connection began when it was entered, to 128 ms, also after years.
func TestAConnectionKnowsWhenItBegan(t *testing.T) {
	const unit = 128 * time.Millisecond
	for _, at := range []time.Duration{0, 130 * time.Millisecond, time.Hour, 31 * 24 * time.Hour, 16 * 365 * 24 * time.Hour} {
		table := conntrack.New(1, 1, func(*conntrack.Conn) {})
		table.Advance(at)
		c := conn(addr("198.51.100.7"), 1000, lvs.Masq)
		if err := insert(table, c); err != nil {
			t.Fatal(err)
		}
		for c := range table.All {
			if got := c.Began(); got > at || at-got >= unit {
				t.Errorf("entered at %v, began at %v", at, got)
			}
			if got := c.Expires(); got <= at {
				t.Errorf("entered at %v, ends at %v", at, got)
			}
		}
	}
}

// What kinds of entries have in one place of memory is only seen by the kind
// that has it.
func TestKindsOfEntriesShareNothing(t *testing.T) {
	tunnel := lvs.TunnelInfo{Type: lvs.GUE, Checksum: lvs.RemoteChecksum, Port: 6080}
	for name, c := range map[string]conntrack.Conn{
		"tunnel": {Method: lvs.Tunnel}, "masq": {Method: lvs.Masq}, "fullnat": {Method: lvs.FullNAT, Flags: conntrack.TOA},
		"template": {Method: lvs.Route, Flags: conntrack.Template},
	} {
		type view struct {
			tunnel           lvs.TunnelInfo
			ack, parent, max uint32
		}
		var want view
		switch name {
		case "tunnel":
			c.SetTunnel(tunnel)
			want.tunnel = tunnel
		case "masq":
			c.SetParent(77)
			want.parent = 77
		case "fullnat":
			c.SetFirstAck(0xdeadbeef)
			want.ack = 0xdeadbeef
		case "template":
			c.SetLifetime(250)
			want.max = 250
		}
		if got := (view{c.Tunnel(), c.FirstAck(), c.Parent(), c.Lifetime()}); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}
