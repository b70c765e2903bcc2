package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
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
	"pktdirector/modes/fullnat"
	"pktdirector/modes/nat"
	"pktdirector/modes/tun"
)

// newRunCommand balances until it is told to stop.
func newRunCommand() *cobra.Command {
	var file string
	var verbose, fresh bool
	cmd := &cobra.Command{
		Use:   "run -c FILE",
		Short: "Balance as a configuration file says, until stopped",
		Long: `Run opens the links, keeps the host's kernel from handling the same packets, and
balances. It stops cleanly on SIGINT (Ctrl-C), SIGTERM, SIGQUIT, and when its terminal
closes, and takes back whatever it changed on the host. On SIGHUP, unless that is
ignored (nohup), it loads the file again, as "pktdirector reload" has it do; on SIGUSR2
it hands over to a new program, as "pktdirector upgrade" has it do. That the reader of
its log goes away does not stop it. It logs one line "ready" when it
forwards: as text on a terminal, as JSON elsewhere.

It goes on from the last snapshot that a director with the same configuration has
written, when that was stopped or while it was at work: with its connections and counters,
and with what was changed by hand, unless the file says otherwise. --fresh leaves it out.

Exit code 0: stopped as asked. 1: could not start, or a link failed. 2: the command
line makes no sense.`,
		Example: "  pktdirector run -c director.yaml\n  pktdirector run -v -c director.yaml 2> director.log\n  pktdirector run --fresh -c director.yaml",
		Args:    cobra.NoArgs,
		RunE: failing(func(cmd *cobra.Command, _ []string) error {
			ctx, stop := runSignals(cmd.Context())
			defer stop()
			log := newLogger(cmd.ErrOrStderr(), verbose)
			from, err := greet(ctx, log)
			if err != nil {
				return err
			}
			c, err := loadConfig(file)
			if err == nil {
				err = run(ctx, file, c, from, fresh, log)
			}
			return from.refuse(err)
		}),
	}
	addConfigFlag(cmd, &file)
	cmd.Flags().BoolVar(&fresh, "fresh", false, "begin as the configuration says, without the last snapshot: no connections, counters or changes by hand")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "log details, too")
	return cmd
}

// runSignals returns a context that ends, beside its parent, when a signal
// comes that would end the program and leave the host as the director had it.
func runSignals(parent context.Context) (context.Context, context.CancelFunc) {
	signal.Ignore(syscall.SIGPIPE) // writing the log fails then, and that is all
	return signal.NotifyContext(parent, syscall.SIGQUIT)
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
// in reverse order, before it returns. Where it is a successor, it takes it from its
// predecessor, and where it has one, it leaves all to it. fresh leaves the last snapshot
// out.
func run(ctx context.Context, file string, c *control.Config, from *predecessor, fresh bool, log *slog.Logger) (err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	hangups := listenForHangups()
	defer hangups.close()
	upgrades := listenForUpgrades()
	defer upgrades.close()

	held := &held{log: log, fresh: fresh}
	defer func() { err = errors.Join(err, held.release()) }()
	var beginning *begun
	if from == nil {
		beginning, err = held.take(ctx, c)
	} else {
		c, beginning, err = held.inherit(ctx, from, c)
	}
	if err != nil {
		return err
	}
	director := beginning.director
	started := time.Now()
	shown := &source{director: director, config: c, links: held.links, began: beginning.zero, started: started, events: newEvents(director)}
	admin := newAdministration(shown, held.plan, follower(held.plan, held.guard, held.claim), log)
	reloads, err := newReloader(file, c, admin, log)
	if err != nil {
		return err
	}
	shown.Admin, shown.Reloader = admin, reloads
	shown.kept = newSnapshots(c, beginning, shown, admin, reloads, log)
	if from == nil && (c.Standby || director.Standby()) {
		if err := shown.Admin.SetStandby("the configuration file", true); err != nil {
			return err
		}
	}
	exposed, err := expose(shown, log)
	if err != nil {
		return err
	}
	if err := held.listen(c, exposed); err != nil {
		return err
	}
	service := newSupervised(shown, c.Control, log)
	reloads.begins = service.reloading
	loop := link.NewLoop(director, service.links(), log, beginning.zero, func(w *dataplane.Worker) { publish(shown.events, w) })
	upgrader := &upgrader{held: held, loop: loop, kept: shown.kept, reloads: reloads, service: service, program: upgrades.program, run: ctx, stop: stop, log: log}
	shown.Upgrader = upgrader
	if from != nil {
		if err := from.ready(ctx, reloads); err != nil {
			return err
		}
		held.own()
	}
	held.serves = true
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error { return loop.Run(ctx) })
	work.Go(func() error { return held.watcher.Run(ctx) })
	work.Go(func() error { return tellMemory(ctx, director, host.AvailablePages, log) })
	work.Go(func() error { return held.api.Run(ctx) })
	if held.scraped != nil {
		work.Go(func() error { return held.scraped.Run(ctx) })
	}
	work.Go(func() error { return hangups.run(ctx, reloads, stop) })
	work.Go(func() error { return upgrades.run(ctx, upgrader) })
	work.Go(func() error { return reloads.watch(ctx) })
	work.Go(func() error {
		from.leaves(ctx, loop.Moving(), reloads)
		return service.run(ctx)
	})
	if shown.kept != nil {
		work.Go(func() error { return shown.kept.run(ctx) })
	}
	log.Info("ready", "services", len(director.Ruleset().Services), "links", len(held.links), "control", c.Control, "conn_max", director.Table().Max)
	err = work.Wait()
	if !held.left {
		shown.kept.last()
		log.Info("stopped", "after", time.Since(started).Round(time.Millisecond))
	}
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

// newDirector returns an engine that knows every forwarding method.
func newDirector(seed uint64, connMax int) *dataplane.Director {
	return dataplane.New(options(seed, connMax))
}

// historyNotes is how many decisions and state changes "explain" may look back on.
const historyNotes = 8192

func options(seed uint64, connMax int) dataplane.Options {
	return dataplane.Options{Seed: seed, ConnMax: connMax, History: historyNotes, Forwarders: dataplane.Forwarders{
		lvs.Masq: nat.Masq{}, lvs.FullNAT: fullnat.Both{}, lvs.Route: dr.Gateway{}, lvs.Tunnel: tun.New(seed),
	}}
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
	if l.Type != control.AFPacket {
		t, err := link.OpenTundev(l.Name, tundevOptions(l, log))
		if err != nil {
			return nil, err
		}
		return t, nil
	}
	a, err := link.OpenAFPacket(l.Name, afpacketOptions(l, log))
	if err != nil {
		return nil, err
	}
	return a, nil
}

func tundevOptions(l *control.Link, log *slog.Logger) link.TundevOptions {
	o := link.TundevOptions{Log: log}
	if l.Type == control.Local {
		o.Host, o.MTU = true, localMTU
	}
	return o
}

func afpacketOptions(l *control.Link, log *slog.Logger) link.AFPacketOptions {
	return link.AFPacketOptions{VLAN: l.VLAN, Slots: l.Ring.Slots, SlotSize: l.Ring.SlotSize, Log: log}
}

// localMTU is that of the device to the host's own sockets, bytes: every packet fits.
const localMTU = 65535

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
