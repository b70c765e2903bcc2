package main

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"pktdirector/testbed"
)

// A director that was started without a service is told all by ipvsadm's command
// lines, while it runs.
func TestIpvsadmChangesARunningDirector(t *testing.T) {
	top := topology(t, "nat")
	for _, kind := range kinds(t, top) {
		t.Run(kind.String(), func(t *testing.T) {
			requireLink(t, top, kind)
			l := lab(t, top, kind, func(*testbed.Lab) bool { return false })
			host, client := top.With(testbed.Director)[0].Name, top.With(testbed.Client)[0].Name
			text, _, _ := strings.Cut(top.DirectorYAML(kind), "services:\n")
			startConfigured(t, l, host, text+"timeouts: {tcp: 1000}\nservices: []\n")
			vip := fmt.Sprintf("%s:%d", top.VIP, top.HTTP.Listen())
			command := func(wantCode int, wantOut string, line string) {
				t.Helper()
				out, err := l.Output(t.Context(), host, append([]string{"ipvsadm"}, strings.Fields(line)...)...)
				code := 0
				if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
					code, out = exit.ExitCode(), out+err.Error() // which has what it complained of
				}
				if code != wantCode || !strings.Contains(out, wantOut) {
					t.Errorf("ipvsadm %s: exit code %d, want %d, and %q in\n%s", line, code, wantCode, wantOut, out)
				}
			}
			command(0, "", "-A -t "+vip+" -s rr")
			servers := top.With(testbed.RealServer)
			for _, s := range servers {
				command(0, "", fmt.Sprintf("-a -t %s -r %s:%d -m", vip, s.Addr(), top.HTTP.Listen()))
			}
			if kind == testbed.Tundev {
				command(255, "direct routing (-g) cannot work there", "-a -t "+vip+" -r 10.0.0.99 -g")
			}
			open := func(n int) (string, error) {
				return l.Output(t.Context(), client, "lab", "client", "open", vip, "-n", fmt.Sprint(n))
			}
			if out, err := open(3 * len(servers)); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			list, _ := exitCode(t, l, host, "ipvsadm", "-Ln")
			for _, s := range servers {
				if !connections(list, s.Addr().String(), 3) {
					t.Errorf("want 3 connections at %s:\n%s", s.Addr(), list)
				}
			}
			command(255, "Service already exists", "-A -t "+vip)
			command(2, "illegal weight specified", fmt.Sprintf("-e -t %s -r %s:%d -m -w x", vip, servers[0].Addr(), top.HTTP.Listen()))
			command(0, "", fmt.Sprintf("-e -t %s -r %s:%d -m -w 0", vip, servers[0].Addr(), top.HTTP.Listen()))
			command(0, "Masq    0 ", "-Ln")
			command(0, "Timeout (tcp tcpfin udp): 1000 120 300", "-L --timeout")
			command(0, "", "--set 0 60 0")
			command(0, "Timeout (tcp tcpfin udp): 1000 60 300", "-L --timeout")
			if saved, _ := exitCode(t, l, host, "ipvsadm", "-Sn"); strings.Count(saved, "\n") != 1+len(servers) || !strings.HasPrefix(saved, "-A -t "+vip+" -s rr\n") {
				t.Errorf("-Sn:\n%s", saved)
			}
			command(0, "", "-C")
			if out, err := open(1); err == nil {
				t.Errorf("a connection to a service that was removed:\n%s", out)
			}
		})
	}
}

func TestTheProgramIsIpvsadmByThatName(t *testing.T) {
	for name, test := range map[string]struct{ args, want []string }{
		"ipvsadm":     {[]string{"/usr/sbin/ipvsadm", "-Ln"}, []string{"ipvsadm", "-Ln"}},
		"pktdirector": {[]string{"pktdirector", "list"}, []string{"list"}},
		"nothing":     {nil, []string{}},
	} {
		if got := commandLine(test.args); strings.Join(got, " ") != strings.Join(test.want, " ") {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

func TestReadServices(t *testing.T) {
	s := readServices(strings.NewReader("# a comment\nhttp 80/tcp www # WorldWideWeb\nhttp 80/udp\ndomain\t53/udp\nwrong 99999/tcp\nhalf\nnone x/tcp\nother 80/tcp\nodd 1/ddp\n"))
	for key, want := range map[service]uint16{{name: "http", proto: 6}: 80, {name: "www", proto: 6}: 80, {name: "domain", proto: 17}: 53, {name: "domain", proto: 6}: 0, {name: "wrong", proto: 6}: 0} {
		if s.port[key] != want {
			t.Errorf("port of %v: got %d, want %d", key, s.port[key], want)
		}
	}
	if got := s.name[service{port: 80, proto: 6}]; got != "http" {
		t.Errorf("port 80 of TCP is %q, want http", got)
	}
}
