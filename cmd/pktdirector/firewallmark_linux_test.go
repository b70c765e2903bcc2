package main

import (
	"fmt"
	"strings"
	"testing"

	"pktdirector/testbed"
)

// A persistent service by firewall mark, as the configuration file has it: the
// director answers for the marked address, all connections of the client go to
// one server, and settings and thresholds are in force.
func TestRunBalancesByFirewallMark(t *testing.T) {
	top := topology(t, "nat")
	for _, kind := range kinds(t, top) {
		t.Run(kind.String(), func(t *testing.T) {
			requireLink(t, top, kind)
			l := lab(t, top, kind, func(*testbed.Lab) bool { return false })
			host, client := top.With(testbed.Director)[0].Name, top.With(testbed.Client)[0].Name
			text, _, _ := strings.Cut(top.DirectorYAML(kind), "services:\n")
			var b strings.Builder
			fmt.Fprintf(&b, `%ssysctl: {net.ipv4.vs.expire_nodest_conn: 1}
marks:
  - {fwmark: 5, dst: %s, protocol: tcp, port: [443, %d-%d]}
services:
  - fwmark: 5
    scheduler: rr
    persistence_timeout: 300
    method: nat
    servers:
`, text, top.VIP, top.HTTP.Listen()-9, top.HTTP.Listen())
			for _, s := range top.With(testbed.RealServer) {
				fmt.Fprintf(&b, "      - {address: %s, uthreshold: 100}\n", s.Addr())
			}
			startConfigured(t, l, host, b.String())
			if out, err := l.Output(t.Context(), client, "lab", "client", "open", fmt.Sprintf("%s:%d", top.VIP, top.HTTP.Listen()), "-n", "6"); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			out, _ := exitCode(t, l, host, "list")
			// The server added last is the first of the list; rr would go on.
			last := top.With(testbed.RealServer)[len(top.With(testbed.RealServer))-1].Addr().String()
			if !strings.Contains(out, "FWM  5 rr persistent 300\n") || !connections(out, last, 6) {
				t.Errorf("list:\n%s\nwant FWM 5 and all 6 connections at %s", out, last)
			}
			out, _ = exitCode(t, l, host, "list", "-c")
			if !strings.Contains(out, "IP  ") || !strings.Contains(out, "0.0.0.5:0") || strings.Count(out, "10.0.0.13:8080") != 6 {
				t.Errorf("list -c:\n%s\nwant a template of mark 5 and 6 connections", out)
			}
		})
	}
}

// connections reports whether a listing gives the server at addr n active and
// inactive connections together.
func connections(list, addr string, n int) bool {
	for line := range strings.Lines(list) {
		f := strings.Fields(line)
		if len(f) < 6 || !strings.HasPrefix(f[1], addr+":") {
			continue
		}
		var active, inactive int
		fmt.Sscan(f[4], &active)
		fmt.Sscan(f[5], &inactive)
		return active+inactive == n
	}
	return false
}
