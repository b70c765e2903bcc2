package capture_test

import (
	"encoding/binary"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"pktdirector/capture"
)

// TestThePageOfCapturesIsTrue holds docs/captures.md against the codes of warnings
// and the link types that are read.
func TestThePageOfCapturesIsTrue(t *testing.T) {
	b, err := os.ReadFile("../docs/captures.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	source, err := os.ReadFile("warnings.go")
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\t[A-Z]\w+ += "([a-z-]+)"`).FindAllStringSubmatch(string(source), -1) {
		there[m[1]] = true
		if !strings.Contains(page, "\n| `"+m[1]+"` | ") {
			t.Errorf("docs/captures.md has no row for %s", m[1])
		}
	}
	if !there[capture.CutFile] {
		t.Error("no codes found in warnings.go")
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|").FindAllStringSubmatch(page, -1) {
		if !there[m[1]] {
			t.Errorf("docs/captures.md has a row for %s, which there is not", m[1])
		}
	}
	_, row, _ := strings.Cut(page, "\n| link types |")
	row, _, _ = strings.Cut(row, "\n")
	listed := map[uint64]bool{}
	for _, group := range regexp.MustCompile(`\(([^)]*)\)`).FindAllStringSubmatch(row, -1) {
		for _, n := range regexp.MustCompile(`\d+`).FindAllString(group[1], -1) {
			v, err := strconv.ParseUint(n, 10, 16)
			if err != nil {
				t.Fatal(err)
			}
			listed[v] = true
		}
	}
	for kind := range uint64(1 << 16) {
		if capture.LinkType(kind).Supported() != listed[kind] {
			t.Errorf("link type %d: read %t, in docs/captures.md %t", kind, !listed[kind], listed[kind])
		}
	}
}

// The page shows two messages; these are the ones that come.
func TestThePageOfCapturesShowsMessages(t *testing.T) {
	b, err := os.ReadFile("../docs/captures.md")
	if err != nil {
		t.Fatal(err)
	}
	records := []pcapRecord{{1, 0, 100, 100, bytesOf(100, 1)}, {2, 0, 100, 100, bytesOf(100, 2)}, {3, 0, 100, 100, bytesOf(100, 3)}}
	cut := pcap(binary.LittleEndian, micro, 4, 65535, 1, records...)
	_, warned, _ := fromBytes(t, cut[:len(cut)-50])
	records[1].incl = 300 << 20
	_, _, damaged := fromBytes(t, pcap(binary.LittleEndian, micro, 4, 65535, 1, records...))
	if len(warned) != 1 || damaged == nil {
		t.Fatal(warned, damaged)
	}
	for _, said := range []string{warned[0].String(), damaged.Error()} {
		_, said, _ = strings.Cut(said, ": ")
		if !strings.Contains(string(b), ".pcap: "+said+"\n") {
			t.Errorf("docs/captures.md does not show %q", said)
		}
	}
}

func TestMoreFilesThanAreRead(t *testing.T) {
	paths := make([]string, 513)
	for i := range paths {
		paths[i] = "testdata/nano.pcap"
	}
	_, err := capture.Open(paths, capture.Options{})
	wantError(t, err, "513 capture files", "at most 512", "mergecap")
}
