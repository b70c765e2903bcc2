package capture_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket/pcapgo"

	"pktdirector/capture"
	"pktdirector/testbed/nstest"
)

// annotated writes the packets of a file as the director's capture does: each as
// it came on one interface and as it left on the other, with words.
func annotated(t testing.TB, w interface {
	AddInterface(capture.Interface) (int, error)
	Write(*capture.Packet) error
}, packets []kept) {
	t.Helper()
	for _, i := range []capture.Interface{
		{Name: "front", Description: "client side", LinkType: capture.Ethernet, Filter: "host 192.0.2.2", OS: "Linux 6.1"},
		{Name: "back", Description: "server side", LinkType: capture.Ethernet},
	} {
		if _, err := w.AddInterface(i); err != nil {
			t.Fatal(err)
		}
	}
	for i, k := range packets {
		p := capture.Packet{Time: k.Time, Data: k.data, PacketID: uint64(i + 1), Direction: capture.Incoming, Kind: capture.ToUs,
			Comments: []string{fmt.Sprintf("decision %d: 10.2.0.11:80, NONE -> SYN_RECV", i+1), "Grüße"}}
		if err := w.Write(&p); err != nil {
			t.Fatal(err)
		}
		p.Interface, p.Direction, p.Kind, p.Time, p.Comments, p.Dropped = 1, capture.Outgoing, capture.KindUnknown, p.Time+1000, nil, uint64(i%2)
		if err := w.Write(&p); err != nil {
			t.Fatal(err)
		}
	}
}

func writerOptions() capture.WriterOptions {
	return capture.WriterOptions{Application: "pktdirector test", OS: "Linux 6.1", Hardware: "x86", Comment: "what happened"}
}

// TestWriter reads again what was written.
func TestWriter(t *testing.T) {
	packets, _ := fromFiles(t, "nano.pcap")
	var out bytes.Buffer
	w, err := capture.NewWriter(&out, writerOptions())
	if err != nil {
		t.Fatal(err)
	}
	annotated(t, w, packets)
	w.Lost(1, 4)
	if err := w.Finish(); err != nil || w.Size() != int64(out.Len()) {
		t.Fatalf("%v, size %d of %d", err, w.Size(), out.Len())
	}
	got, warned, err := fromBytes(t, out.Bytes())
	if err != nil || len(got) != 2*len(packets) {
		t.Fatalf("%d packets, %v", len(got), err)
	}
	if text := fmt.Sprint(warned); !slices.Equal(codes(warned), []string{capture.LostPackets, capture.LostPackets}) || !strings.Contains(text, "4 packets of interface 1 back") {
		t.Errorf("warnings %v", warned)
	}
	for i, k := range got { // in the order of time, as they were written
		from := packets[slices.IndexFunc(packets, func(p kept) bool { return bytes.Equal(p.data, k.data) })]
		out := k.Interface.Index == 1
		if out && (k.Time != from.Time+1000 || k.Direction != capture.Outgoing || len(k.Comments) > 0 || k.Interface.Name != "back") ||
			!out && (k.Time != from.Time || k.Direction != capture.Incoming || k.Kind != capture.ToUs || len(k.Comments) != 2 ||
				k.Comments[1] != "Grüße" || k.Interface.Name != "front" || k.Interface.Filter != "host 192.0.2.2" || k.Interface.OS != "Linux 6.1") ||
			k.PacketID != from.Number || k.Truncated {
			t.Errorf("packet %d: %+v %+v", i, k.Record, k.Interface)
		}
	}
	data, _, err := pcapgoReads(out.Bytes())
	if err != nil || len(data) != len(got) {
		t.Errorf("pcapgo reads %d packets, %v", len(data), err)
	}
	r, err := pcapgo.NewNgReader(&out, pcapgo.DefaultNgReaderOptions)
	if err != nil || r.SectionInfo().Application != "pktdirector test" || r.SectionInfo().Comment != "what happened" {
		t.Errorf("section %+v, %v", r.SectionInfo(), err)
	}
}

