package main

import (
	"errors"
	"testing"

	"pktdirector/control"
	"pktdirector/dataplane"
	"pktdirector/image"
)

// FuzzSnapshot begins directors with files that are none of a director's: as they are, or
// with right checksums and anything as what stands beside the engine's state. Such a file
// is refused as a whole, and is to blame for it; or the director does what it says that it
// does, and the configuration could be applied.
func FuzzSnapshot(f *testing.F) {
	text := fileHead + caseServices("{address: 10.2.0.1}")
	good := snapshotOf(f, text)
	parts, err := image.Parts(good)
	if err != nil {
		f.Fatal(err)
	}
	for _, p := range parts {
		if p.Kind == dataplane.ImageOfCaller {
			f.Add([]byte(nil), p.Payload, text)
			f.Add([]byte(nil), p.Payload, "links: [{name: eth1}]\ndrift: keep\nservices: []\n")
		}
	}
	f.Add(good, []byte(nil), text)
	f.Add(good[:len(good)/2], []byte(nil), text)
	f.Fuzz(func(t *testing.T, file, about []byte, text string) {
		c, err := control.Parse("director.yaml", []byte(text))
		if err != nil || c.CheckSysctl(dataplane.CheckTunable) != nil {
			return
		}
		if _, err := begin(c, 1<<10); err != nil {
			return // no director begins with it
		}
		if len(about) > 0 {
			file = image.AppendHead(nil)
			head := len(file)
			for i, p := range parts {
				payload := p.Payload
				if p.Kind == dataplane.ImageOfCaller {
					payload = about
				}
				file = image.AppendPart(file, p.Kind, i, func(b []byte) []byte { return append(b, payload...) })
			}
			file = image.AppendEnd(file, len(parts), int64(len(file)-head))
		}
		read, err := image.Parts(file)
		if err != nil {
			return
		}
		b, err := restore(read, c, 1<<10)
		if err != nil {
			if !errors.As(err, new(unusable)) {
				t.Fatalf("the configuration is blamed, which a director begins with: %v", err)
			}
			return
		}
		if is := runningNow(b.director, b.does); len(control.Diff(is, b.does)) > 0 {
			t.Errorf("the director does otherwise than it says: %v", control.Diff(is, b.does))
		}
		if err := b.director.Check(b.does.Ruleset); err != nil {
			t.Error(err)
		}
		if err := become(b.director, c.Asked(defaults())); err != nil {
			t.Errorf("the configuration cannot be applied any more: %v", err)
		}
	})
}
