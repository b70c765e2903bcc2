package capture_test

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"pktdirector/capture"
)

// write puts files into a folder and returns their paths.
func write(t testing.TB, files ...[]byte) []string {
	t.Helper()
	dir := t.TempDir()
	var paths []string
	for i, b := range files {
		path := filepath.Join(dir, fmt.Sprintf("%d.pcap", i))
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}

func open(t testing.TB, paths []string) *capture.Reader {
	t.Helper()
	r, err := capture.Open(paths, capture.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// TestMerge cuts a sequence of packets into files at random and reads it again.
func TestMerge(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for round := range 20 {
		n := 1 + random.IntN(12)
		files := make([][]pcapRecord, n)
		type place struct {
			time int64
			file int
			data byte
		}
		var want []place
		for i := range 500 {
			at, f := uint32(i/3), random.IntN(n) // three packets of one time
			b := bytesOf(20, byte(i))
			files[f] = append(files[f], pcapRecord{0, at, 20, 20, b})
			want = append(want, place{int64(at), f, b[0]})
		}
		slices.SortStableFunc(want, func(a, b place) int { return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.file, b.file)) })
		var bytes [][]byte
		for _, f := range files {
			bytes = append(bytes, pcap(binary.LittleEndian, nano, 4, 65535, 1, f...))
		}
		r := open(t, write(t, bytes...))
		got, err := readAll(r)
		if err != nil || len(got) != len(want) || len(r.Warnings()) > 0 {
			t.Fatalf("round %d: %d packets, %v, %v", round, len(got), r.Warnings(), err)
		}
		numbers := make([]uint64, n)
		for i, k := range got {
			numbers[k.File]++
			if (place{k.Time, k.File, k.data[0]}) != want[i] || k.Number != numbers[k.File] || k.Interface.File != k.File {
				t.Fatalf("round %d, packet %d: %+v, want %+v", round, i, k.Record, want[i])
			}
		}
	}
}

// What Next returned stays as it is until the next call, whichever files are open.
func TestDataStaysUntilTheNextCall(t *testing.T) {
	var records []pcapRecord
	for i := range 3000 {
		records = append(records, pcapRecord{uint32(i), 0, 1000, 1000, bytesOf(1000, byte(i))})
	}
	file := pcap(binary.LittleEndian, micro, 4, 65535, 1, records...)
	r := open(t, write(t, file, file))
	var rec capture.Record
	for i := range 6000 {
		if err := r.Next(&rec); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(rec.Data, records[i/2].data) {
			t.Fatalf("packet %d", i)
		}
	}
}

func TestFilesNotInOrder(t *testing.T) {
	t.Run("alone", func(t *testing.T) {
		got, r := fromFiles(t, "not-in-order.pcap")
		want, _ := fromFiles(t, "nano.pcap")
		w := r.Warnings()
		if len(got) != len(want) || len(w) != 1 || w[0].Code != capture.NotInOrder || w[0].First != 7 || w[0].Count != 1 {
			t.Fatalf("%d packets, %v", len(got), w)
		}
		for i, k := range got { // the sixth and those after it, then the first five
			if seen(k, true) != seen(want[(i+5)%11], true) {
				t.Errorf("packet %d", i+1)
			}
		}
	})
	t.Run("beside others", func(t *testing.T) {
		rec := func(sec ...uint32) []byte {
			var all []pcapRecord
			for _, s := range sec {
				all = append(all, pcapRecord{s, 0, 20, 20, bytesOf(20, byte(s))})
			}
			return pcap(binary.LittleEndian, micro, 4, 65535, 1, all...)
		}
		r := open(t, write(t, rec(1, 5, 3, 7), rec(2, 4, 6)))
		got, err := readAll(r)
		var order []int64
		for _, k := range got {
			order = append(order, k.Time/1e9)
		}
		// 3 comes with 5, behind which it lies; the other file is not held up.
		if !slices.Equal(order, []int64{1, 2, 4, 5, 3, 6, 7}) || err != nil || len(r.Warnings()) != 1 {
			t.Errorf("%v, %v, %v", order, r.Warnings(), err)
		}
	})
	t.Run("split where it was cut", func(t *testing.T) {
		got, r := fromFiles(t, "rest.pcap", "first.pcap")
		want, _ := fromFiles(t, "nano.pcap")
		if len(got) != len(want) || len(r.Warnings()) > 0 {
			t.Fatalf("%d packets, %v", len(got), r.Warnings())
		}
		for i, k := range got {
			if seen(k, true) != seen(want[i], true) {
				t.Errorf("packet %d", i+1)
			}
		}
	})
}

// A damaged file among others costs only what is behind the damage.
func TestDamagedFileAmongOthers(t *testing.T) {
	good := pcap(binary.LittleEndian, micro, 4, 65535, 1, pcapRecord{1, 0, 20, 20, bytesOf(20, 1)}, pcapRecord{9, 0, 20, 20, bytesOf(20, 9)})
	bad := pcap(binary.LittleEndian, micro, 4, 65535, 1, pcapRecord{2, 0, 20, 20, bytesOf(20, 2)}, pcapRecord{3, 0, 1 << 30, 20, nil})
	paths := write(t, good, bad)
	r := open(t, paths)
	got, err := readAll(r)
	if len(got) != 3 || got[2].Time != 9e9 {
		t.Errorf("%d packets", len(got))
	}
	wantError(t, err, paths[1], "packet 2")
	var rec capture.Record
	if again := r.Next(&rec); again == nil || again.Error() != err.Error() {
		t.Errorf("the next call: %v", again)
	}
}

// Interfaces of one file whose packets were written a buffer at a time.
func TestInterfacesOutOfStep(t *testing.T) {
	n := newNg(binary.LittleEndian).iface(1, 0, option{9, []byte{3}}).iface(1, 0, option{9, []byte{3}})
	// Pieces of 100 ms of either, the second interface's first.
	for piece := range 20 {
		for i := range 10 {
			n.packet(1, uint64(piece*100+i*10+5), 20, bytesOf(20, 1))
		}
		for i := range 10 {
			n.packet(0, uint64(piece*100+i*10), 20, bytesOf(20, 0))
		}
	}
	got, warned, err := fromBytes(t, n.b)
	if err != nil || len(warned) > 0 || len(got) != 400 {
		t.Fatalf("%d packets, %v, %v", len(got), warned, err)
	}
	for i, k := range got {
		want := bytesOf(20, byte(i%2))
		if k.Time != int64(i)*5e6 || k.Interface.Index != i%2 || !bytes.Equal(k.data, want) {
			t.Fatalf("packet %d: %+v", i, k.Record)
		}
	}

	// Further apart than the window: they come late, and it is said.
	n = newNg(binary.LittleEndian).iface(1, 0, option{9, []byte{3}}).iface(1, 0, option{9, []byte{3}})
	n.packet(0, 1000, 20, bytesOf(20, 0)).packet(0, 3000, 20, bytesOf(20, 0)).packet(1, 500, 20, bytesOf(20, 1))
	got, warned, err = fromBytes(t, n.b)
	if err != nil || len(got) != 3 || !slices.Equal(codes(warned), []string{capture.NotInOrder}) || warned[0].First != 3 {
		t.Errorf("%d packets, %v, %v", len(got), warned, err)
	}
	if !strings.Contains(warned[0].String(), "0.500000000 s older") {
		t.Error(warned[0])
	}
}

// The window for interfaces out of step is bounded in memory.
func TestReorderingIsBounded(t *testing.T) {
	large := bytesOf(200_000, 1)
	n := newNg(binary.LittleEndian).iface(1, 0).iface(1, 0)
	for i := range 600 { // 120 MB within one millisecond
		n.packet(uint32(i%2), uint64(i), len(large), large)
	}
	r, err := capture.NewReader(bytes.NewReader(n.b), capture.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var rec capture.Record
	most := uint64(0)
	for i := range 600 {
		if err := r.Next(&rec); err != nil || rec.Time != int64(i)*1000 || !bytes.Equal(rec.Data, large) {
			t.Fatalf("packet %d: %v", i, err)
		}
		if i%50 == 0 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapAlloc)
		}
	}
	if most > uint64(cap(n.b))+48<<20 {
		t.Errorf("%d bytes held beside the file of %d", most-uint64(cap(n.b)), cap(n.b))
	}
}

