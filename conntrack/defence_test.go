package conntrack_test

import (
	"fmt"
	"testing"
	"time"

	"pktdirector/conntrack"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// TestWhatDropSomeTakes makes 840 entries of a kind, so that each thinning
// divides them, lets them idle and runs one round over a table of one shard.
func TestWhatDropSomeTakes(t *testing.T) {
	const n = 840
	syn, ack, fin := uint8(packet.SYN), uint8(packet.ACK), uint8(packet.FIN|packet.ACK)
	for _, c := range []struct {
		what     string
		proto    packet.Proto
		packets  []uint8
		template bool
		idle     time.Duration
		taken    int
	}{
		{"half-open, just come", packet.TCP, []uint8{syn}, false, 0, n},
		{"established, 2 packets, idle 60 s", packet.TCP, []uint8{syn, ack}, false, time.Minute, n / 2},
		{"established, 3 packets, idle 60 s", packet.TCP, []uint8{syn, ack, ack}, false, time.Minute, n / 3},
		{"established, 8 packets, idle 60 s", packet.TCP, []uint8{syn, ack, ack, ack, ack, ack, ack, ack}, false, time.Minute, n / 8},
		{"established, 9 packets, idle 10 minutes", packet.TCP, []uint8{syn, ack, ack, ack, ack, ack, ack, ack, ack}, false, 10 * time.Minute, 0},
		{"established, 2 packets, idle 59 s", packet.TCP, []uint8{syn, ack}, false, 59 * time.Second, 0},
		{"finished", packet.TCP, []uint8{syn, ack, fin}, false, time.Minute, 0},
		{"UDP, a packet, idle 60 s", packet.UDP, []uint8{0}, false, time.Minute, n},
		{"UDP, a packet, just come", packet.UDP, []uint8{0}, false, 0, 0},
		{"UDP, 4 packets, idle 60 s", packet.UDP, []uint8{0, 0, 0, 0}, false, time.Minute, n / 4},
		{"SCTP, INIT", packet.SCTP, []uint8{1}, false, 0, n},
		{"SCTP, established, 3 packets, idle 60 s", packet.SCTP, []uint8{1, 10, 0}, false, time.Minute, n / 3},
		{"SCTP, established, 3 packets, idle 59 s", packet.SCTP, []uint8{1, 10, 0}, false, 59 * time.Second, 0},
		{"SCTP, shut down", packet.SCTP, []uint8{1, 10, 7}, false, time.Minute, 0},
		{"templates that nobody uses", packet.TCP, nil, true, 0, n},
	} {
		t.Run(c.what, func(t *testing.T) {
			ended := 0
			table := conntrack.New(1, 1, func(*conntrack.Conn) { ended++ })
			for i := range n {
				e := conn(addr(fmt.Sprintf("198.51.%d.%d", i/250, i%250)), 1000, lvs.Route)
				e.Proto, e.Flags = c.proto, conntrack.NoOutput
				if c.template {
					e.ClientPort, e.Flags = 0, conntrack.Template
				}
				slot := table.Lock(e.Proto, e.Client, e.ClientPort)
				entry, err := slot.Insert(e)
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range c.packets {
					entry.Count(conntrack.Request, 1, 100)
					slot.Step(entry, conntrack.Request, p, 0)
				}
				slot.Unlock()
			}
			table.Advance(c.idle)
			table.DropSome(1, c.idle)
			if ended != c.taken || table.Len() != n-c.taken {
				t.Errorf("%d of %d were taken, want %d; %d are left", ended, n, c.taken, table.Len())
			}
		})
	}
}

// TestDropSomeLooksAtAPart bounds a round's work: a thirty-second part of the
// shards, another one each time.
func TestDropSomeLooksAtAPart(t *testing.T) {
	const shards, n = 128, 12800
	table := conntrack.New(shards, 1, func(*conntrack.Conn) {})
	for i := range n {
		e := conn(addr(fmt.Sprintf("198.51.%d.%d", i/250, i%250)), 1000, lvs.Route)
		slot := table.Lock(e.Proto, e.Client, e.ClientPort)
		entry, err := slot.Insert(e)
		if err != nil {
			t.Fatal(err)
		}
		slot.Step(entry, conntrack.Request, packet.SYN, 0)
		slot.Unlock()
	}
	for round := range uint64(8) {
		before := table.Len()
		table.DropSome(round, 0)
		if gone := before - table.Len(); gone > n/shards*2*shards/32 {
			t.Errorf("round %d took %d of %d", round, gone, before)
		}
	}
	if left := table.Len(); left == n || left < n/2 {
		t.Errorf("8 rounds left %d of %d", left, n)
	}
}

// TestDropSomeSparesUsedTemplates: a template with connections, or one that
// proved itself, stays.
func TestDropSomeSparesUsedTemplates(t *testing.T) {
	table := conntrack.New(1, 1, func(*conntrack.Conn) {})
	var held, assured conntrack.TemplateRef
	for i, ref := range []*conntrack.TemplateRef{&held, &assured} {
		e := conn(addr(fmt.Sprintf("198.51.100.%d", i)), 0, lvs.Route)
		e.Flags = conntrack.Template
		slot := table.Lock(e.Proto, e.Client, 0)
		entry, err := slot.Insert(e)
		if err != nil {
			t.Fatal(err)
		}
		*ref = slot.Hold(entry)
		slot.Unlock()
	}
	table.Assure(assured)
	table.Release(assured)
	table.DropSome(1, 0)
	if n := table.Len(); n != 2 {
		t.Errorf("%d templates left, want 2", n)
	}
	table.Release(held)
	table.DropSome(2, 0)
	if n := table.Len(); n != 1 {
		t.Errorf("%d templates left once nobody held the unproved one, want 1", n)
	}
}
