package pktdirector_test

import (
	"path/filepath"
	"regexp"
	"testing"
)

// TestEveryFuzzTargetIsListed compares docs/fuzzing.md with the targets.
func TestEveryFuzzTargetIsListed(t *testing.T) {
	listed := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(Fuzz\\w+)` \\| (\\S+) \\|.*\\| (.+) \\|$").FindAllStringSubmatch(page(t, "docs/fuzzing.md"), -1) {
		listed[row[2]+" "+row[1]] = true
	}
	there := map[string]bool{}
	target := regexp.MustCompile(`(?m)^func (Fuzz\w+)\(f \*testing\.F\)`)
	eachTestFile(t, func(path string, text []byte) {
		for _, m := range target.FindAllSubmatch(text, -1) {
			there[filepath.ToSlash(filepath.Dir(path))+" "+string(m[1])] = true
		}
	})
	for name := range there {
		if !listed[name] {
			t.Errorf("docs/fuzzing.md has no row for %s", name)
		}
	}
	for name := range listed {
		if !there[name] {
			t.Errorf("docs/fuzzing.md has a row for %s, which there is not", name)
		}
	}
}
