package capture_test

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"pktdirector/capture"
)

// seen is a packet as one line: time, EtherType, payload.
func seen(k kept, withTime bool) string {
	at := ""
	if withTime {
		at = fmt.Sprintf("%d.%09d ", k.Time/1e9, k.Time%1e9)
	}
	return fmt.Sprintf("%s%04x %x", at, uint16(k.EtherType), k.data[k.Offset:])
}

// TestCorpus reads every file of testdata. All were made of the same packets, and
// must be the same again; testdata/make.sh makes them.
func TestCorpus(t *testing.T) {
	type file struct {
		name   string
		with   string                         // the file it must equal
		only   func(k kept) bool              // packets that it has
		times  bool                           // it has that file's times, too
		format string                         // what File says
		more   func(t *testing.T, got []kept) // what else must hold
		warned []string                       // codes of warnings
	}
	ip := func(k kept) bool { return k.EtherType == 0x0800 || k.EtherType == 0x86dd }
	ip4 := func(k kept) bool { return k.EtherType == 0x0800 }
	ip6 := func(k kept) bool { return k.EtherType == 0x86dd }
	cut := []string{capture.CutFile}
	tags := func(want ...uint16) func(*testing.T, []kept) {
		return func(t *testing.T, got []kept) {
			for _, k := range got {
				var ids []uint16
				for _, tag := range k.Tags() {
					ids = append(ids, tag.VLAN())
				}
				if !slices.Equal(ids, want) || k.Offset != 14+4*len(want) {
					t.Errorf("packet %d: tags %v, payload at %d", k.Number, k.Tags(), k.Offset)
				}
			}
		}
	}
	cooked := func(v2 bool) func(*testing.T, []kept) {
		return func(t *testing.T, got []kept) {
			near, far := "02:00:00:00:00:01", "02:00:00:00:00:02"
			for _, k := range got {
				// In the near namespace, its own packets are outgoing.
				want := map[string]capture.Direction{near: capture.Outgoing, far: capture.Incoming}[k.SrcMAC.String()]
				if k.Direction != want || want == 0 || !k.HasSrc || k.HasDst || (k.IfIndex != 0) != v2 {
					t.Errorf("packet %d: %+v", k.Number, k.LinkLayer)
				}
			}
		}
	}
	all := []file{
		{name: "ethernet.pcap", format: "pcap, little-endian, microseconds", more: func(t *testing.T, got []kept) {
			for _, k := range got {
				if !k.HasSrc || !k.HasDst || k.Offset != 14 || k.Direction != capture.DirectionUnknown || k.SrcMAC == k.DstMAC {
					t.Errorf("packet %d: %+v", k.Number, k.LinkLayer)
				}
			}
			if got[0].Kind != capture.Broadcast || got[1].Kind != capture.KindUnknown {
				t.Errorf("kinds %v, %v", got[0].Kind, got[1].Kind)
			}
		}},
		{name: "nano.pcap", format: "pcap, little-endian, nanoseconds"},
		{name: "micro.pcap", with: "nano.pcap", format: "pcap, little-endian, microseconds"},
		{name: "big-endian-micro.pcap", with: "micro.pcap", times: true, format: "pcap, big-endian, microseconds"},
		{name: "big-endian-nano.pcap", with: "nano.pcap", times: true, format: "pcap, big-endian, nanoseconds"},
		{name: "nano.pcapng", with: "nano.pcap", times: true, format: "pcapng, little-endian"},
		{name: "micro.pcapng", with: "ethernet.pcap", times: true, format: "pcapng, little-endian"},
		{name: "big-endian-nano.pcapng", with: "nano.pcap", times: true, format: "pcapng, big-endian"},
		{name: "big-endian-micro.pcapng", with: "ethernet.pcap", times: true, format: "pcapng, big-endian"},
		{name: "nano.pcap.gz", with: "nano.pcap", times: true, format: "pcap, little-endian, nanoseconds, gzip"},
		{name: "nano.pcap.zst", with: "nano.pcap", times: true, format: "pcap, little-endian, nanoseconds, zstd"},
		{name: "nano.pcapng.gz", with: "nano.pcap", times: true, format: "pcapng, little-endian, gzip"},
		{name: "nano.pcapng.zst", with: "nano.pcap", times: true, format: "pcapng, little-endian, zstd"},
		{name: "cut.pcap", with: "nano.pcap", times: true, only: func(k kept) bool { return k.Number < 11 }, warned: cut},
		{name: "cut.pcapng", with: "nano.pcap", times: true, only: func(k kept) bool { return k.Number < 11 }, warned: cut},
		{name: "raw.pcap", with: "nano.pcap", times: true, only: ip, more: tagsNone},
		{name: "raw.pcapng", with: "nano.pcap", times: true, only: ip},
		{name: "type12.pcap", with: "nano.pcap", only: ip},
		{name: "type14.pcap", with: "nano.pcap", only: ip},
		{name: "type228.pcap", with: "nano.pcap", only: ip4},
		{name: "type229.pcap", with: "nano.pcap", only: ip6},
		{name: "type0-ip4.pcap", with: "nano.pcap", only: ip4},
		{name: "type0-ip4-big-endian.pcap", with: "nano.pcap", only: ip4},
		{name: "type0-ip6.pcap", with: "nano.pcap", only: ip6},
		{name: "type108-ip4.pcap", with: "nano.pcap", only: ip4},
		{name: "type108-ip6.pcap", with: "nano.pcap", only: ip6},
		{name: "sll.pcap", with: "ethernet.pcap", times: true, more: cooked(false)},
		{name: "sll2.pcap", with: "ethernet.pcap", times: true, more: cooked(true)},
		{name: "vlan.pcap", with: "fixed.pcap", more: tags(100)},
		{name: "qinq.pcap", with: "fixed.pcap", more: tags(200, 100)},
		{name: "names.pcapng", with: "nano.pcap", times: true},
		{name: "secrets.pcapng", with: "nano.pcap", times: true},
		{name: "comments.pcapng", with: "nano.pcap", times: true, more: func(t *testing.T, got []kept) {
			for _, k := range got {
				want := map[uint64][]string{2: {"the second packet"}, 3: {"Grüße"}}[k.Number]
				if !slices.Equal(k.Comments, want) {
					t.Errorf("packet %d: comments %q, want %q", k.Number, k.Comments, want)
				}
			}
		}},
	}
	read := map[string]bool{}
	for _, f := range all {
		read[f.name] = true
		t.Run(f.name, func(t *testing.T) {
			got, r := fromFiles(t, f.name)
			if c := codes(r.Warnings()); !slices.Equal(c, f.warned) {
				t.Errorf("warnings %v", r.Warnings())
			}
			if f.format != "" {
				info := r.Files()[0]
				if have := strings.TrimSuffix(info.Format+", "+info.Compression, ", "); have != f.format || info.Packets != uint64(len(got)) {
					t.Errorf("%+v: want %s", info, f.format)
				}
			}
			want, _ := fromFiles(t, cmp.Or(f.with, f.name))
			if f.only != nil {
				want = slices.DeleteFunc(want, func(k kept) bool { return !f.only(k) })
			}
			if len(got) != len(want) || len(want) < 4 {
				t.Fatalf("%d packets, want %d", len(got), len(want))
			}
			for i := range got {
				if a, b := seen(got[i], f.times), seen(want[i], f.times); a != b {
					t.Errorf("packet %d:\n%s\nwant\n%s", i+1, a, b)
				}
				if k := got[i]; k.Truncated || k.OrigLen != len(k.data) || k.Number != uint64(i+1) {
					t.Errorf("packet %d: %+v", i+1, k.Record)
				}
			}
			if f.more != nil {
				f.more(t, got)
			}
		})
	}
	for _, name := range corpusElsewhere() {
		read[name] = true
	}
	files, err := filepath.Glob("testdata/*.*")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if name := filepath.Base(f); name != "make.sh" && !read[name] {
			t.Errorf("no test reads %s", f)
		}
	}
}

