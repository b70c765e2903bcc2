package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"pktdirector/capture"
	"pktdirector/capture/judge"
	"pktdirector/control"
)

// replayOptions are the flags of replay.
type replayOptions struct {
	json        bool
	list        int
	connections int
	scheduler   string
	config      string
	write       string
	explain     bool
	scenario    string
	anonymise   bool
}

// newReplayCommand reads captures.
func newReplayCommand() *cobra.Command {
	var o replayOptions
	cmd := &cobra.Command{
		Use:   "replay FILE...",
		Short: "Tell from a capture what a director did, and what went wrong",
		Long: `Replay reads a capture that was taken on a director, the kernel's or this one, and needs
no configuration, no privilege and no network. It pairs requests with what was
forwarded, names the method, the VIPs, the services, the real servers and which server
each connection got, and judges: each finding has a code (docs/debugging.md), names
packets by number and says what to check next; the likely cause comes first.

Give all files of one capture at once: the client side, the server side, or one of all
interfaces. pcap, pcapng, gzip and zstd are read; "-" is standard input.

With -c, the capture is also taken through a director of that configuration in the
capture's own time: what would it have done? Every route and neighbour resolves; where
the capture shows which servers connections got, picks are compared. -w writes what would
have left, each packet with a comment: of which one it comes, and why a new connection
got its server. A capture of client-side traffic alone is enough.

--to-scenario writes a scenario of the connections, which "pktdirector scenario check"
plays: a case of production becomes a test. --anonymise replaces the addresses in it.

Ctrl-C ends the reading and prints what is known so far.

Exit code 0: nothing is wrong, also where a file ends in the middle of a record, which a
note tells. 1: something was found, a pick differs from the capture's, or a file could
not be read to its end: what was read until then is judged, and an error names the
packet. 2: the command line makes no sense.`,
		Example: `  pktdirector replay both.pcapng
  pktdirector replay client-side.pcap server-side.pcap
  tcpdump -i any -w - port 80 | pktdirector replay -
  pktdirector replay --json any.pcap
  pktdirector replay clients.pcap -c director.yaml -w left.pcapng
  pktdirector replay both.pcapng --to-scenario case.json --anonymise`,
		Args: cobra.MinimumNArgs(1),
		RunE: failing(func(cmd *cobra.Command, args []string) error {
			if o.connections < 1 {
				return usageError(fmt.Errorf("--connections %d: write 1 or more", o.connections))
			}
			if o.config == "" && (o.write != "" || o.explain) {
				return usageError(errors.New("-w and --explain tell what a configuration would do: give it by -c"))
			}
			if o.anonymise && o.scenario == "" {
				return usageError(errors.New("--anonymise belongs to --to-scenario"))
			}
			if o.config != "" || o.scenario != "" {
				if err := checkTwice(args); err != nil {
					return err
				}
			}
			return judgeFiles(cmd, args, &o)
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&o.json, "json", false, "print JSON")
	f.IntVar(&o.list, "list", 20, "list so many connections; -1: all")
	f.IntVar(&o.connections, "connections", judge.DefaultConnections, "judge so many connections at most, some 1 kB of memory each")
	f.StringVarP(&o.config, "config", "c", "", "play the capture through this configuration, too")
	f.StringVarP(&o.write, "write", "w", "", "write what would have left the director into this pcapng file")
	f.BoolVar(&o.explain, "explain", false, "with -c: how each new connection's real server is chosen")
	f.StringVar(&o.scenario, "to-scenario", "", "write a scenario of the connections into this file")
	f.BoolVar(&o.anonymise, "anonymise", false, "replace the scenario's addresses, subnets staying subnets")
	f.StringVar(&o.scheduler, "scheduler", "", "complain when this scheduler does not explain the picks")
	return cmd
}

// judgeFiles judges the files of one capture.
func judgeFiles(cmd *cobra.Command, files []string, o *replayOptions) error {
	var config *control.Config
	var err error
	if o.config != "" { // what is wrong with it is said before hours are spent
		if config, err = control.Load(o.config); err != nil {
			return err
		}
	}
	report, readErr := judged(cmd.Context(), files, o, newProgress(os.Stderr))
	if report == nil {
		return readErr
	}
	var res *played
	if config != nil && readErr == nil {
		if res, err = playFiles(cmd.Context(), files, o, config, report); res == nil {
			return err
		}
	}
	said := ""
	if o.scenario != "" && readErr == nil {
		var failed error
		said, failed = writeScenario(cmd.Context(), files, o, config, report, res)
		err = errors.Join(err, failed)
	}
	if o.json {
		e := json.NewEncoder(cmd.OutOrStdout())
		e.SetIndent("", "  ")
		err = errors.Join(err, e.Encode(struct {
			*judge.Report
			Played *played `json:"played,omitempty"`
		}{report, res}))
	} else {
		list := o.list
		if res != nil {
			list = 0 // the picks are listed
		}
		err = errors.Join(err, report.Print(cmd.OutOrStdout(), judge.PrintOptions{Connections: list}))
		if res != nil {
			err = errors.Join(err, res.print(cmd.OutOrStdout(), o))
		}
	}
	if said != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), said)
	}
	if err = errors.Join(err, readErr); err == nil && (len(report.Findings) > 0 || res != nil && res.Same < res.Compared) {
		return exitError{code: exitFailed}
	}
	return err
}

// judged reads files to their end, or until ctx ends. The report is of what was
// read, also where an error is returned with it.
func judged(ctx context.Context, files []string, o *replayOptions, progress func(read, total int64)) (*judge.Report, error) {
	r, err := capture.Open(files, capture.Options{Progress: progress})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	j := judge.New(judge.Options{Connections: o.connections, Files: files, Scheduler: o.scheduler})
	err = eachRecord(ctx, r, j.Add)
	report := j.Report()
	for _, w := range r.Warnings() {
		report.Notes = append(report.Notes, w.String())
	}
	return report, err
}

// eachRecord hands every packet to take.
func eachRecord(ctx context.Context, r *capture.Reader, take func(*capture.Record)) error {
	var rec capture.Record
	const often = 1024 // packets
	for n := 0; ; n++ {
		if n%often == 0 && ctx.Err() != nil {
			return errors.New("interrupted: what is said is about the packets read until then")
		}
		if err := r.Next(&rec); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		take(&rec)
	}
}

// newProgress returns what shows on a terminal how far a long file was read; nil
// where w is none.
func newProgress(w *os.File) func(read, total int64) {
	if info, err := w.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	began, shown := time.Now(), time.Time{}
	return func(read, total int64) {
		const quiet, pause = 2 * time.Second, 200 * time.Millisecond
		now := time.Now()
		end := read == total && !shown.IsZero()
		if now.Sub(began) < quiet || now.Sub(shown) < pause && !end {
			return
		}
		shown = now
		const mib = 1 << 20
		if total > 0 {
			fmt.Fprintf(w, "\r%d of %d MiB (%d %%), %.0f MiB/s ", read/mib, total/mib, read*100/total, float64(read/mib)/now.Sub(began).Seconds())
		} else {
			fmt.Fprintf(w, "\r%d MiB, %.0f MiB/s ", read/mib, float64(read/mib)/now.Sub(began).Seconds())
		}
		if end {
			fmt.Fprint(w, "\r\x1b[K")
		}
	}
}
