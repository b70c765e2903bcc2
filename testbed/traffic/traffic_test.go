package traffic_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"pktdirector/testbed/traffic"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server starts a server on loopback and returns clients for its two sides.
func server(t *testing.T, name string) (tcp, udp traffic.Client) {
	t.Helper()
	s, err := traffic.Listen(name, "127.0.0.1:0", "127.0.0.1:0", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	const timeout = 5 * time.Second
	return traffic.Client{Target: s.HTTP.Addr().String(), Timeout: timeout},
		traffic.Client{Target: s.Echo.LocalAddr().String(), Timeout: timeout}
}

func TestConnectionsNameTheirServer(t *testing.T) {
	tcp, _ := server(t, "rs1")
	conns, err := tcp.Open(t.Context(), 5)
	if err != nil {
		t.Fatal(err)
	}
	defer conns.Close()
	if got := conns.Server["rs1"]; got != 5 || len(conns.Server) != 1 {
		t.Errorf("servers %v, want rs1 5 times", conns.Server)
	}
}

func TestEchoNamesItsServer(t *testing.T) {
	_, udp := server(t, "rs2")
	got, err := udp.Echo(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	if got["rs2"] != 3 {
		t.Errorf("servers %v, want rs2 3 times", got)
	}
}

func TestTransfersCompareHashes(t *testing.T) {
	tcp, _ := server(t, "rs1")
	for _, n := range []int64{0, 1, 3_000_001} {
		up, err := tcp.Upload(t.Context(), 7, n)
		if err != nil {
			t.Fatal(err)
		}
		down, err := tcp.Download(t.Context(), 7, n)
		if err != nil {
			t.Fatal(err)
		}
		if up.Seconds <= 0 || down.Seconds <= 0 {
			t.Errorf("%d bytes: %v and %v seconds, want more than 0", n, up.Seconds, down.Seconds)
		}
		if !up.Equal(n) || !down.Equal(n) || up.Arrived != down.Arrived {
			t.Errorf("%d bytes: upload %+v, download %+v, want equal hashes", n, up, down)
		}
		if up.Server != "rs1" || down.Server != "rs1" {
			t.Errorf("servers %q and %q, want rs1", up.Server, down.Server)
		}
	}
}

func TestParallelTransfers(t *testing.T) {
	tcp, _ := server(t, "rs1")
	got, err := traffic.Parallel(4, func(i int) (traffic.Transfer, error) {
		return tcp.Upload(t.Context(), uint64(i), 100_000)
	})
	if err != nil || len(got) != 4 {
		t.Fatalf("%d transfers, error %v, want 4", len(got), err)
	}
	seen := map[string]bool{}
	for _, tr := range got {
		seen[tr.Sent] = true
	}
	if len(seen) != 4 {
		t.Errorf("%d different hashes of 4 seeds", len(seen))
	}
}

// A server that lies about what arrived is found out.
func TestTransferNotEqual(t *testing.T) {
	lying := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte(`{"server":"rs9","bytes":1000,"sha256":"00"}`))
	}))
	defer lying.Close()
	c := traffic.Client{Target: lying.Listener.Addr().String(), Timeout: time.Second}
	got, err := c.Upload(t.Context(), 1, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if got.Equal(1000) {
		t.Errorf("transfer %+v counts as equal", got)
	}
}

func TestRequestsThatMakeNoSense(t *testing.T) {
	s := &traffic.Server{Name: "rs1", Log: slog.New(slog.DiscardHandler)}
	for path, want := range map[string]string{
		"/download?bytes=x&seed=1":  `bytes="x"`,
		"/download?bytes=-1&seed=1": `bytes="-1"`,
		"/download?bytes=1":         `seed=""`,
	} {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), want) {
			t.Errorf("GET %s: %d %q, want 400 naming %s", path, w.Code, w.Body, want)
		}
	}
}

func TestNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := traffic.Client{Target: l.Addr().String(), Timeout: time.Second}
	l.Close()
	if _, err := c.Open(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "connection 1 of 1") {
		t.Errorf("error %v, want one that names the connection", err)
	}
}
