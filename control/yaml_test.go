package control_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"pktdirector/control"
)

func TestCallYAML(t *testing.T) {
	list := func(text string) func() error {
		return func() error {
			var into struct{ Hosts []string }
			return yaml.Unmarshal([]byte(text), &into)
		}
	}
	for _, c := range []struct {
		name string
		read func() error
		want string // in the error; "": none
	}{
		{"a list", list("hosts: [a]"), ""},
		{"a word for a list", list("hosts: a"), "string was used where sequence is expected"},
		{"a tagged word for a list", list("hosts: !!str a"), "the YAML library fails on this text (runtime error: invalid memory address"},
		{"a tagged mapping for a list", list("hosts: !x {}"), "the YAML library fails on this text"},
		{"an anchored, tagged word for a list", list("hosts: &a !x b"), "the YAML library fails on this text"},
		{"an error of its own", func() error { return io.ErrUnexpectedEOF }, "unexpected EOF"},
	} {
		err := control.CallYAML(c.read)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if err := control.CallYAML(func() error { return io.ErrUnexpectedEOF }); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the error is another one: %v", err)
	}
}
