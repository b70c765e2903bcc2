package control_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"pktdirector/control"
)

// namedLive is live that notes who made it do something, also by ways that live does
// not note.
type namedLive struct {
	*live
	mu sync.Mutex
	by []string
}

func (n *namedLive) note(what, who string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.by = append(n.by, what+": "+who)
}

func (n *namedLive) Ipvsadm(line control.Line) control.Answer {
	n.note("ipvsadm", line.By)
	return n.live.Ipvsadm(line)
}

func (n *namedLive) SetStandby(who string, on bool) error {
	n.note("standby", who)
	return n.live.SetStandby(who, on)
}

func (n *namedLive) Reload(who string, _ bool) (control.ReloadReport, error) {
	n.note("reload", who)
	return control.ReloadReport{Drift: []control.DriftStep{}, Steps: []control.Step{}, Restart: []control.Fault{}}, nil
}

func (n *namedLive) Drift() (control.DriftReport, error) { return control.DriftReport{}, nil }

// Who changes something is named by whatever is known of it: the user and process at
// the other end of a unix socket, the subject of a certificate, or that it has the token.
func TestChangesNameTheirCaller(t *testing.T) {
	ours := newAuthority(t, "ours")
	cert, key := ours.sign(t, "director", false)
	clientCert, clientKey := ours.sign(t, "operator", false)
	token := filepath.Join(ours.dir, "token")
	write(t, token, []byte(testToken), 0o600)
	n := &namedLive{live: newLive()}
	path := filepath.Join(t.TempDir(), "s")
	s, err := control.Listen(path, n, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.ListenTCP(control.TCP{Listen: "127.0.0.1:0", Cert: cert, Key: key, ClientCA: ours.file, TokenFile: token}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	https := "https://" + s.TCPAddr().String()
	for i, c := range []struct {
		remote control.Remote
		want   string // how the name begins
	}{
		{control.Remote{Address: path}, fmt.Sprintf("uid %d, pid %d by the control socket", os.Getuid(), os.Getpid())},
		{control.Remote{Address: https, CA: ours.file, TokenFile: token}, "token from 127.0.0.1:"},
		{control.Remote{Address: https, CA: ours.file, Cert: clientCert, Key: clientKey}, "certificate of CN=operator from 127.0.0.1:"},
	} {
		n.by, n.told = nil, nil
		client, err := control.Dial(c.remote)
		if err != nil {
			t.Fatal(err)
		}
		done(t, "a service", true)(client.PutService(t.Context(), fmt.Sprintf("tcp-192.0.2.10-%d", 80+i), control.ServiceSpec{}))
		if _, err := client.Ipvsadm(t.Context(), control.Line{Args: []string{"-Z"}}); err != nil {
			t.Error(err)
		}
		if err := client.SetStandby(t.Context(), false); err != nil {
			t.Error(err)
		}
		if _, err := client.Reload(t.Context(), false); err != nil {
			t.Error(err)
		}
		n.mu.Lock()
		for _, what := range []string{"ipvsadm: ", "standby: ", "reload: "} {
			if !slices.ContainsFunc(n.by, func(by string) bool { return strings.HasPrefix(by, what+c.want) }) {
				t.Errorf("%s is told to be made by %q, want %q", what, n.by, c.want)
			}
		}
		if len(n.told) == 0 || !strings.Contains(n.told[0], c.want) {
			t.Errorf("a change is told to be made by %q, want %q", n.told, c.want)
		}
		n.mu.Unlock()
	}
}
