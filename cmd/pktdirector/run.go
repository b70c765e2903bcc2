package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"pktdirector/conntrack"
	"pktdirector/control"
	"pktdirector/dataplane"
	"pktdirector/dataplane/link"
	"pktdirector/host"
	"pktdirector/lvs"
	"pktdirector/modes/dr"
	"pktdirector/modes/nat"
	"pktdirector/modes/tun"
)

// newRunCommand balances until it is told to stop.
func newRunCommand() *cobra.Command {
	var file string
	var verbose bool
	cmd := &cobra.Command{
		Use:   "run -c FILE",
		Short: "Balance as a configuration file says, until stopped",
		Long: `Run opens the links, keeps the host's kernel from handling the same packets, and
balances. It stops cleanly on SIGINT (Ctrl-C), SIGTERM, SIGQUIT, and SIGHUP unless
that is ignored (nohup), and takes back whatever it changed on the host. That the
reader of its log goes away does not stop it. It logs one line "ready" when it forwards: as text on a
terminal, as JSON elsewhere.

Exit code 0: stopped as asked. 1: could not start, or a link failed. 2: the command
line makes no sense.`,
		Example: "  pktdirector run -c director.yaml\n  pktdirector run -v -c director.yaml 2> director.log",
		Args:    cobra.NoArgs,
		RunE: failing(func(cmd *cobra.Command, _ []string) error {
			c, err := loadConfig(file)
			if err != nil {
				return err
			}
			ctx, stop := runSignals(cmd.Context())
			defer stop()
			return run(ctx, c, newLogger(cmd.ErrOrStderr(), verbose))
		}),
	}
	addConfigFlag(cmd, &file)
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "log details, too")
	return cmd
}

// runSignals returns a context that ends, beside its parent, when a signal
// comes that would end the program and leave the host as the director had it.
func runSignals(parent context.Context) (context.Context, context.CancelFunc) {
	signal.Ignore(syscall.SIGPIPE) // writing the log fails then, and that is all
	stopping := []os.Signal{syscall.SIGQUIT}
	if !signal.Ignored(syscall.SIGHUP) {
		stopping = append(stopping, syscall.SIGHUP)
	}
	return signal.NotifyContext(parent, stopping...)
}

// newLogger logs text to a terminal and JSON elsewhere.
func newLogger(w io.Writer, verbose bool) *slog.Logger {
	o := &slog.HandlerOptions{Level: slog.LevelInfo}
	if verbose {
		o.Level = slog.LevelDebug
	}
	if f, ok := w.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			return slog.New(slog.NewTextHandler(w, o))
		}
	}
	o.ReplaceAttr = durationText
	return slog.New(slog.NewJSONHandler(w, o))
}

// durationText writes durations as people do, 1.3s, where JSON would have a
// number of nanoseconds.
func durationText(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		return slog.String(a.Key, a.Value.Duration().String())
	}
	return a
}

// run is the director's life: everything it takes from the host it gives back,
// in reverse order, before it returns.
func run(ctx context.Context, c *control.Config, log *slog.Logger) (err error) {
	undo := func(release func() error) { err = errors.Join(err, release()) }

	defer stateFolder(filepath.Dir(c.Control))()
	claim, done, err := host.TakeClaim(filepath.Dir(c.Control))
	for _, d := range done {
		log.Info("a director that was killed left something behind: " + d)
	}
	if err != nil {
		return err
	}
	defer undo(claim.Release)

	plan := planOf(c)
	findings, err := host.Check(ctx, plan)
	if err != nil {
		return err
	}
	logFindings(log, findings)

	director := newDirector(rand.Uint64(), connMax(host.Memory()))
	if err := configure(director, c); err != nil {
		return err
	}
	links, err := openLinks(c, log)
	defer func() {
		for _, l := range links {
			undo(l.Close)
		}
	}()
	if err != nil {
		return err
	}
	director.SetLinks(infos(links))

	watcher, err := host.NewWatcher(plan.Links, plan.Static, director, log)
	if err != nil {
		return err
	}
	defer undo(watcher.Close)
	guard, err := startGuard(plan, log)
	if err != nil {
		return err
	}
	if guard != nil {
		defer undo(guard.Close)
	}
	for _, l := range plan.Links {
		if l.Tundev {
			if err := claim.Steer(l.Name, c.Ruleset); err != nil {
				return err
			}
		}
	}
	watcher.Keep(claim)
	began := time.Now()
	api, err := control.Listen(c.Control, &source{director: director, config: c, links: links, began: began}, log)
	if err != nil {
		return err
	}
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error { return link.Run(ctx, director, links, log) })
	work.Go(func() error { return watcher.Run(ctx) })
	work.Go(func() error { return api.Run(ctx) })
	log.Info("ready", "services", len(c.Ruleset.Services), "links", len(links), "control", c.Control, "conn_max", director.Table().Max)
	err = work.Wait()
	log.Info("stopped", "after", time.Since(began).Round(time.Millisecond))
	return err
}

