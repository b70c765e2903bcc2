package control_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pktdirector/control"
)

// FuzzChange makes a request of any path and body to a director with services. What
// is refused changes nothing; what is taken and asked again changes nothing more, and
// what is balanced then can be put as it is read.
func FuzzChange(f *testing.F) {
	const web = "/v1/services/tcp-192.0.2.10-80"
	for _, s := range [][3]string{
		{"PUT", web, `{"scheduler": "sh", "flags": ["sh-port"], "persistence_timeout": 5, "persistence_granularity": "255.0.255.0", "servers": [{"address": "10.2.0.1", "method": "dr"}]}`},
		{"PATCH", web, `{"scheduler": null, "ops": true, "servers": []}`},
		{"PUT", "/v1/services/udp-2001:db8::10-0", `{"persistence_timeout": 1, "persistence_granularity": 64, "method": "nat", "servers": [{"address": "2001:db8::1", "port": 0}]}`},
		{"PUT", "/v1/services/fwm-1-ipv6", `{"fwmark": 1, "ipv6": true}`},
		{"DELETE", web, ``},
		{"PUT", web + "/servers/10.2.0.9-8080", `{"method": "fullnat", "uthreshold": 4294967295, "lthreshold": 1}`},
		{"PATCH", web + "/servers/10.2.0.1-8080", `{"weight": 0, "method": "tun", "port": 80, "tunnel": {"type": "gue", "port": 1}}`},
		{"POST", "/v1/transaction", `{"changes": [{"do": "delete", "service": "tcp-192.0.2.10-80"}, {"do": "put", "service": "tcp-192.0.2.10-80", "spec": {}}, {"do": "put", "service": "tcp-192.0.2.10-80", "server": "127.0.0.1-80", "spec": {"method": "dr"}}], "dry_run": false}`},
		{"PUT", "/v1/ruleset", `{"services": [{"vip": "192.0.2.10", "protocol": "tcp", "port": 80, "method": "tun", "sources": ["192.0.2.1"], "source_ports": "5-6", "toa": true, "servers": [{"address": "10.2.0.1"}]}]}`},
		{"POST", "/v1/ipvsadm", `{"args": ["-E", "-t", "192.0.2.10:80", "--pe", "sip", "-p"]}`},
		{"GET", "/v1/services?color=red", ``},
	} {
		f.Add(s[0], s[1], []byte(s[2]))
	}
	f.Fuzz(func(t *testing.T, method, path string, body []byte) {
		switch {
		case len(body) > 1<<12 || len(path) > 200 || !strings.HasPrefix(path, "/v1/"):
			return
		case strings.HasPrefix(path, "/v1/services"), strings.HasPrefix(path, "/v1/transaction"), strings.HasPrefix(path, "/v1/ruleset"), strings.HasPrefix(path, "/v1/ipvsadm"):
		default:
			return // others need more of a director than this one is
		}
		u, err := url.Parse(path)
		if err != nil {
			return
		}
		l := newLive()
		api := control.Handler(l)
		ask := func(method string, u *url.URL, body []byte) (int, []byte) {
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(string(body)))
			r.Method, r.URL, r.Host = method, u, "director"
			w := httptest.NewRecorder()
			api.ServeHTTP(w, r)
			return w.Code, w.Body.Bytes()
		}
		must := func(method, path, body string) {
			if code, answer := ask(method, &url.URL{Path: path}, []byte(body)); code != http.StatusOK {
				t.Fatalf("%s %s: %d %s", method, path, code, answer)
			}
		}
		must("PUT", web, `{"scheduler": "wrr", "method": "nat", "servers": [{"address": "10.2.0.1", "port": 8080}, {"address": "10.2.0.2", "method": "tun", "tunnel": {"type": "gre"}}]}`)
		must("PUT", "/v1/services/fwm-1", `{}`)
		before := l.Ruleset()
		code, answer := ask(method, u, body)
		after := l.Ruleset()
		if code >= 500 {
			t.Fatalf("%s %s %s: %d %s", method, path, body, code, answer)
		}
		if code >= 300 {
			if p := (control.Problem{}); code >= 400 && (json.Unmarshal(answer, &p) != nil || p.Status != code || p.Detail == "") {
				t.Fatalf("%d without a problem: %s", code, answer)
			}
			if diff := cmp.Diff(before, after, opaque()); diff != "" {
				t.Fatalf("%s %s %s was refused (%s), and changed\n%s", method, path, body, answer, diff)
			}
			return
		}
		if again, _ := ask(method, u, body); again < 300 && u.Path != "/v1/ipvsadm" {
			if diff := cmp.Diff(after, l.Ruleset(), opaque()); diff != "" {
				t.Fatalf("%s %s %s, made again, changed\n%s", method, path, body, diff)
			}
		}
		set, all := l.Ruleset(), []control.ServiceState{}
		_, answer = ask("GET", &url.URL{Path: "/v1/services"}, nil)
		if err := json.Unmarshal(answer, &all); err != nil || len(all) != len(set.Services) {
			t.Fatalf("%v: %s", err, answer)
		}
		for _, s := range all {
			spec, err := json.Marshal(s.Spec)
			if err != nil {
				t.Fatal(err)
			}
			must("PUT", "/v1/services/"+s.ID, string(spec))
		}
		if diff := cmp.Diff(set, l.Ruleset(), opaque()); diff != "" {
			t.Fatalf("services put as they were read changed\n%s", diff)
		}
	})
}
