package capture_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"runtime"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"

	"pktdirector/capture"
)

// memory returns how many bytes f allocates.
func memory(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestHostileFiles reads files that contradict themselves.
func TestHostileFiles(t *testing.T) {
	le := binary.LittleEndian
	p := bytesOf(60, 1)
	good := pcapRecord{1, 0, 60, 60, p}
	ngOne := func() *ng { return newNg(le).iface(1, 0) }
	long := func(kind, length uint32) []byte {
		n := ngOne().packet(0, 1, 60, p)
		return le.AppendUint32(le.AppendUint32(n.b, kind), length)
	}
	patched := func(b []byte, at int, v uint32) []byte {
		b = bytes.Clone(b)
		le.PutUint32(b[at:], v)
		return b
	}
	epb := len(ngOne().b) // where the first packet block begins
	for name, c := range map[string]struct {
		file    []byte
		packets int
		warned  []string
		err     string // what it says; empty: none
	}{
		"nothing":                               {nil, 0, nil, "empty"},
		"three bytes":                           {[]byte("abc"), 0, nil, "3 bytes: too short"},
		"a text":                                {[]byte("GET / HTTP/1.1\r\n\r\n"), 0, nil, "neither a pcap nor a pcapng file"},
		"a pcap header cut":                     {pcap(le, micro, 4, 0, 1)[:20], 0, nil, "20 bytes of a pcap file's header"},
		"a pcap header alone":                   {pcap(le, micro, 4, 0, 1), 0, nil, ""},
		"a pcapng header cut":                   {newNg(le).b[:11], 0, nil, "11 bytes of a pcapng file's header"},
		"a pcapng section cut":                  {newNg(le).b[:20], 0, []string{capture.CutFile}, ""},
		"a section and no interface":            {newNg(le).b, 0, nil, ""},
		"version 3 of pcap":                     {patched(pcap(le, micro, 4, 0, 1, good), 4, 3), 0, nil, "version 3.0"},
		"an unknown link type":                  {pcap(le, micro, 4, 0, 9999, good), 0, nil, "link type (9999)"},
		"frames with checksums":                 {pcap(le, micro, 4, 0, 0x24000001, good), 1, nil, ""},
		"4 GB in a record":                      {pcap(le, micro, 4, 0, 1, good, pcapRecord{1, 0, 0xffffffff, 60, p}), 1, []string{capture.DamagedFile}, "packet 2: a captured length of 4294967295"},
		"262,145 bytes in a record":             {pcap(le, micro, 4, 0, 1, pcapRecord{1, 0, 262145, 262145, make([]byte, 262145)}), 0, []string{capture.DamagedFile}, "packet 1"},
		"262,144 bytes in a record":             {pcap(le, micro, 4, 0, 1, pcapRecord{1, 0, 262144, 262144, make([]byte, 262144)}, good), 2, nil, ""},
		"more captured than there was":          {pcap(le, micro, 4, 0, 1, pcapRecord{1, 0, 60, 0, p}, good), 2, []string{capture.OddLength}, ""},
		"4 GB on the wire":                      {pcap(le, micro, 4, 0, 1, pcapRecord{1, 0, 60, 0xffffffff, p}), 1, nil, ""},
		"a second of 3 million microseconds":    {pcap(le, micro, 4, 0, 1, pcapRecord{1, 3_000_000, 60, 60, p}), 1, []string{capture.OddTime}, ""},
		"a second of 4,294,967,295 µs":          {pcap(le, micro, 4, 0, 1, pcapRecord{0xffffffff, 0xffffffff, 60, 60, p}), 1, []string{capture.OddTime}, ""},
		"zeros behind the end":                  {append(pcap(le, micro, 4, 0, 1, good), make([]byte, 4096)...), 1, []string{capture.EmptyRecord}, ""},
		"a block of 0 bytes":                    {long(6, 0), 1, []string{capture.CutFile}, ""},
		"a block of 8 bytes and more":           {append(long(6, 8), 0, 0, 0, 0), 1, []string{capture.DamagedFile}, "a block of 8 bytes"},
		"a block of 13 bytes":                   {append(long(6, 13), 0, 0, 0, 0), 1, []string{capture.DamagedFile}, "multiple of 4"},
		"a block of 4 GB":                       {append(long(6, 0xfffffffc), 0, 0, 0, 0), 1, []string{capture.DamagedFile}, "a block of 4294967292 bytes"},
		"an unknown block of 16 MiB, cut":       {append(long(99, 16<<20), 0, 0, 0, 0), 1, []string{capture.CutFile}, ""},
		"a packet block of 16 MiB, cut":         {append(long(6, 16<<20), 0, 0, 0, 0), 1, []string{capture.CutFile}, ""},
		"a packet block of 2 MiB":               {ngOne().block(6, make([]byte, 2<<20)).packet(0, 1, 60, p).b, 1, []string{capture.SkippedPacket}, ""},
		"a block that ends with another length": {patched(ngOne().packet(0, 1, 60, p).b, epb+88, 96), 0, []string{capture.DamagedFile}, "ends with a length of 96"},
		"a captured length beyond the block":    {patched(ngOne().packet(0, 1, 60, p).packet(0, 1, 60, p).b, epb+20, 69), 1, []string{capture.SkippedPacket}, ""},
		"a captured length of 4 GB":             {patched(ngOne().packet(0, 1, 60, p).packet(0, 1, 60, p).b, epb+20, 0xffffffff), 1, []string{capture.SkippedPacket}, ""},
		"262,145 bytes in a packet block":       {ngOne().packet(0, 1, 262145, make([]byte, 262145)).packet(0, 1, 60, p).b, 1, []string{capture.SkippedPacket}, ""},
		"a packet of no interface":              {ngOne().packet(7, 1, 60, p).packet(0, 1, 60, p).b, 1, []string{capture.SkippedPacket}, ""},
		"a packet before any interface":         {newNg(le).packet(0, 1, 60, p).simple(60, p).iface(1, 0).packet(0, 1, 60, p).b, 1, []string{capture.SkippedPacket}, ""},
		"an empty packet block":                 {ngOne().block(6, nil).block(3, nil).block(2, nil).packet(0, 1, 60, p).b, 1, []string{capture.SkippedPacket}, ""},
		"an empty interface description":        {newNg(le).block(1, nil).packet(0, 1, 60, p).iface(1, 0).packet(1, 1, 60, p).b, 1, []string{capture.SkippedPacket, capture.SkippedType}, ""},
		"an empty section":                      {ngOne().block(0x0a0d0d0a, []byte{0x4d, 0x3c, 0x2b, 0x1a}).b, 0, []string{capture.DamagedFile}, "a section header of 16 bytes"},
		"a section of no byte order":            {ngOne().packet(0, 1, 60, p).block(0x0a0d0d0a, make([]byte, 16)).b, 1, []string{capture.DamagedFile}, "byte-order magic"},
		"a section of version 2":                {ngOne().packet(0, 1, 60, p).section(2).iface(1, 0).packet(0, 1, 60, p).section(1).iface(1, 0).packet(0, 2, 60, p).b, 2, []string{capture.SkippedSection}, ""},
		"options that do not fit":               {newNg(le).block(1, []byte{1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 255, 255, 'e'}).packet(0, 1, 60, p, option{1, nil}).block(6, append(make([]byte, 20), 1, 0, 8, 0)).b, 2, []string{capture.NotInOrder}, ""},
		"options too short for what they say":   {newNg(le).iface(1, 0, option{9, nil}, option{14, []byte{1}}, option{11, nil}).packet(0, 1, 60, p, option{2, []byte{1}}, option{5, nil}, option{4, []byte{1, 2, 3}}).b, 1, nil, ""},
		"statistics of no interface":            {ngOne().block(5, []byte{9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}).block(5, nil).packet(0, 1, 60, p).b, 1, nil, ""},
		"a time beyond 2262":                    {ngOne().packet(0, 1<<63, 60, p).b, 1, []string{capture.OddTime}, ""},
		"gzip of nothing":                       {[]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0}, 0, nil, "before anything can be unpacked"},
		"no gzip behind its magic":              {append([]byte{0x1f, 0x8b}, bytesOf(60, 9)...), 0, nil, "gzip"},
		"no zstd behind its magic":              {append([]byte{0x28, 0xb5, 0x2f, 0xfd}, bytesOf(60, 9)...), 0, nil, "zstd"},
		"packed twice":                          {gzipped(gzipped(pcap(le, micro, 4, 0, 1, good))), 0, nil, "compressed twice"},
		"gzip with a wrong checksum":            {spoilt(gzipped(pcap(le, micro, 4, 0, 1, good))), 1, []string{capture.DamagedFile}, "checksum"},
		"two gzip members":                      {append(gzipped(pcap(le, micro, 4, 0, 1)), gzipped(pcap(le, micro, 4, 0, 1, good)[24:])...), 1, nil, ""},
		"swapped lengths of pcap 2.2":           {pcap(le, micro, 2, 0, 1, pcapRecord{1, 0, 1514, 60, p}), 1, nil, ""},
		"swapped lengths of pcap 2.3":           {pcap(le, micro, 3, 0, 1, pcapRecord{1, 0, 1514, 60, p}, pcapRecord{1, 0, 60, 1514, p}), 2, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got []kept
			var warned []capture.Warning
			var err error
			spent := memory(func() { got, warned, err = fromBytes(t, c.file) })
			if c.err == "" && err != nil {
				t.Errorf("error %v", err)
			}
			if c.err != "" {
				wantError(t, err, c.err)
			}
			if len(got) != c.packets || !slices.Equal(slices.Compact(codes(warned)), c.warned) {
				t.Errorf("%d packets, warnings %v; want %d, %v", len(got), warned, c.packets, c.warned)
			}
			if spent > 4<<20 {
				t.Errorf("%d bytes of memory", spent)
			}
		})
	}
}

