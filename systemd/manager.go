package systemd

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// statusEvery is how often the line of text is brought up to date where no
// watchdog sets the pace.
const statusEvery = 10 * time.Second

// Manager is the service manager that started the process, as sd_notify(3)
// describes: NOTIFY_SOCKET is a path, or a name of the abstract namespace after @.
type Manager struct {
	log   *slog.Logger
	shown string // the last line of text; of Run's goroutine
}

// New returns the service manager that the environment names.
func New(log *slog.Logger) *Manager { return &Manager{log: log} }

// Ready says that the director forwards, at its start and after a reload.
func (m *Manager) Ready(status string) { m.tell(daemon.SdNotifyReady, statusLine(status)) }

// Reloading says that the configuration is about to be read anew. Ready must
// follow, whatever comes of it.
func (m *Manager) Reloading(status string) {
	now, err := monotonic()
	if err != nil {
		m.log.Warn("the service manager cannot be told of the reload", "error", err)
		return
	}
	m.tell(daemon.SdNotifyReloading, fmt.Sprintf("MONOTONIC_USEC=%d", now.Microseconds()), statusLine(status))
}

// Stopping says that the director is about to end.
func (m *Manager) Stopping(status string) { m.tell(daemon.SdNotifyStopping, statusLine(status)) }

// MainPID says that the process pid is the director from now on. The present one
// has to say so, since its successor is nobody yet; the successor says Ready.
func (m *Manager) MainPID(pid int) { m.tell(fmt.Sprintf("MAINPID=%d", pid)) }

// Environment returns env for a successor: the watchdog expects to hear from it,
// whatever its process id. With WATCHDOG_PID, only the process that the manager
// started would feel meant.
func Environment(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(v string) bool { return strings.HasPrefix(v, "WATCHDOG_PID=") })
}

// Run keeps the line of text up to date and, where the manager has a watchdog, says
// that the director is alive each time that alive returns nil. It returns nil when
// ctx ends. alive is to look for evidence, and to end with its context.
func (m *Manager) Run(ctx context.Context, status func() string, alive func(context.Context) error) error {
	limit, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return fmt.Errorf("watchdog: WATCHDOG_USEC or WATCHDOG_PID: %w", err)
	}
	every := statusEvery
	if limit > 0 {
		every = min(every, limit/4)
	}
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		if limit > 0 {
			m.watch(ctx, every, alive)
		}
		if s := status(); s != m.shown {
			m.tell(statusLine(s))
			m.shown = s
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

// watch says that the director is alive if that can be seen.
func (m *Manager) watch(ctx context.Context, within time.Duration, alive func(context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := alive(ctx)
	switch {
	case err == nil:
		m.tell(daemon.SdNotifyWatchdog)
	case context.Cause(ctx) != context.Canceled:
		m.log.Error("the watchdog is not told that the director is alive", "error", err)
	}
}

// tell sends lines to the manager. That it does not listen is no reason to stop
// forwarding.
func (m *Manager) tell(lines ...string) {
	if _, err := daemon.SdNotify(false, strings.Join(lines, "\n")); err != nil {
		m.log.Warn("the service manager cannot be told", "what", lines[0], "error", err)
	}
}

// statusLine is one line, as the protocol needs it.
func statusLine(s string) string { return "STATUS=" + strings.Join(strings.Fields(s), " ") }
