package control_test

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"pktdirector/conntrack"
	"pktdirector/control"
)

// fixed is a Source that always shows the same.
type fixed struct {
	control.Source // what a test does not ask for
	status         control.Status
	conns          []control.Connection
}

func (f fixed) Status() control.Status { return f.status }

// Ipvsadm answers with what it was asked.
func (f fixed) Ipvsadm(l control.Line) control.Answer {
	return control.Answer{Code: len(l.Args), Stdout: strings.Join(l.Args, " "), Stderr: l.Stdin}
}

func (f fixed) Connections(_ conntrack.Filter, yield func(control.Connection) bool) {
	for _, c := range f.conns {
		if !yield(c) {
			return
		}
	}
}

func example() fixed {
	return fixed{
		status: control.Status{PID: 7, TableSize: 4096, Links: []control.LinkState{{Name: "eth0", Type: control.AFPacket, MTU: 1500, Counters: map[string]uint64{"rx_packets": 3}}},
			Services: []control.Service{{Protocol: "TCP", VIP: "192.0.2.10", Port: 80, Scheduler: "rr", Destinations: []control.Destination{{Address: "10.2.0.1", Port: 80, Method: "Route", Weight: 1}}}},
			Verdicts: []control.Verdict{{Name: "Forwarded", Count: 3, Help: "sent on"}}},
		conns: []control.Connection{
			{Protocol: "TCP", State: "ESTABLISHED", Client: "198.51.100.7", ClientPort: 1000, VIP: "192.0.2.10", Port: 80, Destination: "10.2.0.1", DestinationPort: 80, Expires: 899},
			{Protocol: "UDP", State: "UDP", Client: "198.51.100.8", ClientPort: 1, VIP: "192.0.2.10", Port: 53, Destination: "10.2.0.1", DestinationPort: 53, Expires: 9},
		},
	}
}