func tagsNone(t *testing.T, got []kept) {
	for _, k := range got {
		if len(k.Tags()) > 0 || k.HasSrc || k.HasDst || k.Offset != 0 {
			t.Errorf("packet %d: %+v", k.Number, k.LinkLayer)
		}
	}
}

// corpusElsewhere are the files that TestCorpusOtherwise and others read.
func corpusElsewhere() []string {
	return []string{"cut.pcap.gz", "cut.pcap.zst", "fixed.pcap", "snaplen60.pcap", "snaplen60.pcapng", "two-interfaces.pcapng", "two-sections.pcapng",
		"dumpcap.pcapng", "mixed-types.pcapng", "not-in-order.pcap", "first.pcap", "rest.pcap", "lo.pcap", "lo-any-sll2.pcap",
		"type127.pcap", "modified.pcap", "snoop.snoop", "netmon.cap", "nano.pcap.xz", "nano.pcap.bz2"}
}

func TestCutPackedFiles(t *testing.T) {
	want, _ := fromFiles(t, "nano.pcap")
	got, r := fromFiles(t, "cut.pcap.gz")
	if c := codes(r.Warnings()); !slices.Equal(c, []string{capture.CutFile}) || len(got) >= len(want) || len(got) < 5 {
		t.Errorf("%d packets, %v", len(got), r.Warnings())
	}
	for i := range got {
		if seen(got[i], true) != seen(want[i], true) {
			t.Errorf("packet %d differs", i+1)
		}
	}
	// zstd unpacks whole blocks, and this small file is one.
	_, err := capture.Open([]string{"testdata/cut.pcap.zst"}, capture.Options{})
	wantError(t, err, "cut.pcap.zst", "zstd", "before anything can be unpacked")
	// Of a larger one, the blocks before the cut are read.
	file := manyPackets(20000)
	packed, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	whole := packed.EncodeAll(file, nil)
	got, warned, err := fromBytes(t, whole[:len(whole)*2/3])
	if c := codes(warned); err != nil || len(got) < 5000 || len(got) >= 20000 || !slices.Equal(c, []string{capture.CutFile}) {
		t.Errorf("%d packets, %v, %v", len(got), warned, err)
	}
}

