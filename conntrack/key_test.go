package conntrack_test

import (
	"encoding/binary"
	"sync"
	"testing"
	"time"

	"pktdirector/conntrack"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// flowOf is the request of the i-th of many clients.
func flowOf(i int) packet.Flow {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], 0x0a000000|uint32(i>>4))
	return packet.Flow{
		Proto: packet.TCP, Src: packet.AddrFrom4(b[:]), SrcPort: uint16(1024 + i&15),
		Dst: packet.MustParseAddr("192.0.2.10"), DstPort: 80,
	}
}

func connOf(f packet.Flow) conntrack.Conn {
	return conntrack.Conn{
		Proto: f.Proto, Client: f.Src, ClientPort: f.SrcPort, Virtual: f.Dst, VirtualPort: f.DstPort,
		Dest: packet.MustParseAddr("198.51.100.1"), DestPort: 8080, Method: lvs.Masq,
	}
}

// TestKeysFindWhatFlowsFind looks for entries by keys made beforehand: those that are
// there, in both directions, and those that are not.
func TestKeysFindWhatFlowsFind(t *testing.T) {
	table := conntrack.New(4, 1, func(*conntrack.Conn) {})
	const n = 3000
	for i := 0; i < n; i += 2 {
		f := flowOf(i)
		slot := table.Lock(f.Proto, f.Src, f.SrcPort)
		if _, err := slot.Insert(connOf(f)); err != nil {
			t.Fatal(err)
		}
		slot.Unlock()
	}
	for i := range n {
		f := flowOf(i)
		reply := packet.Flow{Proto: f.Proto, Src: packet.MustParseAddr("198.51.100.1"), SrcPort: 8080, Dst: f.Src, DstPort: f.SrcPort}
		for direction, k := range map[string]conntrack.Key{"request": table.RequestKey(&f), "reply": table.ReplyKey(&reply)} {
			k.FetchShard()
			k.FetchCell()
			k.FetchEntry()
			slot := table.LockKey(&k)
			c := slot.RequestAt(&k, &f)
			if direction == "reply" {
				c = slot.ReplyAt(&k, &reply)
			}
			if (c != nil) != (i%2 == 0) {
				t.Errorf("%s of connection %d: found %v", direction, i, c != nil)
			}
			if c != nil && (c.Client != f.Src || c.ClientPort != f.SrcPort) {
				t.Errorf("%s of connection %d found another's entry", direction, i)
			}
			slot.Unlock()
		}
	}
}

// TestKeysAreFetchedWhileTheTableChanges is for the race detector: shards grow, shrink,
// give pages back and take new ones while others fetch what was there.
func TestKeysAreFetchedWhileTheTableChanges(t *testing.T) {
	table := conntrack.New(2, 1, func(*conntrack.Conn) {})
	done := make(chan struct{})
	var readers sync.WaitGroup
	for r := range 2 {
		readers.Go(func() {
			for i := r; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				f := flowOf(i % 4000)
				k := table.RequestKey(&f)
				k.FetchShard()
				k.FetchCell()
				k.FetchEntry()
			}
		})
	}
	for round := range 5 {
		for i := range 4000 {
			f := flowOf(i)
			slot := table.Lock(f.Proto, f.Src, f.SrcPort)
			if _, err := slot.Insert(connOf(f)); err != nil {
				t.Error(err)
			}
			slot.Unlock()
		}
		table.Advance(time.Duration(round+1) * time.Hour)
		if n := table.Len(); n != 0 {
			t.Errorf("round %d: %d entries are left", round, n)
		}
	}
	close(done)
	readers.Wait()
}
