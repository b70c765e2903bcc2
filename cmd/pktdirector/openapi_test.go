package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"pktdirector/control"
	"pktdirector/dataplane"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

const apiFile = `links: [{name: eth0}]
services:
  - vip: 192.0.2.10
    protocol: tcp
    port: 80
    method: nat
    persistence_timeout: 300
    servers: [{address: 10.2.0.1, port: 8080}, {address: 10.2.0.2, method: tun, tunnel: {type: gue, port: 6080}}]
  - {fwmark: 1, ipv6: true, scheduler: sh, flags: [sh-port]}
`

// newAPI runs the API of a director that has a connection and has dropped a packet.
// It returns a client of its socket.
func newAPI(t *testing.T) (*http.Client, *source, string) {
	t.Helper()
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	file := filepath.Join(dir, "director.yaml")
	if err := os.WriteFile(file, []byte("control: "+filepath.Join(dir, "s")+"\n"+apiFile), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := loadConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	shown := &source{director: newDirector(1, 1<<16), config: c, began: time.Now()}
	shown.events = newEvents(shown.director)
	if err := configure(shown.director, c); err != nil {
		t.Fatal(err)
	}
	shown.director.SetLinks([]dataplane.LinkInfo{{Name: "eth0", MTU: 1500}})
	w := shown.director.NewWorker()
	syn := func(to string) *packet.Packet {
		return packettest.Build(t, packettest.Spec{Src: "198.51.100.7:1000", Dst: to, Flags: packet.SYN})
	}
	w.Process([]*packet.Packet{syn("192.0.2.10:80"), syn("192.0.2.10:81")}, 0)
	admin := newAdministration(shown, planOf(c), nil, log)
	reloads, err := newReloader(file, c, admin, log)
	if err != nil {
		t.Fatal(err)
	}
	shown.Admin, shown.Reloader, shown.Upgrader = admin, reloads, onlyDry{}
	exposed, err := expose(shown, log)
	if err != nil {
		t.Fatal(err)
	}
	api, err := listenAPI(c, listeners{}, exposed, log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- api.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", c.Control)
	}}}, shown, c.Control
}

// onlyDry could be upgraded, and is not.
type onlyDry struct{}

func (onlyDry) Upgrade(_ string, dryRun bool) (control.UpgradeReport, error) {
	if !dryRun {
		return control.UpgradeReport{}, control.NotUpgraded(errors.New("the new program does not start"))
	}
	return control.UpgradeReport{DryRun: true, Old: control.Program{Version: "1", PID: 1}, New: control.Program{Version: "2", PID: 2}}, nil
}

// document is the OpenAPI document with every object closed: what it does not name,
// no answer may have.
type document struct {
	paths    map[string]map[string]any
	compiler *jsonschema.Compiler
}

func readDocument(t *testing.T, text []byte) *document {
	t.Helper()
	tree, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	closeObjects(tree)
	d := &document{paths: map[string]map[string]any{}, compiler: jsonschema.NewCompiler()}
	for path, of := range tree.(map[string]any)["paths"].(map[string]any) {
		d.paths[path] = of.(map[string]any)
	}
	if err := d.compiler.AddResource("openapi.json", tree); err != nil {
		t.Fatal(err)
	}
	return d
}

func closeObjects(v any) {
	switch v := v.(type) {
	case map[string]any:
		if _, has := v["properties"]; has && v["type"] == "object" && v["additionalProperties"] == nil {
			v["additionalProperties"] = false
		}
		for _, inner := range v {
			closeObjects(inner)
		}
	case []any:
		for _, inner := range v {
			closeObjects(inner)
		}
	}
}

// validate holds a body against what the document says at a place.
func (d *document) validate(t *testing.T, body []byte, place ...string) {
	t.Helper()
	for i := range place {
		place[i] = strings.ReplaceAll(strings.ReplaceAll(place[i], "~", "~0"), "/", "~1")
	}
	s, err := d.compiler.Compile("openapi.json#/" + strings.NewReplacer("{", "%7B", "}", "%7D").Replace(strings.Join(place, "/")))
	if err != nil {
		t.Errorf("%v: %v", place, err)
		return
	}
	for decoder := json.NewDecoder(bytes.NewReader(body)); ; {
		var one json.RawMessage
		if err := decoder.Decode(&one); err == io.EOF {
			return
		} else if err != nil {
			t.Errorf("%v: %v: %.200s", place, err, body)
			return
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(one))
		if err == nil {
			err = s.Validate(value)
		}
		if err != nil {
			t.Errorf("%v: %v\n%s", place, err, one)
		}
	}
}

