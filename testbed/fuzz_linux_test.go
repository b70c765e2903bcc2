package testbed_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pktdirector/testbed"
)

// FuzzTopology reads topology files: from what is taken the demonstration's
// questions can be answered.
func FuzzTopology(f *testing.F) {
	files, err := filepath.Glob("topologies/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatalf("no topologies (%v)", err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 1<<14 {
			return
		}
		top, err := testbed.ParseTopology("lab.yaml", text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "lab.yaml: ") {
				t.Fatalf("the error does not name the file: %v", err)
			}
			return
		}
		top.VIPSegment()
		for _, role := range []testbed.Role{testbed.Client, testbed.Director, testbed.RealServer} {
			for _, h := range top.With(role) {
				if !h.Addr().IsValid() {
					t.Fatalf("host %s has no address", h.Name)
				}
				if _, err := top.Host(h.Name); err != nil {
					t.Fatal(err)
				}
			}
		}
		if top.Target(top.HTTP) == "" {
			t.Fatal("no target")
		}
	})
}

// FuzzRoleFlags reads what the flags of a role take: what is taken is written as
// a flag and read again the same.
func FuzzRoleFlags(f *testing.F) {
	for _, s := range []string{"lan=02:00:00:00:06:0b,192.0.2.11/24", "10.2.0.0/24=10.0.0.2", "::/0=fe80::1%eth0", "real-server", "nat", "=,", "a=2:0:0:0:0:0,1.2.3.4/33"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if n, err := testbed.ParseNIC(text); err == nil {
			if again, err := testbed.ParseNIC(n.Flag()); err != nil || again != n {
				t.Fatalf("NIC %q is read again as %v (%v)", n.Flag(), again, err)
			}
		}
		if r, err := testbed.ParseRoute(text); err == nil {
			if again, err := testbed.ParseRoute(r.Flag()); err != nil || again != r {
				t.Fatalf("route %q is read again as %v (%v)", r.Flag(), again, err)
			}
		}
		var role testbed.Role
		_ = role.UnmarshalText([]byte(text))
		var mode testbed.Mode
		_ = mode.UnmarshalText([]byte(text))
	})
}

// FuzzKeeper calls a keeper with anything: it answers in JSON, or not at all
// when the caller's first byte, which carries the files, does not come.
func FuzzKeeper(f *testing.F) {
	for _, s := range []string{
		"", "x", "x{}", `x{"status":true}`, `x{"down":true}`, `x{"exec":{"host":"client","args":["true"]}}{"signal":9}`,
		`x{"exec":{"host":"nobody","args":[]}}`, `x{"exec":null,"status":1}`,
	} {
		f.Add([]byte(s))
	}
	top, err := testbed.Load("nat")
	if err != nil {
		f.Fatal(err)
	}
	path := filepath.Join(f.TempDir(), "k")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { l.Close() })
	f.Fuzz(func(t *testing.T, said []byte) {
		if len(said) > 1<<14 {
			return
		}
		caller, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		defer caller.Close()
		keeper, err := l.AcceptUnix()
		if err != nil {
			t.Fatal(err)
		}
		deadline := time.Now().Add(10 * time.Second)
		caller.SetDeadline(deadline)
		keeper.SetDeadline(deadline)
		done := make(chan struct{})
		go func() {
			testbed.Call(context.Background(), &testbed.Lab{Topology: top}, keeper)
			keeper.Close()
			close(done)
		}()
		if _, err := caller.Write(said); err == nil {
			caller.CloseWrite()
		}
		answer, _ := io.ReadAll(caller)
		<-done
		for d := json.NewDecoder(bytes.NewReader(answer)); ; {
			var any map[string]any
			if err := d.Decode(&any); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%q was answered with %q: %v", said, answer, err)
			}
		}
	})
}

// FuzzProgress reads what a keeper tells while it builds its lab.
func FuzzProgress(f *testing.F) {
	f.Add([]byte("{\"step\":{}}\n{\"ready\":true}\n"))
	f.Add([]byte("{\"error\":\"no\"}\n"))
	f.Add([]byte("not JSON"))
	f.Fuzz(func(t *testing.T, said []byte) {
		if len(said) > 1<<12 {
			return // more than a pipe holds would block
		}
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		w.Write(said)
		w.Close()
		_ = testbed.Follow(context.Background(), r, func(testbed.Step) {})
	})
}

// FuzzTCPCounters reads the kernel's TCP counters.
func FuzzTCPCounters(f *testing.F) {
	f.Add([]byte("Ip: Forwarding\nIp: 1\nTcp: RtoAlgorithm OutSegs RetransSegs\nTcp: 1 7 2\n"))
	f.Add([]byte("Tcp: OutSegs\nTcp:\n"))
	f.Add([]byte("Tcp: OutSegs\nTcp: -1\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if sent, again, err := testbed.ParseTCPCounters(bytes.NewReader(text)); err != nil && sent+again > 0 && len(text) == 0 {
			t.Fatal(err)
		}
	})
}