// manyPackets is a file of n packets of 100 bytes.
func manyPackets(n int) []byte {
	records := make([]pcapRecord, n)
	for i := range records {
		b := bytesOf(100, byte(i))
		binary.BigEndian.PutUint32(b[40:], uint32(i*2654435761))
		records[i] = pcapRecord{uint32(1 + i/1e6), uint32(i % 1e6), 100, 100, b}
	}
	return pcap(binary.LittleEndian, micro, 4, 65535, 1, records...)
}

func TestSnaplen(t *testing.T) {
	want, _ := fromFiles(t, "nano.pcap")
	for _, name := range []string{"snaplen60.pcap", "snaplen60.pcapng"} {
		got, r := fromFiles(t, name)
		if len(got) != len(want) || len(r.Warnings()) > 0 {
			t.Fatalf("%s: %d packets, %v", name, len(got), r.Warnings())
		}
		for i, k := range got {
			whole := want[i].data
			if n := min(60, len(whole)); !bytes.Equal(k.data, whole[:n]) || k.OrigLen != len(whole) || k.Truncated != (len(whole) > 60) || k.Time != want[i].Time {
				t.Errorf("%s: %+v", name, k.Record)
			}
		}
	}
}

func TestTwoInterfaces(t *testing.T) {
	// mergecap puts packets of one time one after another.
	want, _ := fromFiles(t, "ethernet.pcap")
	got, _ := fromFiles(t, "two-interfaces.pcapng")
	if len(got) != 2*len(want) {
		t.Fatalf("%d packets", len(got))
	}
	for i, k := range got {
		kind := []capture.LinkType{capture.Ethernet, capture.SLL}[k.Interface.Index]
		if k.Interface.Index == got[i^1].Interface.Index || k.Interface.LinkType != kind || seen(k, true) != seen(want[i/2], true) {
			t.Errorf("packet %d: %+v", i+1, k.Record)
		}
	}
}

