package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"pktdirector/control"
	"pktdirector/testbed"
)

// Field case 35, live: a director that stands by leaves the VIP to its host, takes
// over when it is told, and stands by again.
func TestADirectorStandsByAndTakesOver(t *testing.T) {
	top := topology(t, "dr")
	h, client := top.With(testbed.Director)[0], top.With(testbed.Client)[0].Name
	l := lab(t, top, testbed.AFPacket, func(*testbed.Lab) bool { return false })
	if err := l.Do(h.Name, func() error { // as on a real server
		for _, key := range []string{"arp_ignore", "arp_announce"} {
			if err := (testbed.Sysctl{Key: "net.ipv4.conf.all." + key, Value: map[string]string{"arp_ignore": "1", "arp_announce": "2"}[key]}).Apply(); err != nil {
				return err
			}
		}
		return testbed.AddAddr{Dev: "lo", Prefix: netip.PrefixFrom(top.VIP, 32)}.Apply()
	}); err != nil {
		t.Fatal(err)
	}
	startConfigured(t, l, h.Name, top.DirectorYAML(testbed.AFPacket)+"standby: true\n")
	open := func() (string, error) {
		return l.Output(t.Context(), client, "lab", "client", "open", top.Target(top.HTTP), "-n", "12", "--timeout", "3s")
	}
	standby := func(want string, args ...string) {
		t.Helper()
		if out, code := exitCode(t, l, h.Name, append([]string{"standby"}, args...)...); code != 0 || out != want {
			t.Errorf("standby %v: exit code %d, %q; want 0, %q", args, code, out, want)
		}
	}
	standby("on\n")
	if out, err := open(); err == nil {
		t.Errorf("connections, though nobody answers for the VIP:\n%s", out)
	}
	standby("", "off")
	standby("off\n")
	if out, err := open(); err != nil {
		t.Errorf("after it took over: %v\n%s", err, out)
	}
	standby("", "on")
	if out, err := open(); err == nil || !strings.Contains(err.Error()+out, "refused") {
		t.Errorf("after it stood by again: error %v; the router's packets are its host's, which refuses them\n%s", err, out)
	}
	standby("", "off")
	if out, err := open(); err != nil {
		t.Errorf("after it took over again: %v\n%s", err, out)
	}
	if _, code := exitCode(t, l, h.Name, "standby", "maybe"); code != 2 {
		t.Errorf("standby maybe: exit code %d, want 2", code)
	}
}

// Field case 48, live: the director's own host is no client. Its connection fails,
// and changes no count; check says so beforehand.
func TestTheHostIsNoClientOfItsDirector(t *testing.T) {
	top := topology(t, "nat")
	host, client := top.With(testbed.Director)[0].Name, top.With(testbed.Client)[0].Name
	l := lab(t, top, testbed.AFPacket, nil)
	stats := func() string {
		out, _ := exitCode(t, l, host, "list", "--json")
		var s control.Status
		if err := json.Unmarshal([]byte(out), &s); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return fmt.Sprintf("%+v", s.Stats)
	}
	before := stats()
	if out, err := l.Output(t.Context(), host, "lab", "client", "open", top.Target(top.HTTP), "-n", "1", "--timeout", "5s"); err == nil {
		t.Errorf("the host itself was served:\n%s", out)
	}
	if after := stats(); after != before {
		t.Errorf("counted %s, was %s", after, before)
	}
	if out, err := l.Output(t.Context(), client, "lab", "client", "open", top.Target(top.HTTP), "-n", "3"); err != nil {
		t.Errorf("a client: %v\n%s", err, out)
	}
	if out, _ := exitCode(t, l, host, "check", "-c", testbed.DirectorConfig); !strings.Contains(out, "note: local client: ") || !strings.Contains(out, top.VIP.String()) {
		t.Errorf("check does not speak of local clients:\n%s", out)
	}
}
