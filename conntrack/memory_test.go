package conntrack_test

import (
	"testing"
	"time"

	"pktdirector/conntrack"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// What a table says of its memory is what the heap says, and falls when the
// entries have ended.
func TestATableTellsItsMemory(t *testing.T) {
	const entries = 50_000
	before := heap()
	table := conntrack.New(128, 1, func(*conntrack.Conn) {})
	if empty := table.Memory(); empty > 128*1024 {
		t.Errorf("an empty table says %d bytes", empty)
	}
	for i := range entries {
		c := conn(packet.AddrFrom4([]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 1000, lvs.Masq)
		slot := table.Lock(c.Proto, c.Client, c.ClientPort)
		entered, err := slot.Insert(c)
		if err != nil {
			t.Fatal(err)
		}
		slot.Step(entered, conntrack.Request, packet.SYN, 0)
		slot.Unlock()
	}
	said, real := int64(table.Memory()), heap()-before
	if said < real*8/10 || said > real*12/10 {
		t.Errorf("%d entries: the table says %d bytes, the heap has grown by %d", table.Len(), said, real)
	}
	table.Advance(time.Hour)
	if after := int64(table.Memory()); after > said/4 {
		t.Errorf("without entries the table still says %d of %d bytes", after, said)
	}
}