func TestTwoSections(t *testing.T) {
	want, _ := fromFiles(t, "nano.pcap")
	got, r := fromFiles(t, "two-sections.pcapng") // the second is big-endian, and of the same packets
	if n := len(want); len(got) != 2*n || !slices.Equal(codes(r.Warnings()), []string{capture.NotInOrder}) {
		t.Fatalf("%d packets, %v", len(got), r.Warnings())
	}
	for i, k := range got {
		if seen(k, true) != seen(want[i%len(want)], true) || k.Interface.Section != i/len(want) || k.Number != uint64(i+1) {
			t.Errorf("packet %d: %+v", i+1, k.Record)
		}
	}
}

func TestDumpcap(t *testing.T) {
	got, r := fromFiles(t, "dumpcap.pcapng")
	// Its interfaces' packets come in the order of time; those of one interface, as
	// written by several CPUs, keep the order of the file.
	latest, number, key := map[int]int64{}, map[int]uint64{}, int64(0)
	for _, k := range got {
		i := k.Interface.Index
		latest[i] = max(latest[i], k.Time)
		if latest[i] < key || k.Number <= number[i] {
			t.Errorf("packet %d of interface %d is at the wrong place", k.Number, i)
		}
		key, number[i] = latest[i], k.Number
	}
	if c := codes(r.Warnings()); len(c) > 1 || len(c) == 1 && c[0] != capture.NotInOrder {
		t.Errorf("warnings %v", r.Warnings())
	}
	names := map[string]int{}
	for _, k := range got {
		names[k.Interface.Name]++
		if !strings.HasPrefix(k.Interface.OS, "Linux") || k.Interface.LinkType != capture.Ethernet {
			t.Errorf("%+v", k.Interface)
		}
		if k.Interface.Name == "lo" && k.Interface.Filter != "ip" {
			t.Errorf("filter %q", k.Interface.Filter)
		}
	}
	if len(names) != 2 || names["near"] < 4 || names["lo"] != 4 {
		t.Errorf("packets of %v", names)
	}
}

func TestSkippedLinkTypes(t *testing.T) {
	want, _ := fromFiles(t, "raw.pcap")
	got, r := fromFiles(t, "mixed-types.pcapng")
	w := r.Warnings()
	if len(got) != len(want) || len(w) != 1 || w[0].Code != capture.SkippedType || w[0].Count != uint64(len(want)) || !strings.Contains(w[0].Text, "IEEE 802.11 with radiotap (127)") {
		t.Errorf("%d packets, %v", len(got), w)
	}
	if files := r.Files(); files[0].Packets != uint64(2*len(want)) {
		t.Errorf("%+v", files)
	}
	// A file of nothing else is an error.
	file := newNg(binary.LittleEndian).iface(127, 0).packet(0, 1, 60, bytesOf(60, 1)).packet(0, 2, 60, bytesOf(60, 1))
	_, _, err := fromBytes(t, file.b)
	wantError(t, err, "all 2 packets", "radiotap (127)")
}

func TestRefusedFormats(t *testing.T) {
	for name, words := range map[string]string{
		"modified.pcap": "modified format", "snoop.snoop": "snoop", "netmon.cap": "Network Monitor",
		"nano.pcap.xz": "xz -dc", "nano.pcap.bz2": "bzip2 -dc", "make.sh": "neither a pcap nor a pcapng file",
	} {
		_, err := capture.Open([]string{"testdata/" + name}, capture.Options{})
		wantError(t, err, "testdata/"+name, words)
	}
	_, err := capture.Open([]string{"testdata"}, capture.Options{})
	wantError(t, err, "testdata: a directory")
	_, err = capture.Open([]string{"testdata/none.pcap"}, capture.Options{})
	if !os.IsNotExist(err) {
		t.Error(err)
	}
	_, err = capture.Open(nil, capture.Options{})
	wantError(t, err, "no capture file")
}
