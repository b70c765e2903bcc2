package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A setting that the director does not know is refused with its place, before
// anything is touched.
func TestASettingIsRefusedAtItsPlace(t *testing.T) {
	reference, err := os.ReadFile("../../docs/director.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, old, new, want string }{
		{"nothing", "", "", ""},
		{"an unknown name", "sloppy_tcp:", "sloppy_udp:", `sysctl.net.ipv4.vs.sloppy_udp: the director has no setting of that name`},
		{"a value out of range", "conn_reuse_mode: 1 ", "conn_reuse_mode: 9 ", `sysctl.net.ipv4.vs.conn_reuse_mode: "9" is not a number from 0 to 3`},
	} {
		file := filepath.Join(t.TempDir(), "director.yaml")
		text := strings.Replace(string(reference), c.old, c.new, 1)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := loadConfig(file)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), file+":") || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: got %v; want %s", c.name, err, c.want)
		}
	}
}
