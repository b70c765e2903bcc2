package control_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"pktdirector/control"
)

// authority signs certificates for a test.
type authority struct {
	dir  string
	file string // its own certificate
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.file, _ = a.sign(t, name, true)
	return a
}

// sign returns the files of a new certificate and its key.
func (a *authority) sign(t *testing.T, name string, ca bool) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: ca, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if ca {
		c.KeyUsage, a.cert, a.key = x509.KeyUsageCertSign, c, k
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &k.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(a.dir, name+".crt"), filepath.Join(a.dir, name+".key")
	write(t, cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
	write(t, key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}), 0o600)
	return cert, key
}

func write(t *testing.T, path string, text []byte, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

const testToken = "0123456789abcdef0123456789abcdef"

// serveTCP runs an API with a TCP listener and returns its address.
func serveTCP(t *testing.T, tcp control.TCP) string {
	t.Helper()
	s, err := control.Listen(filepath.Join(t.TempDir(), "d.sock"), example(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	tcp.Listen = "127.0.0.1:0"
	if err := s.ListenTCP(tcp); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return s.TCPAddr().String()
}

// ask asks for the status.
func ask(t *testing.T, r control.Remote) error {
	t.Helper()
	c, err := control.Dial(r)
	if err != nil {
		return err
	}
	_, err = c.Status(t.Context())
	return err
}

func refuses(t *testing.T, what string, err error, words string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("%s: %v, want an error with %q", what, err, words)
	}
}

func TestOnlyCertificatesOfTheClientCAMayAsk(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	ours, theirs := newAuthority(t, "ours"), newAuthority(t, "theirs")
	cert, key := ours.sign(t, "director", false)
	https := "https://" + serveTCP(t, control.TCP{Cert: cert, Key: key, ClientCA: ours.file})
	goodCert, goodKey := ours.sign(t, "operator", false)
	badCert, badKey := theirs.sign(t, "stranger", false)
	if err := ask(t, control.Remote{Address: https, CA: ours.file, Cert: goodCert, Key: goodKey}); err != nil {
		t.Errorf("with a certificate: %v", err)
	}
	refuses(t, "without a certificate", ask(t, control.Remote{Address: https, CA: ours.file}), "certificate required")
	refuses(t, "with a stranger's certificate", ask(t, control.Remote{Address: https, CA: ours.file, Cert: badCert, Key: badKey}), "tls: ")
	refuses(t, "a director that the client does not know", ask(t, control.Remote{Address: https, CA: theirs.file, Cert: goodCert, Key: goodKey}), "certificate signed by unknown authority")
	refuses(t, "half a pair", ask(t, control.Remote{Address: https, Cert: goodCert}), "a pair of files")
}

func TestOnlyTheTokenMayAsk(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	ours := newAuthority(t, "ours")
	cert, key := ours.sign(t, "director", false)
	token, other := filepath.Join(ours.dir, "token"), filepath.Join(ours.dir, "other")
	write(t, token, []byte(testToken+"\n"), 0o600)
	write(t, other, []byte(strings.Repeat("x", 64)), 0o600)
	both := control.TCP{Cert: cert, Key: key, ClientCA: ours.file, TokenFile: token}
	https := "https://" + serveTCP(t, both)
	clientCert, clientKey := ours.sign(t, "operator", false)
	for what, r := range map[string]control.Remote{
		"the token":     {Address: https, CA: ours.file, TokenFile: token},
		"a certificate": {Address: https, CA: ours.file, Cert: clientCert, Key: clientKey},
	} {
		if err := ask(t, r); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	refuses(t, "neither", ask(t, control.Remote{Address: https, CA: ours.file}), "no valid client certificate or bearer token")
	refuses(t, "another token", ask(t, control.Remote{Address: https, CA: ours.file, TokenFile: other}), "no valid client certificate or bearer token")

	plain := "http://" + serveTCP(t, control.TCP{TokenFile: token})
	if err := ask(t, control.Remote{Address: plain, TokenFile: token}); err != nil {
		t.Errorf("the token without TLS on loopback: %v", err)
	}
	refuses(t, "no token on loopback", ask(t, control.Remote{Address: plain}), "no valid client certificate or bearer token")
	refuses(t, "without TLS to another host", ask(t, control.Remote{Address: "http://192.0.2.1:1"}), "write https://")

	// A page in a browser on this host cannot have the browser ask for it.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, plain+"/v1/ipvsadm", strings.NewReader(`{"args":["-C"]}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+testToken)
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("from a page of another site: %s", resp.Status)
	}

	// Another token in the file is the token from then on.
	write(t, token, []byte(strings.Repeat("y", 64)), 0o600)
	if err := os.Chtimes(token, time.Time{}, time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if err := ask(t, control.Remote{Address: plain, TokenFile: token}); err != nil {
		t.Errorf("the new token: %v", err)
	}
}

// Certificates that vouch for clients, and the director's own, are those in the files
// from the next connection on; what cannot be read changes nothing.
func TestChangedCertificatesCount(t *testing.T) {
	ours, theirs := newAuthority(t, "ours"), newAuthority(t, "theirs")
	cert, key := ours.sign(t, "director", false)
	clientCA := filepath.Join(ours.dir, "clients.crt")
	copyTo := func(to, from string) {
		t.Helper()
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		write(t, to+".new", text, 0o600)
		if err := os.Rename(to+".new", to); err != nil { // another file, whatever the clock says
			t.Fatal(err)
		}
	}
	copyTo(clientCA, ours.file)
	https := "https://" + serveTCP(t, control.TCP{Cert: cert, Key: key, ClientCA: clientCA})
	ourCert, ourKey := ours.sign(t, "operator", false)
	theirCert, theirKey := theirs.sign(t, "operator", false)
	us := control.Remote{Address: https, CA: ours.file, Cert: ourCert, Key: ourKey}
	them := control.Remote{Address: https, CA: ours.file, Cert: theirCert, Key: theirKey}
	if err := ask(t, us); err != nil {
		t.Errorf("before: %v", err)
	}
	refuses(t, "a stranger before", ask(t, them), "tls: ")
	copyTo(clientCA, theirs.file)
	if err := ask(t, them); err != nil {
		t.Errorf("once client_ca vouches for them: %v", err)
	}
	refuses(t, "once it does not vouch for us any more", ask(t, us), "tls: ")
	copyTo(clientCA, key) // no certificate at all
	if err := ask(t, them); err != nil {
		t.Errorf("with a file that cannot be used: %v", err)
	}
	newCert, newKey := theirs.sign(t, "director", false)
	copyTo(key, newKey)
	if err := ask(t, them); err != nil {
		t.Errorf("when half of a pair is there: %v", err)
	}
	copyTo(cert, newCert)
	them.CA = theirs.file
	if err := ask(t, them); err != nil {
		t.Errorf("with another certificate of the director: %v", err)
	}
}

// TestSecretsThatOthersMayReadAreRefused: a director does not start with them, and
// no client sends them.
func TestSecretsThatOthersMayReadAreRefused(t *testing.T) {
	ours := newAuthority(t, "ours")
	cert, key := ours.sign(t, "director", false)
	good, open, short := filepath.Join(ours.dir, "good"), filepath.Join(ours.dir, "open"), filepath.Join(ours.dir, "short")
	write(t, good, []byte(testToken), 0o400)
	write(t, open, []byte(testToken), 0o640)
	write(t, short, []byte("secret\n"), 0o600)
	openKey := filepath.Join(ours.dir, "open.key")
	text, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, openKey, text, 0o644)
	s, err := control.Listen(filepath.Join(t.TempDir(), "d.sock"), example(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, c := range []struct {
		name string
		tcp  control.TCP
		want string
	}{
		{"a token for all to read", control.TCP{TokenFile: open}, "mode 0640): chmod 600 it"},
		{"a short token", control.TCP{TokenFile: short}, "at least 32 letters and digits"},
		{"no file of the token", control.TCP{TokenFile: "/nowhere"}, "no such file"},
		{"a key for all to read", control.TCP{Cert: cert, Key: openKey, TokenFile: good}, "mode 0644): chmod 600 it"},
		{"another's key", control.TCP{Cert: ours.file, Key: key, TokenFile: good}, "certificate " + ours.file},
		{"certificates that are none", control.TCP{Cert: cert, Key: key, ClientCA: good}, "no PEM certificate is in it"},
		{"open", control.TCP{Cert: cert, Key: key}, "anybody could change the director"},
	} {
		c.tcp.Listen = "127.0.0.1:0"
		refuses(t, c.name, s.ListenTCP(c.tcp), c.want)
	}
	refuses(t, "a client's token", ask(t, control.Remote{Address: "https://127.0.0.1:1", TokenFile: open}), "mode 0640")
	refuses(t, "a token for a socket", ask(t, control.Remote{Address: "/run/d.sock", TokenFile: good}), "needs none")
	for _, address := range []string{"https://host", "ftp://host:1", "https://user@host:1", "https://host:1/v1"} {
		refuses(t, address, ask(t, control.Remote{Address: address}), "write https://host:port")
	}
}

// TestTLSIsModern: what is older than TLS 1.2 is not spoken.
func TestTLSIsModern(t *testing.T) {
	ours := newAuthority(t, "ours")
	cert, key := ours.sign(t, "director", false)
	address := serveTCP(t, control.TCP{Cert: cert, Key: key, ClientCA: ours.file})
	c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10})
	if err == nil {
		c.Close()
		t.Error("TLS 1.1 was spoken")
	}
}
