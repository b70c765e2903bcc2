package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"pktdirector/control"
	"pktdirector/dataplane"
	"pktdirector/packet"
)

// TestTheSchemaInDocsIsTheProgrammes keeps docs/director.schema.json what
// "pktdirector config schema" prints.
func TestTheSchemaInDocsIsTheProgrammes(t *testing.T) {
	b, err := os.ReadFile("../../docs/director.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, configSchema()) {
		t.Error("docs/director.schema.json is old: go run ./cmd/pktdirector config schema > docs/director.schema.json")
	}
}

// running is a director as a file says it, without links, and what changes it.
func running(t *testing.T, text string) (*source, *administration) {
	t.Helper()
	c, err := control.Parse("d.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	d := newDirector(1, 1<<16)
	if err := configure(d, c); err != nil {
		t.Fatal(err)
	}
	s := &source{director: d, config: c, events: newEvents(d)}
	a := newAdministration(s, planOf(c), nil, slog.New(slog.DiscardHandler))
	s.Admin = a
	return s, a
}

// answering has a director answer on a socket until the test ends.
func answering(t *testing.T, s *source) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	server, err := control.Listen(socket, s, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return socket
}

// TestExportAsksARunningDirector: what a file, ipvsadm and settings changed is in
// the file that is written, and makes another director the same.
func TestExportAsksARunningDirector(t *testing.T) {
	const text = `links: [{name: eth0}, {name: eth1, vlan: 100, ring: {slots: 4096}, addresses: [10.2.0.254/24]}]
routes: [{to: 10.3.0.0/16, via: 10.2.0.1, link: eth1}]
sysctl: {drop_entry: 1, conn_reuse_mode: 2}
timeouts: {udp: 30}
marks: [{fwmark: 3, dst: 192.0.2.40, link: eth1}]
services:
  - {vip: 192.0.2.20, protocol: udp, port: 53, method: dr, servers: [{address: 10.2.0.9}, {address: 10.2.0.3}]}
  - {vip: 192.0.2.10, protocol: tcp, port: 80, method: fullnat, sources: [10.2.0.200], toa: true, clamp_mss: true, servers: [{address: 10.2.0.9, weight: 0}]}
  - {fwmark: 3, method: nat}
`
	s, admin := running(t, text)
	for _, line := range []string{"-A -t 192.0.2.9:443 -s sh -b sh-port -p 50 -M 255.0.255.0", "-a -t 192.0.2.9:443 -r 10.2.0.3:0 -m -w 0 -x 9", "--set 100 0 0", "-e -u 192.0.2.20:53 -r 10.2.0.9 -w 5"} {
		if a := admin.Ipvsadm(control.Line{Args: strings.Fields(line)}); a.Code != 0 {
			t.Fatalf("%s: %s", line, a.Stderr)
		}
	}
	socket := answering(t, s)

	file := filepath.Join(t.TempDir(), "link.yaml")
	target := filepath.Join(filepath.Dir(file), "director.yaml")
	if err := os.WriteFile(target, []byte("old"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("director.yaml", file); err != nil {
		t.Fatal(err)
	}
	if code := execute([]string{"config", "export", "--control", socket, "-o", file}); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	written, err := os.ReadFile(target)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(target); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the file's rights: %v %v", info.Mode(), err)
	}
	if left, _ := os.ReadDir(filepath.Dir(file)); len(left) != 2 {
		t.Errorf("%d files beside the two: %v", len(left), left)
	}
	again, _ := running(t, string(written))
	ignore := cmpopts.IgnoreFields(control.Sysctl{}, "At")
	equal := cmpopts.EquateComparable(packet.Addr{}, netip.Addr{}, netip.Prefix{})
	if diff := cmp.Diff(s.Config(), again.Config(), ignore, equal, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the director that was exported, and the one of its file (-first +second):\n%s\n%s", diff, written)
	}
	if a, b := s.director.Tunables(), again.director.Tunables(); a != b {
		t.Errorf("settings %+v of the first director, %+v of the second", a, b)
	}
	for i, d := range []*dataplane.Director{s.director, again.director} {
		if tcp, fin, udp := d.Timeouts(); tcp != 100*time.Second || fin != 120*time.Second || udp != 30*time.Second {
			t.Errorf("timeouts of director %d: %v %v %v", i, tcp, fin, udp)
		}
	}
	order := func(s *source) (list []string) {
		for _, svc := range s.director.Status() {
			for _, d := range svc.Destinations {
				list = append(list, svc.Service.String()+" "+d.Server.String())
			}
		}
		return list
	}
	if diff := cmp.Diff(order(s), order(again)); diff != "" {
		t.Errorf("the order of servers:\n%s", diff)
	}
	if err := again.config.CheckSysctl(dataplane.CheckTunable); err != nil {
		t.Error(err)
	}

	admin.Ipvsadm(control.Line{Args: strings.Fields("-a -t 192.0.2.9:443 -r 127.0.0.1:443 -m")})
	if code := execute([]string{"config", "export", "--control", socket, "-o", file}); code != exitRemarks {
		t.Errorf("exit code %d with a server that cannot stand in a file, want %d", code, exitRemarks)
	}
	if code := execute([]string{"config", "export", "--control", socket, "-o", filepath.Join(t.TempDir(), "no", "such")}); code != exitFailed {
		t.Errorf("exit code %d where the file cannot be written", code)
	}
	if code := execute([]string{"config", "export", "--control", socket, "-o", "/dev/null"}); code != exitFailed {
		t.Errorf("exit code %d where the file is a device", code)
	}
}

// TestAWrongFileChangesNothing: each wrong line, loaded by a running director, is
// refused with its place, and the whole state stays.
func TestAWrongFileChangesNothing(t *testing.T) {
	const testdata = "../../control/testdata/"
	base, err := os.ReadFile(testdata + "base.yaml")
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(testdata + "wrong-config.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct{ Name, Old, New, Place string }
	if err := json.Unmarshal(b, &rows); err != nil {
		t.Fatal(err)
	}
	s, admin := running(t, string(base))
	file := filepath.Join(t.TempDir(), "director.yaml")
	r := &reloader{file: file, admin: admin, log: slog.New(slog.DiscardHandler)}
	r.loaded.Store(s.config)
	state := func() any {
		tcp, fin, udp := s.director.Timeouts()
		return []any{s.director.Ruleset(), s.director.Status(), s.director.Tunables(), s.director.Table(), s.director.Verdicts(), tcp, fin, udp, r.loaded.Load()}
	}
	before := state()
	for _, row := range rows {
		if err := os.WriteFile(file, []byte(strings.Replace(string(base), row.Old, row.New, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Reload("a test", false); err == nil || !strings.Contains(err.Error(), file+":"+row.Place+": ") {
			t.Errorf("%s: %v, want the place %s", row.Name, err, row.Place)
		}
		if !reflect.DeepEqual(before, state()) {
			t.Fatalf("%s: refused, and yet the director is\n%+v\nand was\n%+v", row.Name, state(), before)
		}
	}
	right := strings.Replace(string(base), "weight: 5", "weight: 6", 1)
	if err := os.WriteFile(file, []byte(right), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Reload("a test", false); err != nil || reflect.DeepEqual(before, state()) {
		t.Errorf("a right file: %v", err)
	}
}
