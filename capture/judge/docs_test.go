package judge_test

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"pktdirector/capture/judge"
)

// TestEveryFindingIsDocumented: docs/debugging.md has a row for every code, and for no
// other, in the order in which findings are shown.
func TestEveryFindingIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/debugging.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows []judge.Code
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z0-9-]+)` \\| [^|]+ \\| [^|]+ \\|$").FindAllSubmatch(page, -1) {
		rows = append(rows, judge.Code(m[1]))
	}
	if !slices.Equal(rows, judge.Codes()) {
		t.Errorf("docs/debugging.md has rows for\n%v, there are\n%v", rows, judge.Codes())
	}
	source, err := os.ReadFile("codes.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(regexp.MustCompile(`(?m)^\t\w+ +Code = "`).FindAll(source, -1)); n != len(judge.Codes()) {
		t.Errorf("%d codes are declared, Codes lists %d", n, len(judge.Codes()))
	}
}
