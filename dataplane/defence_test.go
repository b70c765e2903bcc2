package dataplane_test

import (
	"fmt"
	"testing"
	"time"

	"pktdirector/conntrack"
	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// The automatic modes turn themselves on below amemthresh and off again, once a
// second; 0 and 3 stay what they are.
func TestAutomaticDefencesFollowMemory(t *testing.T) {
	for _, name := range []string{"drop_entry", "drop_packet", "secure_tcp"} {
		w := newWorld(t)
		mode := func() int {
			s := w.d.Tunables()
			return map[string]int{"drop_entry": s.DropEntry, "drop_packet": s.DropPacket, "secure_tcp": s.SecureTCP}[name]
		}
		want := func(when string, want int) {
			t.Helper()
			if got := mode(); got != want {
				t.Errorf("%s, %s: mode %d, want %d", name, when, got, want)
			}
		}
		w.set(name, "1")
		w.after(2 * time.Second)
		want("memory not known", 1)
		w.d.SetMemory(1024)
		w.after(2 * time.Second)
		want("exactly amemthresh available", 1)
		w.d.SetMemory(1023)
		w.after(time.Second)
		want("a page less", 2)
		w.set("amemthresh", "1000")
		w.after(time.Second)
		want("amemthresh lowered", 1)
		w.set(name, "2")
		w.after(time.Second)
		want("set to 2 with memory enough", 1)
		for _, fixed := range []string{"0", "3"} {
			w.set(name, fixed)
			for _, pages := range []int64{0, 5000} {
				w.d.SetMemory(pages)
				w.after(time.Second)
				want("fixed, whatever the memory", int(fixed[0]-'0'))
			}
		}
	}
}

// In mode 2 drop_packet takes the more the less memory there is.
func TestDropPacketByMissingMemory(t *testing.T) {
	for _, c := range []struct {
		mode         string
		pages        int64
		rate         string
		wantOf100SYN uint64
	}{
		{"1", 1024, "10", 0},
		{"1", 1023, "10", 0},  // every 1024th
		{"1", 922, "10", 10},  // 102 missing: every 10th
		{"1", 512, "50", 50},  // am_droprate is of mode 3
		{"1", 511, "50", 100}, // 1024/513 is 1
		{"1", 0, "10", 100},
		{"3", 5000, "10", 10},
		{"3", 0, "4", 25},
		{"3", 0, "0", 0},
		{"0", 0, "10", 0},
	} {
		t.Run(fmt.Sprintf("mode %s, %d pages, am_droprate %s", c.mode, c.pages, c.rate), func(t *testing.T) {
			w := newWorld(t, service("rr", lvs.Route, 2))
			w.set("drop_packet", c.mode)
			w.set("am_droprate", c.rate)
			w.d.SetMemory(c.pages)
			w.after(time.Second)
			for i := range 100 {
				w.in(clientLink, w.syn(fmt.Sprint(20000+i)))
			}
			w.wantVerdict(dataplane.ThrottledNew, c.wantOf100SYN)
			w.wantVerdict(dataplane.Forwarded, 100-c.wantOf100SYN)
		})
	}
}

// Packets of connections that are there are never thinned out.
func TestDropPacketLeavesConnectionsAlone(t *testing.T) {
	w := newWorld(t, service("rr", lvs.Route, 1))
	w.establish("40000")
	w.set("drop_packet", "3")
	w.set("am_droprate", "1")
	for range 20 {
		w.wantServer(1, w.segment("40000", packet.ACK))
	}
	w.wantVerdict(dataplane.ThrottledNew, 0)
}

// A flood of half-open connections melts away while memory is low, established
// ones in use stay.
func TestDropEntryWhileMemoryIsLow(t *testing.T) {
	left := func(mode string, pages int64) int {
		w := newShardedWorld(t, 8, service("rr", lvs.Masq, 2))
		w.establish("40000")
		for i := range 2000 {
			w.in(clientLink, w.syn(fmt.Sprint(41000+i)))
		}
		w.set("drop_entry", mode)
		w.d.SetMemory(pages)
		w.after(50 * time.Second)
		if n := len(w.entries(40000)); n != 1 {
			t.Errorf("mode %s, %d pages: the established connection is gone", mode, pages)
		}
		if n := w.d.Status()[0].Destinations; n[0].Active+n[1].Active != int64(w.d.Table().Connections) {
			t.Errorf("mode %s: counts %d and %d of %d entries", mode, n[0].Active, n[1].Active, w.d.Table().Connections)
		}
		return w.d.Table().Connections - 1
	}
	for _, c := range []struct {
		mode  string
		pages int64
		melts bool
	}{{"0", 0, false}, {"1", 5000, false}, {"1", 1000, true}, {"3", 5000, true}} {
		if n := left(c.mode, c.pages); n == 2000 == c.melts || c.melts && n > 200 {
			t.Errorf("drop_entry %s with %d pages: %d of 2000 half-open entries after 50 s", c.mode, c.pages, n)
		}
	}
}

// secure_tcp in mode 1: with memory low a client's ACK alone establishes
// nothing.
func TestSecureTCPWhileMemoryIsLow(t *testing.T) {
	w := newWorld(t, service("rr", lvs.Masq, 1))
	w.set("secure_tcp", "1")
	for _, c := range []struct {
		port  string
		pages int64
		want  conntrack.State
	}{{"40000", 5000, conntrack.Established}, {"40001", 10, conntrack.SynRecv}, {"40002", 5000, conntrack.Established}} {
		w.d.SetMemory(c.pages)
		w.after(time.Second)
		w.in(clientLink, w.syn(c.port))
		w.in(clientLink, w.segment(c.port, packet.ACK))
		var port uint16
		fmt.Sscan(c.port, &port)
		if list := w.entries(port); len(list) != 1 || list[0].State != c.want {
			t.Errorf("%d pages: %+v, want %v", c.pages, list, c.want)
		}
	}
}
