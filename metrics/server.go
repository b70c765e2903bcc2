package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"
)

// Bounds of what strangers may ask for.
const (
	maxAnswers     = 4                // under way at a time; more are told to come again
	maxConnections = 64               // open at a time; more wait
	answerWithin   = 10 * time.Second // then the answer is "503 Service Unavailable"
)

// NewHandler answers GET with what c collects, and what the Go runtime and the
// process tell of themselves, in Prometheus's text format.
func NewHandler(c *Collector, log *slog.Logger) (http.Handler, error) {
	r := prometheus.NewRegistry()
	for _, one := range []prometheus.Collector{c, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		if err := r.Register(one); err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
	}
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		ErrorHandling:       promhttp.HTTPErrorOnError,
		MaxRequestsInFlight: maxAnswers,
		Timeout:             answerWithin,
	}), nil
}

// Server serves metrics on a TCP address.
type Server struct {
	listener net.Listener
	tcp      *net.TCPListener // under listener
	http     *http.Server
}

// Listen opens addr, an IP address and port, and serves h there as /metrics once
// it runs. Nothing else can be asked or changed there.
func Listen(addr string, h http.Handler, log *slog.Logger) (*Server, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w: name another address under metrics.listen", err)
	}
	return ListenOn(l.(*net.TCPListener), h, log), nil // of "tcp" it always is
}

// ListenOn is Listen at a listener that another process has opened.
func ListenOn(l *net.TCPListener, h http.Handler, log *slog.Logger) *Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", h)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintln(w, "pktdirector: /metrics is for Prometheus") // the client went away: nothing to tell it
	})
	return &Server{listener: netutil.LimitListener(l, maxConnections), tcp: l, http: &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      2 * answerWithin,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug), // strangers cause these
	}}
}

// File returns a duplicate of the listener's socket, for another process to listen on.
func (s *Server) File() (*os.File, error) { return s.tcp.File() }

// Addr is where the server listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Close gives the address back, if Run has not done so.
func (s *Server) Close() error {
	if err := s.listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Run answers until ctx ends. Everything it started has ended when it returns.
func (s *Server) Run(ctx context.Context) error {
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
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("metrics: %w", err)
}
