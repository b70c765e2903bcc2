package systemd_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pktdirector/systemd"
)

// manager listens as a service manager does, and returns what comes.
func manager(t *testing.T, name string) (next func() string) {
	t.Helper()
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	t.Setenv("NOTIFY_SOCKET", name)
	return func() string {
		c.SetReadDeadline(time.Now().Add(2 * time.Second))
		b := make([]byte, 4096)
		n, err := c.Read(b)
		if err != nil {
			return err.Error()
		}
		return string(b[:n])
	}
}

func TestWhatTheManagerIsTold(t *testing.T) {
	for kind, name := range map[string]string{"a path": filepath.Join(t.TempDir(), "notify"), "an abstract name": fmt.Sprintf("@pktdirector-test-%d", os.Getpid())} {
		t.Run(kind, func(t *testing.T) {
			next := manager(t, name)
			m := systemd.New(slog.New(slog.DiscardHandler))
			for _, c := range []struct {
				tell func()
				want string
			}{
				{func() { m.Ready("forwarding") }, `^READY=1\nSTATUS=forwarding$`},
				{func() { m.Reloading("a\nb") }, `^RELOADING=1\nMONOTONIC_USEC=[1-9][0-9]+\nSTATUS=a b$`},
				{func() { m.Stopping("") }, `^STOPPING=1\nSTATUS=$`},
				{func() { m.MainPID(4711) }, `^MAINPID=4711$`},
			} {
				c.tell()
				if got := next(); !regexp.MustCompile(c.want).MatchString(got) {
					t.Errorf("told %q, want %s", got, c.want)
				}
			}
		})
	}
}

// Without a manager, and with one that does not listen, nothing happens but a line
// in the log.
func TestNobodyListens(t *testing.T) {
	for socket, lines := range map[string]int{"": 0, filepath.Join(t.TempDir(), "gone"): 1, "@nobody-listens-here": 1} {
		t.Setenv("NOTIFY_SOCKET", socket)
		var text strings.Builder
		m := systemd.New(slog.New(slog.NewTextHandler(&text, nil)))
		m.Ready("x")
		if n := strings.Count(text.String(), "\n"); n != lines {
			t.Errorf("%q: %d lines in the log: %s", socket, n, text.String())
		}
	}
}

func TestTheWatchdogHearsOfEvidenceOnly(t *testing.T) {
	next := manager(t, filepath.Join(t.TempDir(), "notify"))
	t.Setenv("WATCHDOG_USEC", "80000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	var text strings.Builder
	m := systemd.New(slog.New(slog.NewTextHandler(&text, nil)))
	var dead, asked atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- m.Run(ctx, func() string { return "2 services" }, func(ctx context.Context) error {
			asked.Add(1)
			switch dead.Load() {
			case 1:
				return errors.New("a queue stands still")
			case 2: // a check that hangs
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
	}()
	heard := []string{next(), next(), next(), next()}
	if want := []string{"WATCHDOG=1", "STATUS=2 services", "WATCHDOG=1", "WATCHDOG=1"}; !slices.Equal(heard, want) {
		t.Errorf("heard %q, want %q", heard, want)
	}
	for how := int64(1); how <= 2; how++ {
		dead.Store(how)
		time.Sleep(50 * time.Millisecond)
		dead.Store(how)
		before := asked.Load()
		time.Sleep(300 * time.Millisecond)
		if asked.Load() < before+2 {
			t.Errorf("asked %d times in 300 ms", asked.Load()-before)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	pings := 0
	for got := next(); strings.HasPrefix(got, "WATCHDOG"); got = next() {
		pings++
	}
	if pings > 4 { // those on their way when it died
		t.Errorf("%d pings of a dead director", pings)
	}
	if !strings.Contains(text.String(), "a queue stands still") {
		t.Errorf("the log says %q", text.String())
	}
}

// A successor has another process id, and is still watched.
func TestASuccessorIsWatched(t *testing.T) {
	next := manager(t, filepath.Join(t.TempDir(), "notify"))
	t.Setenv("WATCHDOG_USEC", "80000")
	t.Setenv("WATCHDOG_PID", "1")
	env := systemd.Environment(os.Environ())
	if len(env) != len(os.Environ())-1 || !slices.Contains(env, "WATCHDOG_USEC=80000") || slices.Contains(env, "WATCHDOG_PID=1") {
		t.Errorf("a successor's environment: %q", env)
	}
	m := systemd.New(slog.New(slog.DiscardHandler))
	run := func() {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := m.Run(ctx, func() string { return "" }, func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
	}
	run() // meant for another process: nothing is said
	os.Unsetenv("WATCHDOG_PID")
	run()
	if got := next(); got != "WATCHDOG=1" {
		t.Errorf("a successor says %q", got)
	}
	t.Setenv("WATCHDOG_USEC", "soon")
	if err := m.Run(t.Context(), nil, nil); err == nil || !strings.Contains(err.Error(), "WATCHDOG_USEC") {
		t.Errorf("a watchdog without sense: %v", err)
	}
}
