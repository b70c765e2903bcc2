package control

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
)

// mediaText is what Prometheus reads.
const mediaText = "text/plain"

// Exposer is a Source that shows itself to Prometheus.
type Exposer interface {
	// Metrics answers a request with metrics in Prometheus's text format.
	Metrics() http.Handler
}

// exposition makes an operation that answers text.
func exposition(pattern, summary string, serve func(*api, http.ResponseWriter, *http.Request)) Operation {
	return newOperation[None, string](pattern, summary, mediaText, serve)
}

func (a *api) showMetrics(w http.ResponseWriter, r *http.Request) {
	e, ok := a.Source.(Exposer)
	if !ok {
		writeProblem(a, w, r, problem(http.StatusNotFound, "this director shows no metrics"))
		return
	}
	e.Metrics().ServeHTTP(w, r)
}

// Health is the answer to GET /v1/health.
type Health struct {
	PID      int `json:"pid"`
	Services int `json:"services"`
}

// showHealth answers once the state of every service, link and table could be
// read: no lock is held for ever.
func (a *api) showHealth(*http.Request) (Health, error) {
	s := a.Status()
	return Health{PID: s.PID, Services: len(s.Services)}, nil
}

// Health asks whether the director is alive.
func (c *Client) Health(ctx context.Context) (Health, error) {
	var h Health
	body, err := c.do(ctx, http.MethodGet, "/v1/health", nil)
	if err != nil {
		return h, err
	}
	defer body.Close()
	if err := json.NewDecoder(body).Decode(&h); err != nil {
		return h, fmt.Errorf("health: %w", err)
	}
	return h, nil
}

// metricsFields are the keys of the section metrics.
func metricsFields() []field {
	return []field{{"listen", "IP address and port where Prometheus may ask for /metrics, by anybody who gets there", &schema{Type: "string", Pattern: `^[^ ]+:[0-9]+$`}}}
}

// decodeMetrics reads where Prometheus may ask.
func decodeMetrics(c *Config, v value) {
	if v.missing() {
		return
	}
	l := v.mapping(keys(metricsFields())...)["listen"]
	if !v.needs(l, "listen is missing: an IP address and a port, like 127.0.0.1:9101") {
		return
	}
	s, ok := l.text()
	if !ok {
		return
	}
	addr, err := netip.ParseAddrPort(s)
	if err != nil || addr.Port() == 0 {
		l.wrong("%q is no address to listen on: write an IP address and a port from 1 to 65535, like 127.0.0.1:9101 or \"[::1]:9101\"", s)
		return
	}
	c.Metrics = addr.String()
}
