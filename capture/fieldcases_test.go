package capture_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pktdirector/capture"
)

// Field case 58: a packet longer than the file's snaplen does not derail reading.
func TestRecordsLongerThanTheSnaplen(t *testing.T) {
	a, b, c := bytesOf(100, 1), bytesOf(2000, 2), bytesOf(100, 3)
	whole := pcap(binary.LittleEndian, micro, 4, 1500, 1,
		pcapRecord{1, 0, 100, 100, a}, pcapRecord{2, 0, 2000, 2000, b}, pcapRecord{3, 0, 100, 100, c})
	t.Run("three records, one beyond the snaplen", func(t *testing.T) {
		got, warned, err := fromBytes(t, whole)
		if err != nil || len(warned) > 0 || len(got) != 3 {
			t.Fatalf("%d packets, warnings %v, %v", len(got), warned, err)
		}
		for i, want := range [][]byte{a, b, c} {
			if !bytes.Equal(got[i].data, want) || got[i].Number != uint64(i+1) || got[i].Truncated || got[i].OrigLen != len(want) {
				t.Errorf("packet %d: %+v", i+1, got[i].Record)
			}
		}
	})
	t.Run("captured 96 of 1514", func(t *testing.T) {
		got, warned, err := fromBytes(t, pcap(binary.LittleEndian, micro, 4, 96, 1, pcapRecord{1, 0, 96, 1514, a[:96]}))
		if err != nil || len(warned) > 0 || len(got) != 1 || !got[0].Truncated || got[0].OrigLen != 1514 || len(got[0].data) != 96 {
			t.Errorf("%+v, warnings %v, %v", got, warned, err)
		}
	})
	t.Run("300 MB", func(t *testing.T) {
		got, warned, err := fromBytes(t, pcap(binary.LittleEndian, micro, 4, 65535, 1,
			pcapRecord{1, 0, 100, 100, a}, pcapRecord{2, 0, 300 << 20, 300 << 20, b}))
		wantError(t, err, "packet 2", "314572800 bytes", "262144")
		if len(got) != 1 || !slices.Equal(codes(warned), []string{capture.DamagedFile}) {
			t.Errorf("%d packets, warnings %v", len(got), warned)
		}
	})
	t.Run("cut in the middle of record 3", func(t *testing.T) {
		for _, file := range [][]byte{whole[:len(whole)-50], whole[:len(whole)-108]} {
			got, warned, err := fromBytes(t, file)
			if err != nil || len(got) != 2 {
				t.Fatalf("%d packets, %v", len(got), err)
			}
			if len(warned) != 1 || warned[0].Code != capture.CutFile || warned[0].First != 3 || !strings.Contains(warned[0].String(), "truncated file") {
				t.Errorf("warnings %v", warned)
			}
		}
	})
}

// analysis is what a reader of packets sees, but for MACs.
func analysis(all []kept) []string {
	var out []string
	for _, k := range all {
		out = append(out, fmt.Sprintf("%d.%09d %04x %x", k.Time/1e9, k.Time%1e9, uint16(k.EtherType), k.data[k.Offset:]))
	}
	return out
}

// Field case 60: cooked captures of all interfaces.
func TestCookedCaptures(t *testing.T) {
	fiveIn := func(name string) []kept {
		all, _ := fromFiles(t, name)
		var ip []kept
		for _, k := range all {
			if k.EtherType != 0x0806 { // raw IP has no ARP
				ip = append(ip, k)
			}
		}
		return ip[:5]
	}
	// The raw one has nanoseconds, and is compared with the one it was made of.
	for _, c := range []struct{ name, with string }{{"sll.pcap", "ethernet.pcap"}, {"sll2.pcap", "ethernet.pcap"}, {"raw.pcap", "nano.pcap"}} {
		want, got := analysis(fiveIn(c.with)), analysis(fiveIn(c.name))
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n%s\nwant as in %s:\n%s", c.name, strings.Join(got, "\n"), c.with, strings.Join(want, "\n"))
		}
	}
	t.Run("loopback frames in SLL2", func(t *testing.T) {
		got, r := fromFiles(t, "lo-any-sll2.pcap")
		if len(got) != 4 || len(r.Warnings()) > 0 {
			t.Fatalf("%d packets, %v", len(got), r.Warnings())
		}
		for _, k := range got {
			if k.EtherType != 0x0800 || k.IfIndex != 1 || k.data[k.Offset] != 0x45 || k.Direction != capture.Outgoing && k.Direction != capture.Incoming {
				t.Errorf("%+v", k.Record)
			}
		}
	})
	t.Run("link type 127", func(t *testing.T) {
		_, err := capture.Open([]string{"testdata/type127.pcap"}, capture.Options{})
		wantError(t, err, "testdata/type127.pcap", "127", "radiotap", "Ethernet (1)")
	})
}

// Field case 61: magic numbers.
func TestMagicNumbers(t *testing.T) {
	packets := [][]byte{bytesOf(60, 1), bytesOf(61, 2), bytesOf(62, 3)}
	const sec, ns = 1, 123
	files := map[string][]byte{}
	for order, o := range map[string]binary.AppendByteOrder{"little-endian": binary.LittleEndian, "big-endian": binary.BigEndian} {
		var us, nano3 []pcapRecord
		png := newNg(o).iface(1, 0, option{9, []byte{9}})
		for i, p := range packets {
			n := uint32(len(p))
			us = append(us, pcapRecord{sec, uint32(i), n, n, p})
			nano3 = append(nano3, pcapRecord{sec, ns + uint32(i), n, n, p})
			png.packet(0, sec*1e9+ns+uint64(i), len(p), p)
		}
		files["pcap "+order+" us"] = pcap(o, micro, 4, 65535, 1, us...)
		files["pcap "+order+" ns"] = pcap(o, nano, 4, 65535, 1, nano3...)
		files["pcapng "+order] = png.b
	}
	if len(files) != 6 {
		t.Fatal(len(files))
	}
	for name, file := range files {
		var zipped bytes.Buffer
		z := gzip.NewWriter(&zipped)
		z.Write(file)
		z.Close()
		for how, file := range map[string][]byte{"": file, ", gzip": zipped.Bytes()} {
			got, warned, err := fromBytes(t, file)
			if err != nil || len(warned) > 0 || len(got) != 3 {
				t.Errorf("%s: %d packets, %v, %v", name, len(got), warned, err)
				continue
			}
			for i, k := range got {
				want := fmt.Sprintf("1.%09d", ns+i)
				if strings.HasSuffix(name, "us") {
					want = fmt.Sprintf("1.%09d", i*1000)
				}
				if at := fmt.Sprintf("%d.%09d", k.Time/1e9, k.Time%1e9); at != want || !bytes.Equal(k.data, packets[i]) || k.Number != uint64(i+1) {
					t.Errorf("%s%s, packet %d: time %s, want %s", name, how, i+1, at, want)
				}
			}
		}
	}
	if when := (&capture.Record{Time: 1_000_000_123}).When().Format(".000000000"); when != ".000000123" {
		t.Error(when)
	}
}
