package traffic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/ipv4"
)

// Headers and trailers of the server's answers.
const (
	headerServer  = "X-Server"
	trailerSHA256 = "X-Sha256"
)

// maxDownload is the largest stream a client may ask for.
const maxDownload = 1 << 40

// Server is a real server of a lab. It serves
//
//	GET  /                        its name, as plain text
//	PUT  /upload, POST /upload    JSON: server, bytes, sha256 of what came
//	GET  /download?bytes=N&seed=S the stream of that seed, its SHA-256 in the
//	                              trailer X-Sha256
//
// and answers each UDP datagram with "name: " in front of it.
type Server struct {
	Name string
	HTTP net.Listener
	Echo net.PacketConn // IPv4; nil: no UDP
	Log  *slog.Logger
}

// Uploaded is the answer to an upload.
type Uploaded struct {
	Server string `json:"server"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Listen opens a server's sockets at those addresses ("host:port", host may be
// empty); an empty echo means no UDP.
func Listen(name, http, echo string, log *slog.Logger) (*Server, error) {
	l, err := net.Listen("tcp", http)
	if err != nil {
		return nil, err
	}
	s := &Server{Name: name, HTTP: l, Log: log}
	if echo != "" {
		if s.Echo, err = net.ListenPacket("udp4", echo); err != nil {
			l.Close()
			return nil, err
		}
	}
	return s, nil
}

// Serve serves until ctx ends and closes the sockets.
func (s *Server) Serve(ctx context.Context) error {
	srv := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 30 * time.Second,
		ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelWarn)}
	var wg sync.WaitGroup
	errs := make(chan error, 2)
	wg.Go(func() {
		if err := srv.Serve(s.HTTP); !errors.Is(err, http.ErrServerClosed) {
			errs <- fmt.Errorf("http %s: %w", s.HTTP.Addr(), err)
		}
	})
	if s.Echo != nil {
		wg.Go(func() {
			if err := s.echo(); !errors.Is(err, net.ErrClosed) {
				errs <- fmt.Errorf("udp %s: %w", s.Echo.LocalAddr(), err)
			}
		})
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-errs:
	}
	srv.Close()
	if s.Echo != nil {
		s.Echo.Close()
	}
	wg.Wait()
	return err
}

// Handler returns the HTTP side of the server.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(headerServer, s.Name)
		w.Header().Set("Content-Type", "text/plain")
		io.WriteString(w, s.Name+"\n")
	})
	mux.HandleFunc("PUT /upload", s.upload)
	mux.HandleFunc("POST /upload", s.upload)
	mux.HandleFunc("GET /download", s.download)
	return mux
}

func (s *Server) upload(w http.ResponseWriter, r *http.Request) {
	d := newDigest()
	if _, err := copyChunks(d, r.Body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set(headerServer, s.Name)
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(Uploaded{Server: s.Name, Bytes: d.bytes, SHA256: d.String()})
}

func (s *Server) download(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.ParseInt(r.FormValue("bytes"), 10, 64)
	if err != nil || n < 0 || n > maxDownload {
		http.Error(w, fmt.Sprintf("bytes=%q: write a number from 0 to %d", r.FormValue("bytes"), int64(maxDownload)), http.StatusBadRequest)
		return
	}
	seed, err := strconv.ParseUint(r.FormValue("seed"), 10, 64)
	if err != nil {
		http.Error(w, fmt.Sprintf("seed=%q: write a number", r.FormValue("seed")), http.StatusBadRequest)
		return
	}
	w.Header().Set(headerServer, s.Name)
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Trailer", trailerSHA256)
	d := newDigest()
	if _, err := copyChunks(w, io.TeeReader(Stream(seed, n), d)); err != nil {
		return // the client is gone
	}
	w.Header().Set(trailerSHA256, d.String())
}

// echo answers datagrams until the socket is closed. An answer comes from the
// address that was asked: a socket for all addresses would answer from the
// interface's own, and a client of the VIP would not know it.
func (s *Server) echo() error {
	conn := ipv4.NewPacketConn(s.Echo)
	if err := conn.SetControlMessage(ipv4.FlagDst, true); err != nil {
		return err
	}
	prefix := s.Name + ": "
	buf := make([]byte, len(prefix)+64<<10)
	copy(buf, prefix)
	for {
		n, asked, from, err := conn.ReadFrom(buf[len(prefix):])
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil {
			// An ICMP error about an earlier answer; the next datagram may be fine.
			s.Log.Debug("udp echo", "error", err)
			continue
		}
		var answer *ipv4.ControlMessage
		if asked != nil {
			answer = &ipv4.ControlMessage{Src: asked.Dst}
		}
		if _, err := conn.WriteTo(buf[:len(prefix)+n], answer, from); err != nil {
			s.Log.Debug("udp echo", "to", from, "error", err)
		}
	}
}
