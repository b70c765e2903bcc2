package capture_test

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"pktdirector/capture"
)

// seeds adds the files of testdata.
func seeds(f *testing.F, kinds ...string) {
	f.Helper()
	files, err := filepath.Glob("testdata/*.*")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		for _, kind := range kinds {
			if b, err := os.ReadFile(name); err == nil && strings.HasSuffix(name, kind) {
				f.Add(b)
			}
		}
	}
}

// through reads a file as far as it goes, and holds what is promised of each packet.
func through(t *testing.T, file []byte) []kept {
	t.Helper()
	if len(file) > 1<<16 {
		return nil
	}
	r, err := capture.NewReader(bytes.NewReader(file), capture.Options{})
	if err != nil {
		return nil
	}
	defer r.Close()
	var all []kept
	number := map[*capture.Interface]uint64{}
	for {
		var rec capture.Record
		err := r.Next(&rec)
		if err != nil {
			if again := r.Next(&rec); again == nil || again.Error() != err.Error() {
				t.Fatalf("after %v: %v", err, again)
			}
			break
		}
		switch {
		case rec.Interface == nil || !rec.Interface.LinkType.Supported():
			t.Fatalf("an interface of %+v", rec.Interface)
		case rec.Offset < 0 || rec.Offset > len(rec.Data) || rec.OrigLen < len(rec.Data) || rec.Truncated != (rec.OrigLen > len(rec.Data)):
			t.Fatalf("%+v", rec)
		case rec.Number <= number[rec.Interface] || rec.Number > r.Files()[0].Packets:
			t.Fatalf("packet %d after %d of %d", rec.Number, number[rec.Interface], r.Files()[0].Packets)
		}
		number[rec.Interface] = rec.Number
		all = append(all, kept{rec, bytes.Clone(rec.Data)})
		if len(file) < 1<<14 && len(all) > len(file) {
			break // of a packed file
		}
		if len(all) > 1<<16 {
			break
		}
	}
	for _, w := range r.Warnings() {
		if w.Count == 0 || w.Code == "" || w.Text == "" || w.File == "" {
			t.Fatalf("warning %+v", w)
		}
	}
	return all
}

func FuzzPcap(f *testing.F) {
	seeds(f, ".pcap")
	f.Add(pcap(binary.BigEndian, micro, 2, 0, 1, pcapRecord{1, 0, 1514, 60, bytesOf(60, 1)}))
	f.Fuzz(func(t *testing.T, file []byte) { through(t, file) })
}

func FuzzPcapng(f *testing.F) {
	seeds(f, ".pcapng")
	n := newNg(binary.LittleEndian).iface(1, 0, option{9, []byte{0xa0}}, option{14, bytesOf(8, 0)}).simple(60, bytesOf(60, 1)).old(0, 3, 1, 70, bytesOf(60, 1))
	f.Add(n.packet(0, 7, 60, bytesOf(60, 2), option{1, []byte("x")}, option{2, []byte{1, 2, 3, 4}}, option{4, bytesOf(8, 1)}, option{5, bytesOf(8, 2)}).b)
	f.Fuzz(func(t *testing.T, file []byte) { through(t, file) })
}

func FuzzPacked(f *testing.F) {
	seeds(f, ".gz", ".zst")
	f.Fuzz(func(t *testing.T, file []byte) { through(t, file) })
}

// FuzzLinkLayer reads headers of any link type.
func FuzzLinkLayer(f *testing.F) {
	for _, kind := range []uint16{0, 1, 12, 14, 101, 108, 113, 228, 229, 276} {
		f.Add(kind, []byte("\x02\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x02\x81\x00\x00\x64\x08\x00\x45\x00"))
		f.Add(kind, []byte("\x00\x04\x00\x01\x00\x06\x02\x00\x00\x00\x00\x01\x00\x00\x81\x00\x00\x64\xaa\xaa\x03\x00\x00\x00\x86\xdd\x60"))
	}
	f.Fuzz(func(t *testing.T, kind uint16, data []byte) {
		n := uint32(len(data))
		for _, k := range through(t, pcap(binary.LittleEndian, micro, 4, 0, uint32(kind), pcapRecord{1, 0, n, n, data})) {
			if len(k.data[k.Offset:])+k.Offset != len(data) || len(k.Tags()) > 4 {
				t.Fatalf("%+v", k.LinkLayer)
			}
		}
	})
}

// FuzzWriter writes packets and reads them again.
func FuzzWriter(f *testing.F) {
	f.Add("eth0", "tcp", "a comment", bytesOf(60, 1), int64(1_700_000_000_000_000_001), 1514, uint64(7), byte(5), 96)
	f.Fuzz(func(t *testing.T, name, filter, comment string, data []byte, at int64, orig int, id uint64, flags byte, snaplen int) {
		if len(name)+len(filter) > 1000 || len(comment) > 4000 || len(data) > 4000 || orig > 1<<30 || !utf8.ValidString(comment) || strings.ContainsRune(name+filter+comment, 0) {
			return
		}
		var out bytes.Buffer
		w, err := capture.NewWriter(&out, capture.WriterOptions{Application: name, Snaplen: snaplen})
		if err != nil {
			return
		}
		if _, err := w.AddInterface(capture.Interface{Name: name, Filter: filter, LinkType: capture.Raw}); err != nil {
			t.Fatal(err)
		}
		p := capture.Packet{Time: at, Data: data, OrigLen: orig, PacketID: id, Direction: capture.Direction(flags & 3 % 3), Kind: capture.Kind(flags >> 2 % 5), Comments: []string{comment}}
		if w.Write(&p) != nil {
			return
		}
		if err := w.Finish(); err != nil {
			t.Fatal(err)
		}
		got, warned, err := fromBytes(t, out.Bytes())
		if err != nil || len(warned) > 0 || len(got) != 1 {
			t.Fatalf("%d packets, %v, %v", len(got), warned, err)
		}
		k := got[0]
		n := len(data)
		if snaplen > 0 {
			n = min(n, snaplen)
		}
		if !bytes.Equal(k.data, data[:n]) || k.OrigLen != max(orig, len(data)) || k.Time != at || k.PacketID != id ||
			k.Direction != p.Direction || k.Kind != p.Kind || k.Interface.Name != name || k.Interface.Filter != filter {
			t.Fatalf("%+v %+v\nwritten as %+v", k.Record, k.Interface, p)
		}
		if comment != "" && (len(k.Comments) != 1 || k.Comments[0] != comment) {
			t.Fatalf("comments %q, want %q", k.Comments, comment)
		}
	})
}

// FuzzAnonymiser holds any two addresses against each other.
func FuzzAnonymiser(f *testing.F) {
	f.Add([]byte("key"), []byte{10, 1, 0, 100}, []byte{10, 1, 0, 1})
	f.Add([]byte("key"), bytesOf(16, 1), bytesOf(16, 2))
	f.Fuzz(func(t *testing.T, key, a, b []byte) {
		x, ok := netip.AddrFromSlice(a)
		y, fine := netip.AddrFromSlice(b)
		if !ok || !fine || len(a) != len(b) {
			return
		}
		var k [capture.AnonymiserKeyLen]byte
		copy(k[:], key)
		for _, an := range []*capture.Anonymiser{capture.NewAnonymiser(k), capture.NewAnonymiser(k, capture.SpecialPrefixes()...)} {
			if fx, fy := an.Addr(x), an.Addr(y); shared(x, y) != shared(fx, fy) {
				t.Fatalf("%v, %v become %v, %v", x, y, fx, fy)
			}
		}
	})
}