func gzipped(b []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	z.Write(b)
	z.Close()
	return out.Bytes()
}

func spoilt(b []byte) []byte {
	b[len(b)-8] ^= 1 // of the checksum
	return b
}

// Packed files that unpack to a lot, or need a lot: they stream.
func TestBombs(t *testing.T) {
	zeros := append(pcap(binary.LittleEndian, micro, 4, 0, 1), make([]byte, 64<<20)...)
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string][]byte{"gzip": gzipped(zeros), "zstd": z.EncodeAll(zeros, nil)} {
		if spent := memory(func() {
			got, warned, err := fromBytes(t, file)
			if len(got) != 0 || err != nil || len(warned) != 1 || warned[0].Code != capture.EmptyRecord || warned[0].Count != 4<<20 {
				t.Errorf("%s: %d packets, %v, %v", name, len(got), warned, err)
			}
		}); spent > 24<<20 {
			t.Errorf("%s: %d bytes of memory", name, spent)
		}
	}
	// A window of 1 GiB, as of zstd --long=30 (RFC 8878 section 3.1.1.1.2).
	_, _, err = fromBytes(t, []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 20 << 3, 1, 0, 0})
	wantError(t, err, "zstd", "128 MiB", "unpack the file first")
}

// Names, comments, interfaces and warnings are kept as far as they are of use.
func TestWhatIsKeptIsBounded(t *testing.T) {
	n := newNg(binary.LittleEndian)
	long := bytes.Repeat([]byte("x"), 60_000)
	for range 5000 {
		n.iface(1, 0, option{2, long[:2000]})
	}
	var comments []option
	for range 100 {
		comments = append(comments, option{1, long[:5000]})
	}
	n.packet(0, 1, 60, bytesOf(60, 1), comments...)
	for i := range 2000 { // sections with an interface of a link type of its own
		n.section(1).iface(uint16(1000+i), 0).packet(0, 1, 60, bytesOf(60, 1))
	}
	got, warned, err := fromBytes(t, n.b)
	if err != nil || len(got) != 1 || len(got[0].Comments) != 32 || len(got[0].Comments[0]) != 4096 || len(got[0].Interface.Name) != 1024 {
		t.Fatalf("%d packets, %v", len(got), err)
	}
	if len(warned) != 256 || warned[255].Code != capture.TooMany || warned[0].Count != 5000-4096 {
		t.Errorf("%d warnings, the last %v", len(warned), warned[len(warned)-1])
	}
}

