package pktdirector_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// eachTestFile calls look with each file of tests.
func eachTestFile(t *testing.T, look func(path string, text []byte)) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && len(path) > 1 && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err == nil {
			look(path, text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestOnlyRequireSkips: what cannot run for want of something asks nstest.Require,
// which fails where every test must run. A case that makes no sense is left out.
func TestOnlyRequireSkips(t *testing.T) {
	skip := regexp.MustCompile(`\b[tbf]\.Skip(f|Now)?\(`)
	eachTestFile(t, func(path string, text []byte) {
		for _, at := range skip.FindAllIndex(text, -1) {
			t.Errorf("%s:%d: ask nstest.Require, or leave the case out", path, 1+strings.Count(string(text[:at[0]]), "\n"))
		}
	})
}
