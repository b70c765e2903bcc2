package control_test

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"

	"pktdirector/conntrack"
	"pktdirector/control"
	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/modes/dr"
	"pktdirector/modes/fullnat"
	"pktdirector/modes/nat"
	"pktdirector/modes/tun"
)

// live is a Source over a director that forwards nothing.
type live struct {
	control.Source // what a test does not ask for
	*dataplane.Director
	mu     sync.Mutex
	told   []string // what changed, by whom
	events *control.Events
	refuse error // of Apply, once it is done: the host could not follow
}

func newLive() *live {
	return &live{events: control.NewEvents(nil), Director: dataplane.New(dataplane.Options{
		Shards:     1,
		Forwarders: dataplane.Forwarders{lvs.Masq: nat.Masq{}, lvs.Route: dr.Gateway{}, lvs.Tunnel: tun.New(1), lvs.FullNAT: fullnat.Both{}},
	})}
}

func (l *live) Status() control.Status {
	s := control.Status{
		Services: control.ServicesOf(l.Director.Status()), Links: []control.LinkState{}, Verdicts: []control.Verdict{},
	}
	s.Stats, s.Rates = l.Totals()
	return s
}

func (l *live) Connections(conntrack.Filter, func(control.Connection) bool) {}

func (l *live) EndConnections(who string, f conntrack.Filter, dry bool) (control.Ended, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told = append(l.told, who+" ends "+control.ConnQuery{Filter: f}.Values().Encode())
	connections, templates := l.EndConns(f, dry)
	return control.Ended{Connections: connections, Templates: templates, DryRun: dry}, nil
}

func (l *live) Ruleset() lvs.Ruleset    { return l.Director.Ruleset() }
func (l *live) Links() []control.Link   { return []control.Link{{Name: "eth0", Type: control.AFPacket}} }
func (l *live) Events() *control.Events { return l.events }
func (l *live) Standby() bool           { return l.Director.Standby() }

func (l *live) SetStandby(_ string, on bool) error { l.Director.SetStandby(on); return nil }

func (l *live) Ipvsadm(line control.Line) control.Answer {
	l.mu.Lock()
	defer l.mu.Unlock()
	return (&control.Commander{Director: l.Director, Connections: func(func(control.Connection) bool) {}}).Do(line.Args, line.Stdin)
}

func (l *live) Edit(who string, change func(lvs.Ruleset) (lvs.Ruleset, []string, error)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	next, words, err := change(l.Director.Ruleset())
	if err != nil || len(words) == 0 {
		return err
	}
	for _, w := range words {
		l.told = append(l.told, who+": "+w)
	}
	if l.refuse != nil {
		return l.refuse
	}
	return l.Apply(next)
}

func (l *live) Zero(_ string, k *lvs.ServiceKey) error {
	if k == nil {
		l.ZeroAll()
		return nil
	}
	return l.ZeroCounters(*k)
}

// serveLive runs an API over a director of its own.
func serveLive(t *testing.T) (*live, *control.Client, string) {
	t.Helper()
	l := newLive()
	path := t.TempDir() + "/d.sock"
	t.Cleanup(serve(t, path, l))
	return l, control.NewClient(path), path
}

// unixClient asks whoever listens at path.
func unixClient(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
}