// TestTsharkReadsWhatIsWritten: programs that are not ours open annotated files
// without a complaint, and show what was meant.
func TestTsharkReadsWhatIsWritten(t *testing.T) {
	for _, program := range []string{"tshark", "capinfos"} {
		if _, err := exec.LookPath(program); err != nil {
			nstest.Require(t, program+" is missing: apt-get install tshark")
		}
	}
	packets, _ := fromFiles(t, "nano.pcap")
	path := filepath.Join(t.TempDir(), "out.pcapng")
	w, err := capture.CreateFiles(path, writerOptions(), capture.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	annotated(t, w, packets)
	w.Lost(0, 3)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	run := func(program string, args ...string) string {
		t.Helper()
		cmd := exec.Command(program, args...)
		var said bytes.Buffer
		cmd.Stderr = &said
		out, err := cmd.Output()
		for line := range strings.Lines(said.String()) { // root is warned, whatever it reads
			if !strings.HasPrefix(line, "Running as user") {
				t.Errorf("%s complains: %s", program, line)
			}
		}
		if err != nil {
			t.Fatalf("%s: %v", program, err)
		}
		return string(out)
	}
	out := run("tshark", "-n", "-r", path, "-T", "fields", "-E", "separator=|", "-e", "frame.number", "-e", "frame.interface_name", "-e", "frame.time_epoch",
		"-e", "frame.packet_flags_direction", "-e", "frame.packet_flags_reception_type", "-e", "frame.packet_id", "-e", "frame.comment", "-e", "_ws.malformed")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 2*len(packets) {
		t.Fatalf("%d lines:\n%s", len(lines), out)
	}
	for i, line := range lines {
		k := packets[i/2]
		at := func(ns int64) string { return fmt.Sprintf("%d.%09d", ns/1e9, ns%1e9) }
		want := fmt.Sprintf("%d|front|%s|0x00000001|1|%d|decision %d: 10.2.0.11:80, NONE -> SYN_RECV,Grüße|", i+1, at(k.Time), k.Number, k.Number)
		if i%2 == 1 {
			want = fmt.Sprintf("%d|back|%s|0x00000002|0|%d||", i+1, at(k.Time+1000), k.Number)
		}
		if line != want {
			t.Errorf("tshark says\n%s\nwant\n%s", line, want)
		}
	}
	info := run("capinfos", path)
	for _, want := range []string{"pktdirector test", "what happened", "front", "client side", "nanoseconds (9)", "Number of packets = 11"} {
		if !strings.Contains(info, want) {
			t.Errorf("capinfos does not say %q:\n%s", want, info)
		}
	}
}

func TestWriterBounds(t *testing.T) {
	var out bytes.Buffer
	w, err := capture.NewWriter(&out, capture.WriterOptions{Snaplen: 50})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.AddInterface(capture.Interface{LinkType: capture.Raw}); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("ä", 50_000)
	for _, p := range []capture.Packet{
		{Time: 1, Data: bytesOf(49, 1)},
		{Time: 2, Data: bytesOf(100, 1), OrigLen: 1500, Comments: []string{long, ""}},
		{Time: 3, Data: nil, OrigLen: 60},
	} {
		if err := w.Write(&p); err != nil {
			t.Error(err)
		}
	}
	for want, p := range map[string]capture.Packet{"interface 1": {Interface: 1}, "interface -1": {Interface: -1}, "before 1970": {Time: -1}} {
		wantError(t, w.Write(&p), want)
	}
	if err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	got, warned, err := fromBytes(t, out.Bytes())
	if err != nil || len(warned) > 0 || len(got) != 3 {
		t.Fatalf("%d packets, %v, %v", len(got), warned, err)
	}
	for i, want := range [][2]int{{49, 49}, {50, 1500}, {0, 60}} {
		if k := got[i]; len(k.data) != want[0] || k.OrigLen != want[1] || k.Interface.Snaplen != 50 {
			t.Errorf("packet %d: %+v", i+1, k.Record)
		}
	}
	if c := got[1].Comments; len(c) != 1 || !strings.HasPrefix(c[0], "ääää") {
		t.Errorf("%d comments", len(c))
	}
	_, err = capture.NewWriter(&out, capture.WriterOptions{Snaplen: -1})
	wantError(t, err, "snaplen -1")
	_, err = capture.NewWriter(full{}, capture.WriterOptions{})
	if !errors.Is(err, errDisk) {
		t.Error(err)
	}
}

// full is a disk that is.
type full struct{}

func (full) Write(p []byte) (int, error) { return len(p) / 2, errDisk }

func TestWritingAllocatesNothing(t *testing.T) {
	var n counting
	w, err := capture.NewWriter(&n, capture.WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.AddInterface(capture.Interface{LinkType: capture.Ethernet})
	p := capture.Packet{Data: bytesOf(100, 1), Comments: []string{"a comment"}, PacketID: 7, Direction: capture.Outgoing}
	for range 2000 {
		w.Write(&p)
	}
	if allocated := testing.AllocsPerRun(5000, func() { p.Time++; w.Write(&p) }); allocated != 0 {
		t.Errorf("%v allocations a packet", allocated)
	}
	if w.Finish(); int64(n) != w.Size() {
		t.Errorf("%d bytes written, size %d", n, w.Size())
	}
}

// counting counts what is written.
type counting int64

func (c *counting) Write(p []byte) (int, error) {
	*c += counting(len(p))
	return len(p), nil
}

func TestRotation(t *testing.T) {
	packet := func(i int) *capture.Packet {
		return &capture.Packet{Time: int64(i) * 1e9, Data: bytesOf(1000, byte(i))}
	}
	for _, c := range []struct {
		name   string
		limits capture.Limits
		write  int
		files  []string // that are there in the end, with the packets in them
		err    error
	}{
		{"no limit", capture.Limits{}, 10, []string{"out.pcapng 0-9"}, nil},
		{"packets", capture.Limits{Packets: 4}, 10, []string{"out_00001.pcapng 0-3", "out_00002.pcapng 4-7", "out_00003.pcapng 8-9"}, nil},
		{"a ring", capture.Limits{Packets: 2, Files: 3}, 10, []string{"out_00003.pcapng 4-5", "out_00004.pcapng 6-7", "out_00005.pcapng 8-9"}, nil},
		{"age", capture.Limits{Age: 3 * time.Second}, 7, []string{"out_00001.pcapng 0-2", "out_00002.pcapng 3-5", "out_00003.pcapng 6-6"}, nil},
		{"size", capture.Limits{Bytes: 4000}, 7, []string{"out_00001.pcapng 0-2", "out_00002.pcapng 3-5", "out_00003.pcapng 6-6"}, nil},
		{"smaller than a packet", capture.Limits{Bytes: 10}, 2, []string{"out_00001.pcapng 0-0", "out_00002.pcapng 1-1"}, nil},
		{"one file that ends", capture.Limits{Bytes: 4000, Files: 1}, 7, []string{"out.pcapng 0-2"}, capture.ErrFull},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			foreign := filepath.Join(dir, "out_00000.pcapng")
			if err := os.WriteFile(foreign, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			w, err := capture.CreateFiles(filepath.Join(dir, "out.pcapng"), writerOptions(), c.limits)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.AddInterface(capture.Interface{Name: "front", LinkType: capture.Raw}); err != nil {
				t.Fatal(err)
			}
			for i := 0; i < c.write && err == nil; i++ {
				err = w.Write(packet(i))
			}
			if !errors.Is(err, c.err) {
				t.Errorf("error %v, want %v", err, c.err)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(foreign); err != nil {
				t.Errorf("a file of another run: %v", err)
			}
			paths, _ := filepath.Glob(filepath.Join(dir, "*"))
			if !slices.Equal(paths, w.Names()) {
				t.Errorf("files %q, Names %q", paths, w.Names())
			}
			var files []string
			for _, path := range paths {
				got, err := readAll(open(t, []string{path}))
				if err != nil || len(got) == 0 || got[0].Interface.Name != "front" {
					t.Fatalf("%s: %d packets, %v", path, len(got), err)
				}
				files = append(files, fmt.Sprintf("%s %d-%d", filepath.Base(path), got[0].Time/1e9, got[len(got)-1].Time/1e9))
				if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 || c.limits.Bytes >= 4000 && info.Size() > c.limits.Bytes {
					t.Errorf("%s: %v, %v", path, info.Mode(), info.Size())
				}
			}
			if !slices.Equal(files, c.files) {
				t.Errorf("%q, want %q", files, c.files)
			}
		})
	}
	for want, l := range map[string]capture.Limits{"negative": {Bytes: -1}, "3 files need": {Files: 3}} {
		_, err := capture.CreateFiles(filepath.Join(t.TempDir(), "x"), writerOptions(), l)
		wantError(t, err, want)
	}
	_, err := capture.CreateFiles("/nowhere/x", writerOptions(), capture.Limits{})
	if !os.IsNotExist(err) {
		t.Error(err)
	}
}

// TestFilesAfterClose: what comes too late is an error that names the file, and
// changes nothing in it.
func TestFilesAfterClose(t *testing.T) {
	for _, l := range []capture.Limits{{}, {Packets: 1}, {Packets: 1, Files: 1}, {Packets: 1, Files: 2}} {
		path := filepath.Join(t.TempDir(), "out.pcapng")
		f, err := capture.CreateFiles(path, capture.WriterOptions{}, l)
		if err != nil {
			t.Fatal(err)
		}
		p := capture.Packet{Time: 1, Data: bytesOf(20, 1)}
		if _, err := f.AddInterface(capture.Interface{Name: "front", LinkType: capture.Ethernet}); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Write(&p), f.Close()); err != nil {
			t.Fatal(err)
		}
		names := f.Names()
		before, err := os.ReadFile(names[0])
		if err != nil {
			t.Fatal(err)
		}
		_, added := f.AddInterface(capture.Interface{Name: "back", LinkType: capture.Ethernet})
		for what, err := range map[string]error{"Write": f.Write(&p), "AddInterface": added, "Flush": f.Flush()} {
			if !errors.Is(err, os.ErrClosed) || !strings.Contains(err.Error(), path) {
				t.Errorf("%+v: %s after Close: %v", l, what, err)
			}
		}
		f.Lost(0, 1)
		if err := f.Close(); err != nil {
			t.Errorf("%+v: a second Close: %v", l, err)
		}
		if after, err := os.ReadFile(names[0]); err != nil || !bytes.Equal(before, after) || len(f.Names()) != 1 {
			t.Errorf("%+v: the file changed, or others came: %v, %v", l, f.Names(), err)
		}
	}
}