// TestInterfacesOutOfStepAtRandom: a file of several interfaces, whose packets are
// written a buffer at a time, is read as a sort by time would have it that keeps
// each interface's own order, also where its clock goes back.
func TestInterfacesOutOfStepAtRandom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type one struct {
			iface     int
			time, key int64 // ms
			number    uint64
		}
		ifaces := rapid.IntRange(2, 9).Draw(t, "interfaces")
		n := newNg(binary.LittleEndian)
		for range ifaces {
			n.iface(1, 0, option{9, []byte{3}})
		}
		var all []one
		latest := make([]int64, ifaces)
		for piece := range rapid.IntRange(1, 12).Draw(t, "pieces") {
			for range rapid.IntRange(1, 6).Draw(t, "buffers") {
				i := rapid.IntRange(0, ifaces-1).Draw(t, "interface")
				for range rapid.IntRange(1, 5).Draw(t, "packets") {
					at := int64(piece*240 + rapid.IntRange(0, 240).Draw(t, "ms"))
					latest[i] = max(latest[i], at)
					all = append(all, one{i, at, latest[i], uint64(len(all) + 1)})
					n.packet(uint32(i), uint64(at), 20, bytesOf(20+len(all)%300, byte(i)))
				}
			}
		}
		r, err := capture.NewReader(bytes.NewReader(n.b), capture.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		slices.SortStableFunc(all, func(a, b one) int { return cmp.Compare(a.key, b.key) })
		var rec capture.Record
		for i, want := range all {
			if err := r.Next(&rec); err != nil {
				t.Fatal(err)
			}
			if rec.Number != want.number || rec.Time != want.time*1e6 || rec.Interface.Index != want.iface || !bytes.Equal(rec.Data, bytesOf(20+int(want.number)%300, byte(want.iface))) {
				t.Fatalf("packet %d: number %d of interface %d, %+v is right", i, rec.Number, rec.Interface.Index, want)
			}
		}
		if err := r.Next(&rec); err != io.EOF {
			t.Fatal(err)
		}
	})
}