// operation finds the path of the document that a request's path is of.
func (d *document) operation(path string) string {
	path, _, _ = strings.Cut(path, "?")
	if d.paths[path] != nil {
		return path
	}
	for pattern := range d.paths {
		parts := regexp.MustCompile(`\{[a-z]+\}`).Split(pattern, -1)
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		if regexp.MustCompile("^" + strings.Join(parts, "[^/]+") + "$").MatchString(path) {
			return pattern
		}
	}
	return ""
}

// TestTheServerIsWhatItsOpenAPIDocumentSays asks for everything that is in it. Each
// answer, refusals included, is as described, and nothing else is there.
func TestTheServerIsWhatItsOpenAPIDocumentSays(t *testing.T) {
	client, shown, _ := newAPI(t)
	ask := func(method, path, body string) *http.Response {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		t.Cleanup(cancel)
		req, err := http.NewRequestWithContext(ctx, method, "http://director"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	text := func(r *http.Response) []byte {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		return b
	}
	d := readDocument(t, text(ask("GET", "/v1/openapi.json", "")))
	const web = "/v1/services/tcp-192.0.2.10-80"
	asked := map[string]bool{}
	for _, r := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", "/v1/openapi.json", "", 200}, {"GET", "/v1/health", "", 200}, {"GET", "/v1/status", "", 200}, {"GET", "/v1/config", "", 200},
		{"GET", "/metrics", "", 200}, {"GET", "/v1/connections", "", 200}, {"GET", "/v1/connections?color=red", "", 400},
		{"GET", "/v1/diagnosis", "", 200}, {"GET", "/v1/standby", "", 200}, {"PUT", "/v1/standby", `{"standby": false}`, 200}, {"PUT", "/v1/standby", `{}`, 400},
		{"GET", "/v1/events?kind=weather", "", 400}, {"GET", "/v1/explain?client=198.51.100.7:1000&vip=192.0.2.10:80", "", 200}, {"GET", "/v1/explain?client=198.51.100.8:1000&vip=192.0.2.10:80&would=true", "", 200},
		{"GET", "/v1/explain?client=198.51.100.7", "", 400}, {"GET", "/v1/explain", "", 400}, {"GET", "/v1/capture?snaplen=0", "", 400}, {"GET", "/v1/capture?filter=port%20http", "", 400},
		{"GET", "/v1/services", "", 200}, {"GET", web, "", 200}, {"GET", web + "/servers", "", 200}, {"GET", web + "/servers/10.2.0.1-8080", "", 200},
		{"GET", "/v1/services/tcp-192.0.2.99-80", "", 404}, {"GET", "/v1/services/web", "", 422}, {"GET", web + "/servers/10.2.0.1-8081", "", 404}, {"GET", web + "/servers/x", "", 422},
		{"PUT", web + "/servers/10.2.0.3-80", `{"method": "dr", "weight": 3}`, 200}, {"PUT", web + "/servers/10.2.0.3-80?dry_run=true", `{"method": "dr"}`, 200},
		{"PUT", web + "/servers/10.2.0.3-80", `{"method": "dr", "weight": -3}`, 422}, {"PUT", web + "/servers/10.2.0.3-80", `{`, 400},
		{"PATCH", web + "/servers/10.2.0.3-80", `{"weight": 5}`, 200}, {"PATCH", web + "/servers/10.2.0.9-80", `{"weight": 5}`, 404}, {"PATCH", web + "/servers/10.2.0.3-80?dryrun=1", `{"weight": 5}`, 400},
		{"DELETE", web + "/servers/10.2.0.3-80", "", 200}, {"DELETE", web + "/servers/10.2.0.3-80", "", 200},
		{"PUT", "/v1/services/udp-192.0.2.10-53", `{"scheduler": "rr", "ops": true, "servers": [{"address": "10.2.0.4", "method": "dr"}]}`, 200},
		{"PATCH", "/v1/services/udp-192.0.2.10-53", `{"scheduler": null}`, 200}, {"PATCH", web, `{"ops": true}`, 422},
		{"POST", "/v1/services/udp-192.0.2.10-53/zero", "", 204}, {"POST", "/v1/services/udp-192.0.2.99-53/zero", "", 404}, {"POST", "/v1/zero", "", 204},
		{"DELETE", "/v1/services/udp-192.0.2.10-53", "", 200},
		{"POST", "/v1/transaction", `{"changes": [{"do": "patch", "service": "tcp-192.0.2.10-80", "server": "10.2.0.1-8080", "spec": {"weight": 0}}]}`, 200},
		{"POST", "/v1/transaction", `{"changes": [{"do": "add", "service": "x"}]}`, 422}, {"POST", "/v1/transaction", `{"changes": 1}`, 400},
		{"GET", "/v1/ruleset", "", 200}, {"PUT", "/v1/ruleset?dry_run=true", `{"services": []}`, 200}, {"PUT", "/v1/ruleset", `{}`, 422},
		{"POST", "/v1/ipvsadm", `{"args": ["-Ln"]}`, 200}, {"POST", "/v1/ipvsadm", `{"args": ["-D", "-t", "192.0.2.99:1"]}`, 200}, {"POST", "/v1/ipvsadm", `{"arg": 1}`, 400},
		{"POST", "/v1/upgrade", "", 409}, {"POST", "/v1/upgrade?dry_run=true", "", 200}, {"POST", "/v1/upgrade?dry=true", "", 400},
		{"GET", "/v1/drift", "", 200}, {"POST", "/v1/reload?dry_run=true", "", 200}, {"POST", "/v1/reload", "", 200},
		{"DELETE", "/v1/connections", "", 400}, {"DELETE", "/v1/connections?all=true", "", 200}, {"GET", "/v1/connections", "", 200},
	} {
		resp := ask(r.method, r.path, r.body)
		body := text(resp)
		if resp.StatusCode != r.status {
			t.Errorf("%s %s: %s, want %d: %s", r.method, r.path, resp.Status, r.status, body)
		}
		at, method, status := d.operation(r.path), strings.ToLower(r.method), resp.Status[:3]
		if d.paths[at][method] == nil {
			t.Errorf("%s %s is not in the document", r.method, r.path)
			continue
		}
		media, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
		switch {
		case resp.StatusCode >= 300:
			status = "default"
		case resp.StatusCode == http.StatusNoContent:
			asked[method+" "+at] = true
			continue
		default:
			asked[method+" "+at] = true
		}
		if media != "text/plain" {
			d.validate(t, body, "paths", at, method, "responses", status, "content", media, "schema")
		}
	}

	// Events, of each kind.
	stream := bufio.NewScanner(ask("GET", "/v1/events", "").Body)
	for shown.events.Wanted() == 0 {
		time.Sleep(time.Millisecond)
	}
	w := shown.director.NewWorker()
	w.Process([]*packet.Packet{packettest.Build(t, packettest.Spec{Src: "198.51.100.7:1001", Dst: "192.0.2.10:80", Flags: packet.SYN})}, time.Second)
	publish(shown.events, w)
	text(ask("PATCH", web+"/servers/10.2.0.1-8080", `{"weight": 7}`))
	kinds := map[string]bool{}
	for len(kinds) < len(control.EventKinds()) && stream.Scan() {
		if data, is := strings.CutPrefix(stream.Text(), "data: "); is {
			d.validate(t, []byte(data), "paths", "/v1/events", "get", "responses", "200", "content", "text/event-stream", "schema")
			var e control.Event
			if err := json.Unmarshal([]byte(data), &e); err != nil {
				t.Error(err)
			}
			kinds[e.Kind] = true
		}
	}
	captured := bufio.NewScanner(ask("GET", "/v1/capture", "").Body)
	for shown.events.Wanted()&control.PacketEvents == 0 {
		time.Sleep(time.Millisecond)
	}
	w.Process([]*packet.Packet{packettest.Build(t, packettest.Spec{Src: "198.51.100.7:1002", Dst: "192.0.2.10:80", Flags: packet.SYN})}, time.Second)
	publish(shown.events, w)
	for seen := false; !seen && captured.Scan(); {
		d.validate(t, captured.Bytes(), "paths", "/v1/capture", "get", "responses", "200", "content", "application/x-ndjson", "schema")
		seen = strings.Contains(captured.Text(), `"data":`)
		asked["get /v1/capture"] = seen
	}
	asked["get /v1/events"] = len(kinds) == len(control.EventKinds())

	for path, methods := range d.paths {
		for method := range methods {
			if !asked[method+" "+path] {
				t.Errorf("%s %s is in the document, and no request above is answered by it: write one", method, path)
			}
		}
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
			if methods[strings.ToLower(method)] != nil {
				continue
			}
			resp := ask(method, strings.NewReplacer("{service}", "tcp-192.0.2.10-80", "{server}", "10.2.0.1-8080").Replace(path), "")
			if resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s %s, which is not in the document: %s", method, path, resp.Status)
			}
		}
	}
	for _, path := range []string{"/", "/v1", "/v1/", "/v1/statuses", "/v2/status", "/v1/services/", "/debug/pprof/", web + "/servers/10.2.0.1-8080/weight"} {
		if resp := ask("GET", path, ""); resp.StatusCode != http.StatusNotFound || resp.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("GET %s: %s", path, resp.Status)
		}
	}
}
