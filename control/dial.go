package control

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// Remote says which director a client asks, and how the two know each other.
type Remote struct {
	// Address is the path of a unix socket, or the https:// (http:// on this host)
	// address of a director's TCP listener.
	Address string
	// CA is a file of certificates that vouch for the director, in place of the
	// system's; Cert and Key are the client's own. All are PEM.
	CA, Cert, Key string
	TokenFile     string // holds the bearer token that the director asks for
}

// Dial returns a client for a director. It connects with the first request only.
func Dial(r Remote) (*Client, error) {
	if !strings.Contains(r.Address, "://") {
		for _, o := range [][2]string{{"ca", r.CA}, {"cert", r.Cert}, {"key", r.Key}, {"token-file", r.TokenFile}} {
			if o[1] != "" {
				return nil, fmt.Errorf("%s %s: the unix socket %s needs none: leave it out, or name the director as https://host:port", o[0], o[1], r.Address)
			}
		}
		return NewClient(r.Address), nil
	}
	u, err := url.Parse(r.Address)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Port() == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
		return nil, fmt.Errorf("director %q: write https://host:port, or the path of its unix socket", r.Address)
	}
	if ip := net.ParseIP(u.Hostname()); u.Scheme == "http" && !(ip.IsLoopback() || u.Hostname() == "localhost") {
		return nil, fmt.Errorf("director %s: without TLS only this host itself is asked: write https://", r.Address)
	}
	t := &http.Transport{DisableKeepAlives: true, TLSHandshakeTimeout: dialTimeout, DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext}
	if u.Scheme == "https" {
		if t.TLSClientConfig, err = r.tls(); err != nil {
			return nil, err
		}
	}
	c := &Client{socket: r.Address, base: u.Scheme + "://" + u.Host, http: &http.Client{Transport: t}}
	if r.TokenFile != "" {
		if c.token, err = readToken(r.TokenFile); err != nil {
			return nil, err
		}
	}
	return c, nil
}

const dialTimeout = 5 * time.Second

func (r Remote) tls() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if r.CA != "" {
		pool, err := certPool(r.CA)
		if err != nil {
			return nil, err
		}
		c.RootCAs = pool
	}
	switch {
	case (r.Cert == "") != (r.Key == ""):
		return nil, fmt.Errorf("a client certificate is a pair of files: name both, cert and key")
	case r.Cert != "":
		pair, err := tls.LoadX509KeyPair(r.Cert, r.Key)
		if err != nil {
			return nil, fmt.Errorf("client certificate %s with key %s: %w", r.Cert, r.Key, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// certPool reads a file of PEM certificates.
func certPool(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: no PEM certificate is in it", path)
	}
	return pool, nil
}

// unixTransport reaches the director by its socket, whatever host is named.
func unixTransport(path string) *http.Transport {
	return &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "unix", path)
		},
	}
}
