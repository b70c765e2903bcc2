package control_test

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"pktdirector/control"
	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/modes/dr"
	"pktdirector/modes/nat"
	"pktdirector/modes/tun"
)

// FuzzCommander has a director carry out command lines, the first with what -R
// reads. What -S then prints, -R takes, and -S prints again.
func FuzzCommander(f *testing.F) {
	f.Add("-R", "-A -t 192.0.2.10:80 -s rr\n-a -t 192.0.2.10:80 -r 10.2.0.1:80 -m\n", "-Ln")
	f.Add("-R", "-A -f 1 -6 -s mh -b mh-port -p 5\n# no\n-a -f 1 -6 -r [2001:db8::1]:0 -i --tun-type gre\n", "-Sn")
	f.Add("-A -u 192.0.2.10:53 -s wrr --ops", "", "-Z")
	f.Add("-A -t 192.0.2.10:0 -p 300 -M 255.0.255.0", "", "-L --rate --exact")
	f.Fuzz(func(t *testing.T, first, stdin, second string) {
		if len(stdin) > 1<<12 {
			return
		}
		one := commander()
		for _, line := range []string{first, second} {
			a := one.Do(strings.Fields(line), stdin)
			listsNone := a.Code == 1 && a.Stderr == "No such service\n" // -L of a service that is not there
			if a.Code != 0 && a.Code != 2 && a.Code != 255 && !listsNone {
				t.Fatalf("%q: exit code %d: %s", line, a.Code, a.Stderr)
			}
		}
		saved := one.Do([]string{"-S", "-n"}, "").Stdout
		two := commander()
		if a := two.Do([]string{"-R"}, saved); a.Code != 0 || a.Stderr != "" {
			t.Fatalf("-R refuses what -S printed: %s\n%s", a.Stderr, saved)
		}
		if again := two.Do([]string{"-S", "-n"}, "").Stdout; again != saved {
			t.Fatalf("saved\n%sand, restored, saved\n%s", saved, again)
		}
	})
}

func commander() *control.Commander {
	d := dataplane.New(dataplane.Options{
		Shards:     1,
		Forwarders: dataplane.Forwarders{lvs.Masq: nat.Masq{}, lvs.Route: dr.Gateway{}, lvs.Tunnel: tun.New(1)},
	})
	return &control.Commander{Director: d, Connections: func(func(control.Connection) bool) {}}
}

// FuzzStatusAPI has a client ask a director that answers anything.
func FuzzStatusAPI(f *testing.F) {
	f.Add([]byte(`{"version":1}`))
	f.Add([]byte(`{"version":1,"services":[{"service":"TCP 1.2.3.4:80"}]}`))
	f.Add([]byte(`{"protocol":"tcp"}{"protocol":1}`))
	f.Add([]byte(``))
	path := filepath.Join(f.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		f.Fatal(err)
	}
	answer := make(chan []byte, 1)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		b := <-answer
		w.Write(b)
	})}
	go srv.Serve(l)
	f.Cleanup(func() { srv.Close() })
	client := control.NewClient(path)
	f.Fuzz(func(t *testing.T, body []byte) {
		answer <- body
		if s, err := client.Status(context.Background()); err == nil {
			var b strings.Builder
			control.WriteList(&b, s)
			control.WriteStats(&b, s)
			control.WriteRates(&b, s)
			control.WriteThresholds(&b, s)
			control.WritePersistent(&b, s)
			control.WriteVerdicts(&b, s.Verdicts)
		}
		answer <- body
		if conns, err := client.Connections(context.Background()); err == nil {
			var b strings.Builder
			control.WriteConnections(&b, without(conns))
			control.WriteConnectionTable(&b, without(conns))
		}
	})
}
