package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pktdirector/control"
	"pktdirector/testbed"
	"pktdirector/testbed/traffic"
)

// The director's host is itself a real server: a link of type local hands it its
// share, by real TCP, and it answers the clients by itself.
func TestTheDirectorsHostIsARealServer(t *testing.T) {
	for _, lab := range []string{"dr", "tun"} {
		t.Run(lab, func(t *testing.T) { localNodeIn(t, topology(t, lab)) })
	}
}

func localNodeIn(t *testing.T, top *testbed.Topology) {
	h, client := top.With(testbed.Director)[0], top.With(testbed.Client)[0].Name
	l := lab(t, top, testbed.AFPacket, func(*testbed.Lab) bool { return false })
	if err := l.Do(h.Name, func() error {
		// A strict filter on all interfaces must not keep the host from its share.
		if err := (testbed.Sysctl{Key: "net.ipv4.conf.all.rp_filter", Value: "1"}).Apply(); err != nil {
			return err
		}
		return testbed.AddAddr{Dev: "lo", Prefix: netip.PrefixFrom(top.VIP, 32)}.Apply()
	}); err != nil {
		t.Fatal(err)
	}
	look := func() (found []string) {
		if err := l.Do(h.Name, func() (err error) { found, err = changeable(); return err }); err != nil {
			t.Fatal(err)
		}
		return found
	}
	before := look()
	port := top.HTTP.Listen()
	program(t)
	server := exec.Command(executable(t), "lab", "serve", "--name", "self", "--http", fmt.Sprintf("%s:%d", top.VIP, port))
	if err := l.Start(h.Name, server); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Process.Kill(); server.Wait() })

	text := top.DirectorYAML(testbed.AFPacket)
	text = strings.Replace(text, "services:\n", "  - {name: self0, type: local}\nservices:\n", 1)
	text = strings.Replace(text, "    servers:\n", fmt.Sprintf("    servers:\n      - {address: %s, port: %d, weight: 6}\n", h.Addr(), port), 1)
	file := filepath.Join(t.TempDir(), "director.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(text)
	d := startRun(t, l, h.Name, file)
	out, err := l.Output(t.Context(), client, "lab", "client", "open", top.Target(top.HTTP), "-n", "24")
	if err != nil || !strings.Contains(out, `"self"`) || !strings.Contains(out, `"rs1"`) {
		t.Errorf("24 connections: %v\n%s", err, out)
	}
	for seed := range 6 {
		out, err := l.Output(t.Context(), client, "lab", "client", "upload", top.Target(top.HTTP), "--bytes", "100000", "--seed", fmt.Sprint(seed))
		var got []traffic.Transfer
		if err != nil || json.Unmarshal([]byte(out), &got) != nil || len(got) != 1 || !got[0].Equal(100000) {
			t.Errorf("upload %d: %v\n%s", seed, err, out)
		}
	}
	// Reloads change the host's share as any server's, and leave its link.
	reload := func(text string, self bool) {
		t.Helper()
		write(text)
		if out, code := exitCode(t, l, h.Name, "reload"); code != 0 {
			t.Fatalf("reload: exit code %d\n%s", code, out)
		}
		out, err := l.Output(t.Context(), client, "lab", "client", "open", top.Target(top.HTTP), "-n", "24")
		if err != nil || strings.Contains(out, `"self"`) != self || !strings.Contains(out, `"rs1"`) {
			t.Errorf("24 connections after a reload: %v, want the host among the servers: %v\n%s", err, self, out)
		}
	}
	reload(strings.Replace(text, "weight: 6}", "weight: 0}", 1), false)
	reload(strings.Replace(text, fmt.Sprintf("      - {address: %s, port: %d, weight: 6}\n", h.Addr(), port), "", 1), false)
	reload(text, true)
	write(strings.Replace(text, "  - {name: self0, type: local}\n", "", 1))
	if out, code := exitCode(t, l, h.Name, "reload"); code == 0 {
		t.Errorf("a reload without the link of the host was taken:\n%s", out)
	}
	list, _ := exitCode(t, l, h.Name, "list", "--json")
	var s control.Status
	if err := json.Unmarshal([]byte(list), &s); err != nil {
		t.Fatal(err)
	}
	counted := map[string]uint64{}
	for _, v := range s.Verdicts {
		counted[v.Name] = v.Count
	}
	if counted["delivered"] < 100 || counted["local_node"] != 0 {
		t.Errorf("delivered %d, local_node %d; want some hundred, and 0", counted["delivered"], counted["local_node"])
	}
	d.cmd.Process.Signal(syscall.SIGTERM)
	if err := d.cmd.Wait(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(before, look()); diff != "" {
		t.Errorf("after the director has gone (-before +after):\n%s", diff)
	}
}
