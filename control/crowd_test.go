package control_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pktdirector/control"
)

// knock opens a connection and says no more than text.
func knock(t *testing.T, network, addr, text string) net.Conn {
	t.Helper()
	c, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	return c
}

// Any number of clients that send half a header, or half a body, keep no operator out:
// there are at most so many of them, and those that have been silent for longest go.
func TestSlowClientsKeepNobodyOut(t *testing.T) {
	ours := newAuthority(t, "ours")
	token := filepath.Join(ours.dir, "token")
	write(t, token, []byte(testToken), 0o600)
	path := filepath.Join(t.TempDir(), "s")
	defer serve(t, path, example())()
	tcp := serveTCP(t, control.TCP{TokenFile: token})
	const header = "POST /v1/ipvsadm HTTP/1.1\r\nHost: director\r\nContent-Type: application/json\r\n"
	body := "Content-Length: 100\r\n\r\n{"
	for _, c := range []struct{ name, network, addr, text string }{
		{"nothing at a unix socket", "unix", path, ""},
		{"half a header at a unix socket", "unix", path, header},
		{"half a body at a unix socket", "unix", path, header + body},
		{"nothing by TCP", "tcp", tcp, ""},
		{"half a header by TCP", "tcp", tcp, header},
		{"half a body by TCP, without a token", "tcp", tcp, header + body},
		{"half a body by TCP", "tcp", tcp, header + "Authorization: Bearer " + testToken + "\r\n" + body},
	} {
		t.Run(c.name, func(t *testing.T) {
			var slow []net.Conn
			for range control.MaxConns + 20 {
				slow = append(slow, knock(t, c.network, c.addr, c.text))
			}
			for i := range 3 {
				r := control.Remote{Address: path}
				if c.network == "tcp" {
					r = control.Remote{Address: "http://" + tcp, TokenFile: token}
				}
				if err := ask(t, r); err != nil {
					t.Errorf("request %d beside them: %v", i, err)
				}
			}
			// The first of them was shown the door for those that came later.
			slow[0].SetReadDeadline(time.Now().Add(time.Minute))
			if _, err := io.Copy(io.Discard, slow[0]); err != nil && strings.Contains(err.Error(), "timeout") {
				t.Errorf("the first is there still: %v", err)
			}
		})
	}
}

// Who says nothing, or half of what it wants to say, is not waited for for ever.
func TestSlowClientsTimeOut(t *testing.T) {
	if h, r := control.RequestTimeouts(); h <= 0 || h > 10*time.Second || r <= 0 || r > time.Minute {
		t.Errorf("a client may take %v for a header and %v for a request", h, r)
	}
	path := filepath.Join(t.TempDir(), "s")
	defer serve(t, path, example())()
	c := knock(t, "unix", path, "GET /v1/status HTTP/1.1\r\nHost: dir")
	c.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := io.Copy(io.Discard, c); err != nil {
		t.Errorf("half a header was waited for for a minute: %v", err)
	}
}

// While one request after another is answered on a connection, it stays; a body that a
// list does not read keeps nothing open.
func TestABusyConnectionStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	defer serve(t, path, example())()
	busy := knock(t, "unix", path, "")
	answers := bufio.NewReader(busy)
	for i := range 3 {
		fmt.Fprintf(busy, "GET /v1/connections HTTP/1.1\r\nHost: director\r\n\r\n")
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		io.Copy(io.Discard, resp.Body)
		for range control.MaxConns / 2 {
			knock(t, "unix", path, "")
		}
	}
}
