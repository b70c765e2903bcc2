package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Source is what the status API shows. Both methods may be called from
// several goroutines.
type Source interface {
	Status() Status
	// Connections calls yield for each connection until it returns false.
	Connections(yield func(Connection) bool)
}

// Server is the status API: HTTP and JSON on a unix socket that only its
// owner may use.
type Server struct {
	path     string
	listener *net.UnixListener
	http     *http.Server
}

// Listen makes the socket at path, in place of one that nobody listens on any
// more.
func Listen(path string, source Source, log *slog.Logger) (*Server, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("status API: %w", err)
	}
	l, err := listenUnix(path)
	if err != nil {
		return nil, fmt.Errorf("status API: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
		s := source.Status()
		s.Version = APIVersion
		writeJSON(w, s)
	})
	mux.HandleFunc("GET /v1/connections", func(w http.ResponseWriter, _ *http.Request) {
		writeConnections(w, source)
	})
	return &Server{
		path:     path,
		listener: l,
		http: &http.Server{
			Handler:           mux,
			ReadHeaderTimeout: 5 * time.Second,
			ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		},
	}, nil
}

// listenUnix makes the socket with no moment in which others could connect: it
// is bound inside a folder of its own and moved to its place.
func listenUnix(path string) (*net.UnixListener, error) {
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		c.Close()
		return nil, fmt.Errorf("listen %s: another director listens there: stop it, or name another socket by control", path)
	} else if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("listen %s: %w", path, err)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() != fs.ModeSocket {
		return nil, fmt.Errorf("listen %s: a file that is no socket is in the way: remove it, or name another path by control", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	// The process's file mode mask is not for a library to change, so the
	// folder guards the socket until its mode is set.
	dir, err := os.MkdirTemp(filepath.Dir(path), ".sock")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	private := filepath.Join(dir, "s")
	if len(private) > maxSocket {
		return nil, fmt.Errorf("listen %s: the path is too long for a unix socket", path)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: private, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(private, 0o600), os.Rename(private, path)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// RemoveStale removes the socket at path if nobody listens on it any more, and
// reports whether it did.
func RemoveStale(path string) (bool, error) {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != fs.ModeSocket {
		return false, nil
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		return false, c.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return false, fmt.Errorf("control socket: %w", err)
	}
	// A director that starts right now puts a socket of its own there.
	if now, err := os.Lstat(path); err != nil || !os.SameFile(info, now) {
		return false, nil
	}
	if err := os.Remove(path); err != nil {
		return false, fmt.Errorf("control socket: %w", err)
	}
	return true, nil
}

// Run answers requests until ctx ends, then removes the socket. Everything it
// started has ended when it returns.
func (s *Server) Run(ctx context.Context) error {
	own, statErr := os.Lstat(s.path)
	var wg sync.WaitGroup
	served := make(chan error, 1)
	wg.Go(func() { served <- s.http.Serve(s.listener) })
	var err error
	select {
	case err = <-served:
	case <-ctx.Done():
		stop, cancel := context.WithTimeout(context.Background(), time.Second)
		if s.http.Shutdown(stop) != nil {
			s.http.Close()
		}
		cancel()
		err = <-served
	}
	wg.Wait()
	if now, e := os.Lstat(s.path); statErr == nil && e == nil && os.SameFile(own, now) {
		os.Remove(s.path)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("status API: %w", err)
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(v) // the client went away: nothing to tell it
}

// writeConnections streams the connections, one JSON object a line: there may
// be millions.
func writeConnections(w http.ResponseWriter, source Source) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	e := json.NewEncoder(w)
	source.Connections(func(c Connection) bool { return e.Encode(c) == nil })
}

// isGone reports whether err says that nobody listens at the socket.
func isGone(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist)
}
