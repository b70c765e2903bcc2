package control

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
)

// ListenTCP opens a TCP listener of the API beside its unix socket; Run serves
// it. Only clients with a certificate or a token that t asks for are answered. A
// token and certificates are read anew when their files change.
func (s *Server) ListenTCP(t TCP) error { return s.listenTCP(t, nil) }

// ListenTCPOn is ListenTCP at a listener that another process has opened.
func (s *Server) ListenTCPOn(t TCP, l *net.TCPListener) error { return s.listenTCP(t, l) }

// listenTCP opens the listener if there is none.
func (s *Server) listenTCP(t TCP, l *net.TCPListener) error {
	if t.ClientCA == "" && t.TokenFile == "" {
		return fmt.Errorf("API at %s: anybody could change the director: ask for certificates of clients or for a token", t.Listen)
	}
	g := &gate{next: http.NewCrossOriginProtection().Handler(s.http.Handler)}
	if t.TokenFile != "" {
		g.token = &watched[[sha256.Size]byte]{paths: []string{t.TokenFile}, failed: s.keepsOld("token"), load: func() ([sha256.Size]byte, error) {
			token, err := readToken(t.TokenFile)
			return sha256.Sum256([]byte(token)), err
		}}
		if _, err := g.token.value(); err != nil {
			return fmt.Errorf("API at %s: %w", t.Listen, err)
		}
	}
	var secure *tls.Config
	if t.Cert != "" {
		var err error
		if secure, err = t.tls(s.keepsOld); err != nil {
			return fmt.Errorf("API at %s: %w", t.Listen, err)
		}
	}
	if l == nil {
		opened, err := net.Listen("tcp", t.Listen)
		if err != nil {
			return fmt.Errorf("API: %w", err)
		}
		l = opened.(*net.TCPListener) // of "tcp" it always is
	}
	s.tcpRaw = l
	s.tcp = &crowd{Listener: l, most: maxConns}
	if secure != nil {
		s.tcp = tls.NewListener(s.tcp, secure)
	}
	s.tcpHTTP = newHTTPServer(g, s.log)
	return nil
}

// keepsOld tells that a file was changed to what cannot be used.
func (s *Server) keepsOld(what string) func(error) {
	return func(err error) { s.log.Warn("API: the "+what+" that was read before stays in use", "error", err) }
}

// TCPAddr is where the TCP listener listens; nil where there is none.
func (s *Server) TCPAddr() net.Addr {
	if s.tcpRaw == nil {
		return nil
	}
	return s.tcpRaw.Addr()
}

// tls is the listener's side. Its certificate is read again when the file changes.
func (t *TCP) tls(keepsOld func(string) func(error)) (*tls.Config, error) {
	if info, err := os.Stat(t.Key); err != nil {
		return nil, err
	} else if info.Mode().Perm()&0o027 != 0 {
		return nil, fmt.Errorf("key %s: others may use the file (mode %04o): chmod 600 it, and take another key if it was read", t.Key, info.Mode().Perm())
	}
	pair := &watched[*tls.Certificate]{paths: []string{t.Cert, t.Key}, failed: keepsOld("certificate"), load: func() (*tls.Certificate, error) {
		c, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("certificate %s with key %s: %w", t.Cert, t.Key, err)
		}
		return &c, nil
	}}
	if _, err := pair.value(); err != nil {
		return nil, err
	}
	c := &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair.value() },
	}
	if t.ClientCA != "" {
		vouching := &watched[*x509.CertPool]{paths: []string{t.ClientCA}, failed: keepsOld("certificates of client_ca"), load: func() (*x509.CertPool, error) { return certPool(t.ClientCA) }}
		if _, err := vouching.value(); err != nil {
			return nil, err
		}
		c.ClientAuth = tls.RequireAndVerifyClientCert
		if t.TokenFile != "" {
			c.ClientAuth = tls.VerifyClientCertIfGiven
		}
		plain := c.Clone()
		// Tickets of sessions would have whom nobody vouches for any more go on.
		plain.SessionTicketsDisabled = true
		c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
			now := plain.Clone()
			var err error
			now.ClientCAs, err = vouching.value()
			return now, err
		}
	}
	return c, nil
}

// gate lets those through who may ask.
type gate struct {
	token *watched[[sha256.Size]byte] // nil: no token is taken
	next  http.Handler
}

// ServeHTTP answers 401 to all others.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	who := ""
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		who = "certificate of " + r.TLS.VerifiedChains[0][0].Subject.String()
	} else if sent, is := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); is && g.token != nil {
		if want, err := g.token.value(); err == nil {
			got := sha256.Sum256([]byte(sent))
			if subtle.ConstantTimeCompare(got[:], want[:]) == 1 {
				who = "token"
			}
		}
	}
	if who == "" {
		w.Header().Set("WWW-Authenticate", "Bearer")
		sendProblem(w, problem(http.StatusUnauthorized, "no valid client certificate or bearer token came with the request"))
		return
	}
	g.next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, who+" from "+r.RemoteAddr)))
}

// callerKey is that of the caller's name in a request's context.
type callerKey struct{}

// caller names who made a request, for the log.
func caller(r *http.Request) string {
	if who, ok := r.Context().Value(callerKey{}).(string); ok {
		return who
	}
	return bySocket
}

// watched is what is read from files, again when one of them changes: at the next
// connection or request. Where the new one cannot be read, the old one stays.
type watched[T any] struct {
	paths []string
	load  func() (T, error)

	failed func(error) // told once of each change that cannot be read; nil: nobody

	mu    sync.Mutex
	last  T
	known bool
	read  []fs.FileInfo // of each file
}

func (f *watched[T]) value() (T, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var files []fs.FileInfo
	for _, path := range f.paths {
		if info, err := os.Stat(path); err == nil {
			files = append(files, info)
		}
	}
	same := slices.EqualFunc(files, f.read, func(a, b fs.FileInfo) bool {
		return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
	})
	if same && f.known {
		return f.last, nil
	}
	now, err := f.load()
	if err == nil {
		f.last, f.known, f.read = now, true, files
	} else if f.known {
		f.read = files // and not read again until it changes again
		if f.failed != nil {
			f.failed(err)
		}
		return f.last, nil
	}
	return f.last, err
}