// failing ends with an error of its own.
type failing struct {
	io.Reader
	err error
}

func (f failing) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if err == io.EOF {
		err = f.err
	}
	return n, err
}

// An error of the disk is not taken for the file's end.
func TestReadErrors(t *testing.T) {
	for _, name := range []string{"nano.pcap", "nano.pcapng", "nano.pcap.gz"} {
		file := testdata(t, name)
		for _, at := range []int{0, 3, 20, len(file) / 2, len(file) - 1} {
			r, err := capture.NewReader(failing{bytes.NewReader(file[:at]), errDisk}, capture.Options{})
			if err == nil {
				_, err = readAll(r)
			}
			wantError(t, err, errDisk.Error())
		}
	}
}

func TestWarningsAsText(t *testing.T) {
	_, warned, _ := fromBytes(t, pcap(binary.LittleEndian, micro, 4, 0, 1,
		pcapRecord{1, 0, 60, 10, bytesOf(60, 1)}, pcapRecord{1, 0, 60, 60, bytesOf(60, 1)}, pcapRecord{1, 0, 60, 11, bytesOf(60, 1)}))
	if len(warned) != 1 {
		t.Fatal(warned)
	}
	want := "capture: packet 1: 60 bytes captured of a packet of 10: taken as one of 60 (and 1 more like it) [odd-length]"
	if got := warned[0].String(); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
