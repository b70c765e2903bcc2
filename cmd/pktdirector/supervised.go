package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"pktdirector/control"
	"pktdirector/dataplane"
	"pktdirector/dataplane/link"
	"pktdirector/systemd"
)

// supervised is the director as its service manager sees it.
type supervised struct {
	manager *systemd.Manager
	pulse   link.Pulse
	shown   *source
	api     *control.Client
	left    atomic.Bool // to another process, which tells the manager from now on
}

// newSupervised returns a service whose API listens at socket.
func newSupervised(shown *source, socket string, log *slog.Logger) *supervised {
	return &supervised{manager: systemd.New(log), shown: shown, api: control.NewClient(socket)}
}

// links are the source's, so that the service notices whether they are used.
func (s *supervised) links() []dataplane.Link { return s.pulse.Links(s.shown.links) }

// run tells the manager that the director forwards, what it does and that it is
// alive, until ctx ends; then that it stops.
func (s *supervised) run(ctx context.Context) error {
	s.manager.Ready(s.status())
	defer func() {
		if !s.left.Load() {
			s.manager.Stopping("giving back what was taken from the host")
		}
	}()
	return s.manager.Run(ctx, s.status, s.alive)
}

// leave tells the manager that the process pid is the director from now on.
func (s *supervised) leave(pid int) {
	s.left.Store(true)
	s.manager.MainPID(pid)
}

// reloading tells the manager that the configuration is being loaded again, and
// returns what tells it that the director goes on, whatever came of it.
func (s *supervised) reloading() (ended func()) {
	s.manager.Reloading("loading the configuration again")
	return func() { s.manager.Ready(s.status()) }
}

// status says in a line what the director does.
func (s *supervised) status() string {
	table, servers := s.shown.director.Table(), 0
	services := s.shown.director.Status()
	for _, one := range services {
		servers += len(one.Destinations)
	}
	doing := "forwarding"
	if s.shown.director.Standby() {
		doing = "standing by"
	}
	line := fmt.Sprintf("%s: services %d, servers %d, connections %d of at most %d", doing, len(services), servers, table.Connections, table.Max)
	switch kept := s.shown.kept.State(); {
	case kept == nil:
	case kept.Error != "":
		line += "; the snapshot cannot be written"
	case !kept.Written.IsZero():
		line += fmt.Sprintf("; snapshot of %s, %d bytes", kept.Written.Format(time.TimeOnly), kept.Bytes)
	}
	return line
}

// alive returns nil when the receive queues were read and the timers ran since it
// was last called, and the API answers a request for which it reads the state of
// each service and link.
func (s *supervised) alive(ctx context.Context) error {
	_, err := s.api.Health(ctx)
	return errors.Join(s.pulse.Check(), err)
}