// serve runs a status API at path until the returned function is called.
func serve(t *testing.T, path string, source control.Source) (stop func()) {
	t.Helper()
	s, err := control.Listen(path, source, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

func TestClientReadsWhatTheServerShows(t *testing.T) {
	defer goleak.VerifyNone(t)
	path := filepath.Join(t.TempDir(), "run", "d.sock")
	want := example()
	stop := serve(t, path, want)
	c := control.NewClient(path)
	status, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want.status.Version = control.APIVersion
	if diff := cmp.Diff(&want.status, status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	conns, err := c.Connections(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.conns, conns); diff != "" {
		t.Errorf("connections (-want +got):\n%s", diff)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the socket's mode is %o; want 600", info.Mode().Perm())
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; int(owner) != os.Geteuid() {
		t.Errorf("the socket belongs to user %d; want the one who started the director, %d", owner, os.Geteuid())
	}
	stop()
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is still there after Run: %v", err)
	}
	if _, err := c.Status(t.Context()); err == nil || !strings.Contains(err.Error(), `start one with "pktdirector run"`) {
		t.Errorf("with no director: %v", err)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 0 {
		t.Errorf("left in the folder: %v %v", left, err)
	}
}

func TestListenTakesOverFromADeadDirectorOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	stop := serve(t, path, example())
	if _, err := control.Listen(path, example(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "another director listens there") {
		t.Errorf("a second director: %v", err)
	}
	if _, err := control.NewClient(path).Status(t.Context()); err != nil {
		t.Errorf("the first director after the second's try: %v", err)
	}
	stop()

	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := control.Listen(path, example(), slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a plain file was taken for a socket")
	}
	if info, err := os.Lstat(path); err != nil || info.Mode().Type() == fs.ModeSocket {
		t.Errorf("the plain file is gone: %v", err)
	}
}

// TestADirectorKilledWhileItMadeItsSocket leaves what it had of it to the next one, or
// to whoever cleans up.
func TestADirectorKilledWhileItMadeItsSocket(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "d.sock")
	killed := func() {
		t.Helper()
		made := filepath.Join(dir, ".d.sock.new")
		if err := os.Mkdir(made, 0o700); err != nil {
			t.Fatal(err)
		}
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(made, "s"), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		l.Close()
	}
	left := func() int {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	killed()
	stop := serve(t, path, example())
	if n := left(); n != 1 {
		t.Errorf("%d files beside a director that runs, want its socket only", n)
	}
	stop()
	killed()
	if done, err := control.RemoveStale(path); !done || err != nil {
		t.Errorf("cleaning up: %v, %v", done, err)
	}
	if n := left(); n != 0 {
		t.Errorf("%d files after cleaning up", n)
	}
}

func TestRemoveStaleRemovesNothingElse(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "d.sock")
	remove := func(what string, want bool) {
		t.Helper()
		got, err := control.RemoveStale(path)
		if got != want || err != nil {
			t.Errorf("%s: %v, %v; want %v", what, got, err, want)
		}
	}
	remove("nothing there", false)
	stop := serve(t, path, example())
	remove("a live director's", false)
	if _, err := control.NewClient(path).Status(t.Context()); err != nil {
		t.Errorf("the live director after it: %v", err)
	}
	stop()
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	remove("a dead director's", true)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	remove("a plain file", false)
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

func TestIpvsadmThroughTheSocket(t *testing.T) {
	defer goleak.VerifyNone(t)
	path := filepath.Join(t.TempDir(), "d.sock")
	defer serve(t, path, example())()
	got, err := control.NewClient(path).Ipvsadm(t.Context(), control.Line{Args: []string{"-R", "-n"}, Stdin: "-C\n"})
	if want := (control.Answer{Code: 2, Stdout: "-R -n", Stderr: "-C\n"}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	raw := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
	for name, test := range map[string]struct {
		method, body string
		code         int
	}{
		"no JSON":           {http.MethodPost, "-C", 400},
		"an unknown field":  {http.MethodPost, `{"arg": ["-C"]}`, 400},
		"two commands":      {http.MethodPost, `{"args": ["-C"]} {"args": ["-C"]}`, 400},
		"nothing":           {http.MethodPost, "", 400},
		"too much":          {http.MethodPost, `{"stdin": "` + strings.Repeat("x", 17<<20) + `"}`, 413},
		"another method":    {http.MethodGet, "", 405},
		"a command":         {http.MethodPost, `{"args": ["-C"]}`, 200},
		"no command at all": {http.MethodPost, `{}`, 200},
	} {
		req, err := http.NewRequestWithContext(t.Context(), test.method, "http://director/v1/ipvsadm", strings.NewReader(test.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := raw.Do(req)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		resp.Body.Close()
		if resp.StatusCode != test.code {
			t.Errorf("%s: %s, want %d", name, resp.Status, test.code)
		}
	}
}

// Standby and SetStandby: this one takes every change, and stays as it is.
func (f fixed) Standby() bool { return f.status.PID == standsBy }

func (f fixed) SetStandby(_ string, on bool) error {
	if on != f.Standby() {
		return errors.New("it has a tundev")
	}
	return nil
}

// standsBy is the PID of a fixed that stands by.
const standsBy = 7

func TestStandbyThroughTheSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	defer serve(t, path, fixed{status: control.Status{PID: standsBy}})()
	c := control.NewClient(path)
	if on, err := c.Standby(t.Context()); err != nil || !on {
		t.Errorf("it stands by: got %v, %v", on, err)
	}
	if err := c.SetStandby(t.Context(), true); err != nil {
		t.Error(err)
	}
	if err := c.SetStandby(t.Context(), false); err == nil || !strings.Contains(err.Error(), "it has a tundev") {
		t.Errorf("a refusal came as %v", err)
	}
}

// Diagnose tells of the connections that there are.
func (f fixed) Diagnose() (all []control.Diagnosis) {
	for _, c := range f.conns {
		all = append(all, control.Diagnosis{Code: "no_return_traffic", Text: "none came", Remedy: "look", Client: c.Client})
	}
	return all
}

func TestDiagnosesThroughTheSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	source := example()
	defer serve(t, path, source)()
	got, err := control.NewClient(path).Diagnose(t.Context())
	if diff := cmp.Diff(source.Diagnose(), got); err != nil || diff != "" || len(got) == 0 {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	var out strings.Builder
	if err := control.WriteDiagnoses(&out, got[:1]); err != nil || out.String() != "no_return_traffic: none came; look\n" {
		t.Errorf("%v, %q", err, out.String())
	}
}
