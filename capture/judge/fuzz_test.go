package judge_test

import (
	"errors"
	"io"
	"path/filepath"
	"slices"
	"testing"

	"pktdirector/capture"
	"pktdirector/capture/judge"
	"pktdirector/packet"
)

// FuzzPairing judges scripts of frames: each byte string is cut into frames, by a
// length, a step of time and a link that stand before each. Nothing panics, tables
// keep their bounds, and the same frames lead to the same report.
func FuzzPairing(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.pcap*")
	if len(files) == 0 {
		f.Fatal("no seeds")
	}
	for _, file := range files {
		r, err := capture.Open([]string{file}, capture.Options{})
		if err != nil {
			f.Fatal(err)
		}
		var script []byte
		var rec capture.Record
		for n := 0; n < 40; n++ {
			if err := r.Next(&rec); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				f.Fatal(err)
			}
			b := rec.Data[:min(len(rec.Data), 255)]
			script = append(append(script, byte(len(b)), byte(n), byte(rec.File)), b...)
		}
		r.Close()
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		const limit = 16
		judged := func() (*judge.Report, string) {
			j := judge.New(judge.Options{Connections: limit, Files: []string{"a", "b"}})
			links := []*capture.Interface{{Index: 0}, {Index: 1}}
			now := int64(0)
			for s := script; len(s) > 3; {
				n, step, link := int(s[0]), s[1], int(s[2])&1
				s = s[3:]
				b := s[:min(n, len(s))]
				s = s[len(b):]
				now += int64(step) * 20_000_000
				rec := frameRecord(b, links[link])
				rec.File, rec.Number, rec.Time = link, 1, now
				j.Add(rec)
			}
			r := j.Report()
			var b []byte
			w := writerFunc(func(p []byte) (int, error) { b = append(b, p...); return len(p), nil })
			if err := r.Print(w, judge.PrintOptions{Connections: -1}); err != nil {
				t.Fatal(err)
			}
			return r, string(b)
		}
		r, text := judged()
		if len(r.Connections) > limit {
			t.Errorf("%d connections are kept, at most %d may be", len(r.Connections), limit)
		}
		for _, x := range r.Findings {
			if !slices.Contains(judge.Codes(), x.Code) || x.Text == "" || x.Next == "" {
				t.Errorf("finding %+v", x)
			}
		}
		if _, again := judged(); again != text {
			t.Errorf("twice the same frames, two reports:\n%s\n%s", text, again)
		}
	})
}

type writerFunc func([]byte) (int, error)

func (w writerFunc) Write(b []byte) (int, error) { return w(b) }

// frameRecord is an Ethernet frame as the reader hands it over.
func frameRecord(b []byte, link *capture.Interface) *capture.Record {
	rec := &capture.Record{Interface: link, Data: b, OrigLen: len(b)}
	rec.Offset = len(b)
	if len(b) >= 14 {
		rec.HasSrc, rec.HasDst, rec.Offset = true, true, 14
		copy(rec.DstMAC[:], b)
		copy(rec.SrcMAC[:], b[6:])
		rec.EtherType = packet.EtherType(b[12])<<8 | packet.EtherType(b[13])
	}
	return rec
}
