package capture_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/pcapgo"
)

// pcapgoReads reads a file with gopacket's pcapgo.
func pcapgoReads(file []byte) (data [][]byte, times []time.Time, err error) {
	var next func() ([]byte, gopacket.CaptureInfo, error)
	if binary.BigEndian.Uint32(file) == 0x0a0d0d0a {
		r, err := pcapgo.NewNgReader(bytes.NewReader(file), pcapgo.NgReaderOptions{WantMixedLinkType: true})
		if err != nil {
			return nil, nil, err
		}
		next = r.ReadPacketData
	} else {
		r, err := pcapgo.NewReader(bytes.NewReader(file))
		if err != nil {
			return nil, nil, err
		}
		next = r.ReadPacketData
	}
	for {
		b, ci, err := next()
		if err == io.EOF {
			return data, times, nil
		}
		if err != nil {
			return data, times, err
		}
		data, times = append(data, b), append(times, ci.Timestamp)
	}
}

// TestPcapgoAgrees: where pcapgo can read, both read the same.
func TestPcapgoAgrees(t *testing.T) {
	for _, name := range []string{"ethernet.pcap", "nano.pcap", "big-endian-micro.pcap", "big-endian-nano.pcap", "raw.pcap", "sll.pcap", "vlan.pcap", "snaplen60.pcap",
		"nano.pcapng", "micro.pcapng", "big-endian-nano.pcapng", "comments.pcapng", "names.pcapng", "secrets.pcapng", "two-sections.pcapng", "two-interfaces.pcapng"} {
		got, _ := fromFiles(t, name)
		data, times, err := pcapgoReads(testdata(t, name))
		if err != nil || len(data) != len(got) || len(got) == 0 {
			t.Errorf("%s: %d packets, pcapgo %d, %v", name, len(got), len(data), err)
			continue
		}
		for i, k := range got {
			if !bytes.Equal(k.data, data[i]) || !k.When().Equal(times[i]) {
				t.Errorf("%s: packet %d: %v, pcapgo %v", name, i+1, k.When(), times[i])
			}
		}
	}
}

// TestWherePcapgoDiffers shows with files what keeps this package from reading by
// pcapgo (doc.go). When a case fails because pcapgo has come to read right, the
// reason is gone.
func TestWherePcapgoDiffers(t *testing.T) {
	le := binary.LittleEndian
	p := bytesOf(60, 1)
	panics := func(file []byte) (did bool) {
		defer func() { did = recover() != nil }()
		pcapgoReads(file)
		return false
	}
	for name, c := range map[string]struct {
		file []byte
		n    int         // packets that there are
		at   []time.Time // and their times
		how  string      // what pcapgo does
	}{
		"a record beyond the snaplen":     {pcap(le, micro, 4, 50, 1, pcapRecord{1, 0, 60, 60, p}, pcapRecord{2, 0, 40, 40, p[:40]}), 2, nil, "error"},
		"a record longer than its packet": {pcap(le, micro, 4, 99, 1, pcapRecord{1, 0, 60, 59, p}), 1, nil, "error"},
		"version 2.3":                     {pcap(le, micro, 3, 99, 1, pcapRecord{1, 0, 60, 60, p}), 1, nil, "error"},
		"microseconds beyond 4,294,967":   {pcap(le, micro, 4, 99, 1, pcapRecord{1, 5_000_000, 60, 60, p}), 1, []time.Time{time.Unix(6, 0)}, "times"},
		"units of 2^-20 s":                {newNg(le).iface(1, 0, option{9, []byte{0x80 | 20}}).packet(0, 1<<20+1<<19, 60, p).b, 1, []time.Time{time.Unix(1, 5e8)}, "times"},
		"units of 2^-64 s":                {newNg(le).iface(1, 0, option{9, []byte{0x80 | 64}}).packet(0, 1<<63, 60, p).b, 1, []time.Time{time.Unix(0, 5e8)}, "panic"},
	} {
		t.Run(name, func(t *testing.T) {
			got, _, err := fromBytes(t, c.file)
			if err != nil || len(got) != c.n {
				t.Fatalf("%d packets, %v", len(got), err)
			}
			for i, want := range c.at {
				if !got[i].When().Equal(want) {
					t.Errorf("packet %d: %v, want %v", i+1, got[i].When(), want.UTC())
				}
			}
			if c.how == "panic" {
				if !panics(c.file) {
					t.Error("pcapgo no longer panics")
				}
				return
			}
			data, times, err := pcapgoReads(c.file)
			switch {
			case c.how == "error" && err == nil:
				t.Errorf("pcapgo reads %d packets without an error", len(data))
			case c.how == "times" && slices.EqualFunc(times, c.at, time.Time.Equal):
				t.Error("pcapgo has the right times")
			}
		})
	}
	r, err := pcapgo.NewReader(bytes.NewReader(testdata(t, "sll2.pcap")))
	if err != nil || int(r.LinkType()) == 276 {
		t.Errorf("pcapgo reads link type 276 as %d, %v", r.LinkType(), err)
	}
}