// stateFolder returns what removes the state folder again when nobody needs it
// any more: when it is empty, and either not there yet or the program's own.
func stateFolder(dir string) (remove func()) {
	if _, err := os.Stat(dir); err == nil && dir != filepath.Dir(control.DefaultSocket) {
		return func() {}
	}
	return func() { _ = syscall.Rmdir(dir) } // refused unless it is empty
}

// newDirector returns an engine that knows all three forwarding methods.
func newDirector(seed uint64, connMax int) *dataplane.Director {
	return dataplane.New(dataplane.Options{Seed: seed, ConnMax: connMax, Forwarders: dataplane.Forwarders{
		lvs.Masq: nat.Masq{}, lvs.Route: dr.Gateway{}, lvs.Tunnel: tun.New(seed),
	}})
}

// configure makes what the file says live.
func configure(director *dataplane.Director, c *control.Config) error {
	for _, s := range c.Sysctl {
		if err := director.SetTunable(s.Name, s.Value); err != nil {
			return fmt.Errorf("%s: %w", s.At, err)
		}
	}
	director.SetTimeouts(c.Timeouts.TCP, c.Timeouts.TCPFin, c.Timeouts.UDP)
	return director.Apply(c.Ruleset)
}

// connMax returns how many connections a host of so much memory gets: an
// eighth of it, in bytes, is for the connection table and as much for that of
// templates.
func connMax(memory uint64) int {
	return int(min(max(memory/8/conntrack.BytesPerEntry, 1<<16), 1<<24))
}

// openLinks opens the configured links; on an error it returns those that it
// has opened, too.
func openLinks(c *control.Config, log *slog.Logger) ([]dataplane.Link, error) {
	var links []dataplane.Link
	for i := range c.Links {
		l, err := openLink(&c.Links[i], log)
		if err != nil {
			return links, err
		}
		links = append(links, l)
	}
	return links, nil
}

func openLink(l *control.Link, log *slog.Logger) (dataplane.Link, error) {
	if l.Type == control.Tundev {
		t, err := link.OpenTundev(l.Name, link.TundevOptions{Log: log})
		if err != nil {
			return nil, err
		}
		return t, nil
	}
	a, err := link.OpenAFPacket(l.Name, link.AFPacketOptions{VLAN: l.VLAN, Slots: l.Ring.Slots, SlotSize: l.Ring.SlotSize, Log: log})
	if err != nil {
		return nil, err
	}
	return a, nil
}

func infos(links []dataplane.Link) []dataplane.LinkInfo {
	all := make([]dataplane.LinkInfo, len(links))
	for i, l := range links {
		all[i] = l.Info()
	}
	return all
}

// startGuard keeps the host off the director's packets. Where that cannot be
// done, the director goes on without if the host would not touch them anyway:
// it has none of the VIPs and does not forward.
func startGuard(plan host.Plan, log *slog.Logger) (*host.Guard, error) {
	g, err := host.NewGuard()
	if err == nil {
		if err = g.Apply(host.RulesFor(plan.Links, plan.Rules)); err == nil {
			return g, nil
		}
		err = errors.Join(err, g.Close())
	}
	if errors.Is(err, host.ErrOtherDirector) {
		return nil, err
	}
	why, touches := host.Touches(plan)
	if touches {
		return nil, fmt.Errorf("the host cannot be kept off the director's packets, and %s: %w", why, err)
	}
	log.Warn("the host cannot be kept off the director's packets; it does not touch them now", "error", err)
	return nil, nil
}
