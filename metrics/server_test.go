package metrics_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"pktdirector/metrics"
)

func TestServer(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	log := slog.New(slog.DiscardHandler)
	h, err := metrics.NewHandler(collector(known()), log)
	if err != nil {
		t.Fatal(err)
	}
	s, err := metrics.Listen("127.0.0.1:0", h, log)
	if err != nil {
		t.Fatal(err)
	}
	at := "http://" + s.Addr().String()
	if _, err := metrics.Listen(s.Addr().String(), h, log); err == nil || !strings.Contains(err.Error(), "metrics.listen") {
		t.Errorf("an address in use: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	for _, c := range []struct {
		method, path string
		status       int
		body         string
	}{
		{"GET", "/metrics", 200, `pktdirector_packets_total{verdict="forwarded"} 300`},
		{"GET", "/metrics", 200, "process_resident_memory_bytes "},
		{"GET", "/metrics", 200, "go_goroutines "},
		{"GET", "/", 200, "/metrics"},
		{"POST", "/metrics", 405, ""},
		{"GET", "/v1/status", 404, ""},
		{"POST", "/v1/ipvsadm", 404, ""},
	} {
		r, err := http.NewRequestWithContext(t.Context(), c.method, at+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != c.status || !strings.Contains(string(body), c.body) {
			t.Errorf("%s %s: %s, want %d with %q", c.method, c.path, resp.Status, c.status, c.body)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("closed once more: %v", err)
	}
}
