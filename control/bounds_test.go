package control_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"pktdirector/control"
)

// TestRequestsAreBounded in what they may hold; each answer says what would be right.
func TestRequestsAreBounded(t *testing.T) {
	l, c, path := serveLive(t)
	api := control.Handler(l)
	for _, r := range []struct {
		name, method, path, media, body string
		status                          int
		words                           string
	}{
		{"a large body", "PUT", "/v1/ruleset", "application/json", strings.Repeat(" ", 16<<20+1), 413, "larger than 16777216 bytes"},
		{"deep nesting", "PUT", "/v1/ruleset", "application/json", strings.Repeat("[", 1000), 400, "nested more than 32 deep"},
		{"half a value", "PUT", "/v1/ruleset", "application/json", `{"services": [`, 400, "no JSON: it ends before its value does"},
		{"two values", "PUT", "/v1/ruleset", "application/json", `{"services": []} {}`, 400, "something follows the value"},
		{"no UTF-8", "PUT", "/v1/ruleset", "application/json", "{\"services\": [\"\xff\"]}", 400, "not UTF-8"},
		{"a form", "PUT", "/v1/ruleset", "application/x-www-form-urlencoded", `{"services": []}`, 415, "curl sends it so with --json"},
		{"a media type that is none", "PUT", "/v1/ruleset", ";;", `{"services": []}`, 415, "must be application/json"},
		{"a parameter that is unknown", "PUT", "/v1/ruleset?dryrun=true", "", `{"services": []}`, 400, "knows no such parameter: one of dry_run"},
		{"a parameter's value", "PUT", "/v1/ruleset?dry_run=yes", "", `{"services": []}`, 400, `"yes" is neither true nor false`},
		{"10,001 changes", "POST", "/v1/transaction", "", `{"changes": [` + strings.Repeat(`{"do": "delete", "service": "fwm-1"},`, 10_000) + `{"do": "delete", "service": "fwm-1"}]}`, 422, "at most 10000 changes"},
		{"10,000 changes", "POST", "/v1/transaction", "", `{"changes": [` + strings.Repeat(`{"do": "delete", "service": "fwm-1"},`, 9_999) + `{"do": "delete", "service": "fwm-1"}]}`, 200, ""},
	} {
		req := httptest.NewRequest(r.method, r.path, strings.NewReader(r.body))
		if r.media != "" {
			req.Header.Set("Content-Type", r.media)
		}
		w := httptest.NewRecorder()
		api.ServeHTTP(w, req)
		var p control.Problem
		if w.Code != r.status || r.words != "" && (json.Unmarshal(w.Body.Bytes(), &p) != nil || !strings.Contains(p.Detail, r.words)) {
			t.Errorf("%s: %d %.300s, want %d with %q", r.name, w.Code, w.Body, r.status, r.words)
		}
	}
	if n := len(l.Ruleset().Services); n != 0 {
		t.Errorf("%d services came of it", n)
	}
	done(t, "a service", true)(c.PutService(t.Context(), web, control.ServiceSpec{}))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://director/v1/services", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Much", strings.Repeat("x", 1<<16))
	resp, err := unixClient(path).Do(req)
	if err == nil {
		resp.Body.Close()
		if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("a large header: %s", resp.Status)
		}
	}
	// A service of very many servers is put at once.
	spec := control.ServiceSpec{Method: "nat"}
	for i := range 5000 {
		spec.Servers = append(spec.Servers, control.ServerSpec{Address: fmt.Sprintf("10.2.%d.%d", i/250, 1+i%250)})
	}
	done(t, "5,000 servers", true)(c.PutService(t.Context(), web, spec))
}
