package control_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"pktdirector/control"
)

func TestWhereMetricsAreServed(t *testing.T) {
	for _, c := range []struct{ name, text, want, refused string }{
		{"an IPv4 address", "metrics: {listen: 127.0.0.1:9101}", "127.0.0.1:9101", ""},
		{"an IPv6 address", `metrics: {listen: "[::1]:9101"}`, "[::1]:9101", ""},
		{"every address", "metrics:\n  listen: 0.0.0.0:9101", "0.0.0.0:9101", ""},
		{"a name", "metrics: {listen: localhost:9101}", "", `d.yaml:3:19: metrics.listen: "localhost:9101" is no address to listen on: write an IP address and a port from 1 to 65535, like 127.0.0.1:9101`},
		{"a port alone", `metrics: {listen: ":9101"}`, "", "is no address to listen on"},
		{"port 0", "metrics: {listen: 127.0.0.1:0}", "", "a port from 1 to 65535"},
		{"an address alone", "metrics: {listen: 127.0.0.1}", "", "is no address to listen on"},
		{"nothing said", "metrics: {}", "", "listen is missing: an IP address and a port"},
		{"another key", "metrics: {port: 9101}", "", "metrics.port: is not known here: the keys are listen"},
	} {
		got, err := control.Parse("d.yaml", []byte(strings.Replace(good, "services:", c.text+"\nservices:", 1)))
		switch {
		case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)):
			t.Errorf("%s: %v, want %q", c.name, err, c.refused)
		case c.refused == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.refused == "":
			if again, _ := printedAndRead(t, got); got.Metrics != c.want || again.Metrics != got.Metrics {
				t.Errorf("%s: %v, printed and read again %v, want %s", c.name, got.Metrics, again.Metrics, c.want)
			}
		}
	}
	if c, err := control.Parse("d.yaml", []byte(good)); err != nil || c.Metrics != "" {
		t.Errorf("without the section metrics are served at %q (%v)", c.Metrics, err)
	}
}

// exposing is a source that Prometheus can ask.
type exposing struct{ fixed }

func (exposing) Metrics() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "one 1\n") })
}

func TestMetricsAndHealthOnTheControlSocket(t *testing.T) {
	for name, c := range map[string]struct {
		source control.Source
		status int
		body   string
	}{
		"a source that shows metrics": {exposing{example()}, http.StatusOK, "one 1\n"},
		"one that does not":           {example(), http.StatusNotFound, "shows no metrics"},
	} {
		path := filepath.Join(t.TempDir(), "s.sock")
		stop := serve(t, path, c.source)
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}}}
		resp, err := client.Get("http://director/metrics")
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != c.status || !strings.Contains(string(body), c.body) {
			t.Errorf("%s: %s: %s", name, resp.Status, body)
		}
		if h, err := control.NewClient(path).Health(t.Context()); err != nil || h != (control.Health{PID: 7, Services: 1}) {
			t.Errorf("%s: health %+v, %v", name, h, err)
		}
		stop()
	}
}
