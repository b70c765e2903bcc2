package main

import (
	"encoding/json"
	"strings"
	"testing"

	"pktdirector/control"
	"pktdirector/testbed"
)

// Field case 19, live: a real server is a client of a masqueraded service. The
// other servers answer it past the director, and diagnose says so.
func TestDiagnoseNamesAClientBesideItsServer(t *testing.T) {
	top := topology(t, "nat")
	l := lab(t, top, testbed.AFPacket, nil)
	director, client, server := top.With(testbed.Director)[0].Name, top.With(testbed.Client)[0].Name, top.With(testbed.RealServer)[0]
	if out, err := l.Output(t.Context(), client, "lab", "client", "open", top.Target(top.HTTP), "-n", "6"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, code := exitCode(t, l, director, "diagnose"); code != 0 || out != "" {
		t.Errorf("a lab in order: exit code %d, %q; want 0 and nothing", code, out)
	}
	if out, code := exitCode(t, l, director, "diagnose", "--json"); code != 0 || out != "[]\n" {
		t.Errorf("a lab in order: exit code %d, %q; want 0 and []", code, out)
	}
	if out, err := l.Output(t.Context(), server.Name, "lab", "client", "open", top.Target(top.HTTP), "-n", "6", "--timeout", "4s"); err == nil {
		t.Fatalf("a server was served by its neighbours:\n%s", out)
	}
	out, code := exitCode(t, l, director, "diagnose")
	if code != 1 || !strings.Contains(out, "no return traffic through the director") || !strings.Contains(out, "client is on-link with the real server ("+server.Addr().String()+")") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	out, _ = exitCode(t, l, director, "diagnose", "--json")
	var all []control.Diagnosis
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) == 0 || all[0].Code != "no_return_traffic" || all[0].Connections == 0 || !strings.HasPrefix(all[0].Client, server.Addr().String()+":") {
		t.Errorf("%v\n%s", err, out)
	}
}
