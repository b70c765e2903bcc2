package control_test

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"pktdirector/control"
)

// TestCommandLinesAreReadAsIpvsadmReadsThem has what Debian's ipvsadm 1.31 said of
// command lines of random options and values, when every call to the kernel was
// answered with success: so it is ipvsadm that refused, or nothing was wrong.
func TestCommandLinesAreReadAsIpvsadmReadsThem(t *testing.T) {
	b, err := os.ReadFile("testdata/ipvsadm.json")
	if err != nil {
		t.Fatal(err)
	}
	var lines []struct {
		Args   []string
		Code   int
		Stderr string
	}
	if err := json.Unmarshal(b, &lines); err != nil {
		t.Fatal(err)
	}
	if len(lines) < 1000 {
		t.Fatalf("%d lines", len(lines))
	}
	for _, l := range lines {
		_, err := control.ParseCommand(l.Args, wellKnown())
		code, said := 0, ""
		if refusal := (*control.CommandError)(nil); errors.As(err, &refusal) {
			code, said = refusal.Code, refusal.Text+"\n"
		}
		if code != l.Code || said != l.Stderr {
			t.Errorf("ipvsadm %s\ngot  %d %q\nwant %d %q", strings.Join(l.Args, " "), code, said, l.Code, l.Stderr)
		}
	}
}
