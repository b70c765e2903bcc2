package sim_test

import (
	"os"
	"path/filepath"
	"testing"

	"pktdirector/sim"
)

// FuzzScenario reads scenario files and plays what is taken: neither panics.
func FuzzScenario(f *testing.F) {
	for _, pattern := range []string{"testdata/vectors/C-*.json", "testdata/vectors/E-*.json", "testdata/vectors/D-nat-*.json", "../docs/scenarios/u*.json"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatalf("no scenarios in %s (%v)", pattern, err)
		}
		for _, name := range files {
			if text, err := os.ReadFile(name); err == nil && len(text) < 1<<13 {
				f.Add(text)
			}
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 1<<13 {
			return
		}
		s, err := sim.Parse(text)
		if err != nil {
			return
		}
		seconds := 0.0
		for i := range s.Events {
			seconds += s.Events[i].Seconds
			if len(s.Events) > 100 || seconds > 3600 {
				return // only long
			}
		}
		sim.Check(s, sim.Options{})
	})
}

// FuzzListings compares listings as recordings have them.
func FuzzListings(f *testing.F) {
	f.Add("-Lcn", "TCP 00:59  SYN_RECV    1.2.3.4:5 6.7.8.9:80 10.0.0.1:80\n", "TCP 00:58  SYN_RECV    1.2.3.4:5 6.7.8.9:80 10.0.0.1:80\n")
	f.Add("-Ln --stats", "Conns InPkts\nTCP 1.2.3.4:80   1  2K\n", "Conns InPkts\nTCP 1.2.3.4:80   1  3K\n")
	f.Add("-Ln --nosort", "a\n  -> b\n", "a\n  -> b\n")
	f.Fuzz(func(t *testing.T, args, want, got string) {
		if !sim.SameText(args, want, want) {
			t.Fatalf("%q differs from itself", want)
		}
		sim.SameText(args, want, got)
	})
}

// FuzzMask masks what recordings leave out of a frame: what is masked once is
// masked.
func FuzzMask(f *testing.F) {
	f.Add("02000000000102000000000208004500001c0000400040010000cb00710ac6336401", "")
	f.Fuzz(func(t *testing.T, in, frame string) {
		once := sim.Masked(in, frame)
		if twice := sim.Masked(in, once); twice != once && len(once) == len(frame) {
			t.Fatalf("%s is masked as %s and again as %s", frame, once, twice)
		}
	})
}
