package control_test

import (
	"context"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"pktdirector/control"
)

// fixed is a Source that always shows the same.
type fixed struct {
	status control.Status
	conns  []control.Connection
}

func (f fixed) Status() control.Status { return f.status }

func (f fixed) Connections(yield func(control.Connection) bool) {
	for _, c := range f.conns {
		if !yield(c) {
			return
		}
	}
}

func example() fixed {
	return fixed{
		control.Status{PID: 7, TableSize: 4096, Links: []control.LinkState{{Name: "eth0", Type: control.AFPacket, MTU: 1500, Counters: map[string]uint64{"rx_packets": 3}}},
			Services: []control.Service{{Protocol: "TCP", VIP: "192.0.2.10", Port: 80, Scheduler: "rr", Destinations: []control.Destination{{Address: "10.2.0.1", Port: 80, Method: "Route", Weight: 1}}}},
			Verdicts: []control.Verdict{{Name: "Forwarded", Count: 3, Help: "sent on"}}},
		[]control.Connection{
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
