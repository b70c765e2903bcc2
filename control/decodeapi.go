package control

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
)

// TCP is a listener of the API beside its unix socket. The zero value is none.
type TCP struct {
	Listen    string // address and port
	Cert, Key string // PEM files; "": no TLS, which only a loopback address may have
	// Who may ask: clients with a certificate that those of the PEM file ClientCA
	// vouch for, and clients with the bearer token in TokenFile.
	ClientCA, TokenFile string
}

func apiFields() []field {
	s := &schema{Type: "string"}
	return []field{
		{"listen", "address and port, like 192.0.2.1:9443", &schema{Type: "string", Pattern: `:[0-9]{1,5}$`}},
		{"tls", "the director's certificate; without it only a loopback address may be written", mappingOf(tlsFields(), "cert", "key")},
		{"token_file", "file with the bearer token of those who may ask, of mode 600", s},
	}
}

func tlsFields() []field {
	s := &schema{Type: "string"}
	return []field{
		{"cert", "PEM file of the director's certificate, with those in between", s},
		{"key", "PEM file of its key", s},
		{"client_ca", "PEM file of certificates; clients whose own these vouch for may ask", s},
	}
}

// decodeAPI reads where the API listens by TCP. It refuses what would be open to
// everybody.
func decodeAPI(c *Config, v value) {
	if v.missing() {
		return
	}
	t, loopback := &c.API, false
	m := v.mapping(keys(apiFields())...)
	l, tls, token := m["listen"], m["tls"], m["token_file"]
	if v.needs(l, "listen is missing: the address and port, like 192.0.2.1:9443") {
		if s, ok := l.text(); ok {
			a, err := netip.ParseAddrPort(s)
			if err != nil || a.Port() == 0 || a.Addr().Zone() != "" {
				l.wrong("%q is no address with a port: write one like 192.0.2.1:9443 or [2001:db8::1]:9443", s)
			} else {
				t.Listen, loopback = a.String(), a.Addr().Unmap().IsLoopback()
			}
		}
	}
	if !tls.missing() {
		tm := tls.mapping(keys(tlsFields())...)
		if tls.needs(tm["cert"], "cert is missing: a PEM file of the director's certificate") {
			t.Cert = tm["cert"].file()
		}
		if tls.needs(tm["key"], "key is missing: a PEM file of the certificate's key") {
			t.Key = tm["key"].file()
		}
		if ca := tm["client_ca"]; !ca.missing() {
			t.ClientCA = ca.file()
		}
	}
	if !token.missing() {
		t.TokenFile = token.file()
	}
	faulty := tls.faulty || token.faulty
	switch {
	case faulty:
	case tls.missing() && token.missing():
		v.wrong("anybody could change the director: add tls with client_ca, or tls and token_file")
	case tls.missing() && t.Listen != "" && !loopback:
		l.wrong("without tls the token would pass %s in the clear: add tls, or write a loopback address", t.Listen)
	case t.ClientCA == "" && token.missing():
		tls.wrong("anybody could change the director: add client_ca (who has a certificate of it may ask) or, beside tls, token_file")
	}
}

// file reads the absolute path of a file.
func (v value) file() string {
	s, ok := v.text()
	if ok && !filepath.IsAbs(s) {
		v.wrong("%q is no absolute path: write one that begins with /", s)
	}
	return s
}

// printAPI writes what decodeAPI reads.
func printAPI(b *strings.Builder, t *TCP) {
	if *t == (TCP{}) {
		return
	}
	fmt.Fprintf(b, "api:\n  listen: %q\n", t.Listen)
	if t.Cert != "" {
		fmt.Fprintf(b, "  tls: {cert: %s, key: %s", strconv.Quote(t.Cert), strconv.Quote(t.Key))
		if t.ClientCA != "" {
			fmt.Fprintf(b, ", client_ca: %s", strconv.Quote(t.ClientCA))
		}
		b.WriteString("}\n")
	}
	if t.TokenFile != "" {
		fmt.Fprintf(b, "  token_file: %s\n", strconv.Quote(t.TokenFile))
	}
}
