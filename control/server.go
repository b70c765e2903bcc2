package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"pktdirector/conntrack"
)

// Source is what the API shows and changes. Its methods may be called from
// several goroutines.
type Source interface {
	Status() Status
	// Config is what is running, as a file could say it.
	Config() Config
	// Connections calls yield for each connection that f chooses until it returns
	// false.
	Connections(f conntrack.Filter, yield func(Connection) bool)
	// Diagnose tells what goes wrong for clients.
	Diagnose() []Diagnosis
	// Explain tells a connection's story, or what would become of one.
	Explain(ExplainQuery) Story
	// Events are those that GET /v1/events tells.
	Events() *Events
	Admin
	Reloader
	Upgrader
}

// Server is the API: HTTP and JSON on a unix socket that only its owner may use,
// and where it is asked for on TCP.
type Server struct {
	path     string
	listener net.Listener
	raw      *net.UnixListener // under listener
	http     *http.Server
	log      *slog.Logger

	tcp     net.Listener     // nil: none
	tcpRaw  *net.TCPListener // under tcp
	tcpHTTP *http.Server

	left atomic.Bool // to another process, which listens on
}

// Listen makes the socket at path, in place of one that nobody listens on any
// more.
func Listen(path string, source Source, log *slog.Logger) (*Server, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("API: %w", err)
	}
	l, err := listenUnix(path)
	if err != nil {
		return nil, fmt.Errorf("API: %w", err)
	}
	return ListenOn(path, l, source, log), nil
}

// ListenOn is Listen at a socket that another process has made at path.
func ListenOn(path string, l *net.UnixListener, source Source, log *slog.Logger) *Server {
	a := &api{Source: source, log: log}
	return &Server{path: path, listener: &crowd{Listener: l, most: maxConns}, raw: l, http: newHTTPServer(a.mux(Operations()), log), log: log}
}

// Files returns duplicates of the listeners' sockets, for another process to listen on:
// the unix socket and, where there is one, the TCP listener.
func (s *Server) Files() ([]*os.File, error) {
	f, err := s.raw.File()
	if err != nil || s.tcpRaw == nil {
		return []*os.File{f}, err
	}
	t, err := s.tcpRaw.File()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return []*os.File{f, t}, nil
}

// Leave says whether another process listens, too: then the end of Run answers all
// requests that have come, and the socket stays.
func (s *Server) Leave(on bool) { s.left.Store(on) }

// Bounds of what one client can hold. A response has no end where it is a stream.
const (
	headerTimeout  = 5 * time.Second
	requestTimeout = time.Minute // header and body
	idleTimeout    = 2 * time.Minute
	maxHeader      = 1 << 14 // bytes
	leaveTimeout   = 10 * time.Second
)

func newHTTPServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ConnContext: withGuest,
		ErrorLog:    slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
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
	// folder guards the socket until its mode is set. Its name is always the same, so
	// that what a director that was killed here left behind is found.
	dir := cradle(path)
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
		return nil, fmt.Errorf("listen %s: %w", path, err)
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

// cradle is the folder in which the socket at path is made.
func cradle(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
}

// RemoveStale removes the socket at path if nobody listens on it any more, or what a
// director that was killed left of one that it was making, and reports whether it did.
func RemoveStale(path string) (bool, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(cradle(path)); err != nil {
			return false, nil
		}
		if err := os.RemoveAll(cradle(path)); err != nil {
			return false, fmt.Errorf("control socket: %w", err)
		}
		return true, nil
	}
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

// Close ends a server that Run was not called for, and removes the socket.
func (s *Server) Close() error {
	err := s.listener.Close()
	if s.tcp != nil {
		err = errors.Join(err, s.tcp.Close())
	}
	if s.left.Load() {
		return err
	}
	return errors.Join(err, os.Remove(s.path))
}

// Run answers requests until ctx ends, then removes the socket. Everything it
// started has ended when it returns.
func (s *Server) Run(ctx context.Context) error {
	own, statErr := os.Lstat(s.path)
	var wg sync.WaitGroup
	// Streams, which have no end of their own, end with ctx.
	base := func(net.Listener) context.Context { return ctx }
	served := make(chan error, 2)
	servers := []*http.Server{s.http}
	s.http.BaseContext = base
	wg.Go(func() { served <- s.http.Serve(s.listener) })
	if s.tcp != nil {
		servers = append(servers, s.tcpHTTP)
		s.tcpHTTP.BaseContext = base
		wg.Go(func() { served <- s.tcpHTTP.Serve(s.tcp) })
	}
	var err error
	select {
	case err = <-served:
	case <-ctx.Done():
		err = http.ErrServerClosed
	}
	patience := time.Second
	if s.left.Load() {
		patience = leaveTimeout
	}
	stop, cancel := context.WithTimeout(context.Background(), patience)
	for _, h := range servers {
		if h.Shutdown(stop) != nil {
			h.Close()
		}
	}
	cancel()
	wg.Wait()
	if now, e := os.Lstat(s.path); !s.left.Load() && statErr == nil && e == nil && os.SameFile(own, now) {
		os.Remove(s.path)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("API: %w", err)
}

// isGone reports whether err says that nobody listens at the socket.
func isGone(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist)
}
