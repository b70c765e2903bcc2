package traffic_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"pktdirector/testbed/traffic"
)

// FuzzServer sends requests to a real server of a lab.
func FuzzServer(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
	f.Add([]byte("GET /download?bytes=10&seed=3 HTTP/1.1\r\nHost: x\r\n\r\n"))
	f.Add([]byte("PUT /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"))
	h := (&traffic.Server{Name: "rs1", Log: slog.New(slog.DiscardHandler)}).Handler()
	f.Fuzz(func(t *testing.T, raw []byte) {
		req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
		if err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		answer := &limited{ResponseRecorder: httptest.NewRecorder()}
		h.ServeHTTP(answer, req.WithContext(ctx))
		if answer.Code < 200 || answer.Code > 499 {
			t.Fatalf("%q was answered with %d", raw, answer.Code)
		}
	})
}

// limited is a client that hangs up after 64 KiB.
type limited struct {
	*httptest.ResponseRecorder
	n int
}

func (l *limited) Write(b []byte) (int, error) {
	if l.n += len(b); l.n > 64<<10 {
		return 0, io.ErrClosedPipe
	}
	return l.ResponseRecorder.Write(b)
}

// FuzzClient asks servers that answer anything, by TCP and by UDP.
func FuzzClient(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nrs1\n"))
	f.Add([]byte("HTTP/1.1 200 OK\r\n\r\n{\"server\":\"rs1\",\"bytes\":3,\"sha256\":\"\"}"))
	f.Add([]byte("rs1: datagram 1"))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	u, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { l.Close(); u.Close() })
	answer := make(chan []byte, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.SetDeadline(time.Now().Add(time.Second))
			bufio.NewReader(c).ReadSlice('\n')
			c.Write(<-answer)
			c.(*net.TCPConn).CloseWrite()
			io.Copy(io.Discard, c)
			c.Close()
		}
	}()
	go func() {
		buf := make([]byte, 100)
		for {
			_, from, err := u.ReadFrom(buf)
			if err != nil {
				return
			}
			u.WriteTo(<-answer, from)
		}
	}()
	f.Fuzz(func(t *testing.T, said []byte) {
		if len(said) > 1<<12 {
			return
		}
		tcp := traffic.Client{Target: l.Addr().String(), Timeout: time.Second}
		answer <- said
		_, _ = tcp.Upload(context.Background(), 3, 1)
		udp := traffic.Client{Target: u.LocalAddr().String(), Timeout: time.Second}
		answer <- said
		if servers, err := udp.Echo(context.Background(), 1); err == nil && len(servers) != 1 {
			t.Fatalf("one datagram was answered by %v", servers)
		}
	})
}
