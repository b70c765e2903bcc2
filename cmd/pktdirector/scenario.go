package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"pktdirector/sim"
)

// newScenarioCommand plays scenarios.
func newScenarioCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "scenario",
		Short:   "Play scripts of commands, packets and pauses in virtual time",
		Example: "  pktdirector scenario run docs/scenarios/wlc-fast-failure.json\n  pktdirector scenario check docs/scenarios",
		Long: `A scenario is a file with ipvsadm commands, packets and pauses, and with what each
of them leads to. It is played on a whole director with a small network around it,
in virtual time: hours pass in a moment, nothing of this host is touched, and no
privilege is needed. docs/scenarios.md describes the format.`,
	}
	cmd.AddCommand(newScenarioRunCommand(), newScenarioCheckCommand())
	return cmd
}

func newScenarioRunCommand() *cobra.Command {
	var o sim.Options
	cmd := &cobra.Command{
		Use:   "run FILE",
		Short: "Play a scenario and show what happens, event by event",
		Example: `  pktdirector scenario run docs/scenarios/wlc-fast-failure.json
  pktdirector scenario run --explain my.json     with every candidate of every decision`,
		Args: cobra.ExactArgs(1),
		RunE: failing(func(cmd *cobra.Command, args []string) error {
			if err := checkWorkers(&o); err != nil {
				return err
			}
			s, err := sim.Load(args[0])
			if err != nil {
				return err
			}
			return playScenario(cmd.OutOrStdout(), s, o)
		}),
	}
	cmd.Flags().BoolVar(&o.Explain, "explain", false, "show how each new connection's real server was chosen")
	addScenarioFlags(cmd, &o)
	return cmd
}

func addScenarioFlags(cmd *cobra.Command, o *sim.Options) {
	cmd.Flags().IntVar(&o.Workers, "workers", 1, "play the events on so many workers by turns")
	cmd.Flags().Uint64Var(&o.Seed, "seed", 1, "the engine's seed, for schedulers that draw at random")
}

// mostWorkers is more than any machine runs a director on.
const mostWorkers = 1024

func checkWorkers(o *sim.Options) error {
	if o.Workers < 1 || o.Workers > mostWorkers {
		return usageError(fmt.Errorf("--workers %d: write 1 to %d", o.Workers, mostWorkers))
	}
	return nil
}

func playScenario(w io.Writer, s *sim.Scenario, o sim.Options) error {
	p, err := sim.NewPlayer(s, o)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "%s: %s\n", s.ID, s.Title); err != nil {
		return err
	}
	before := sim.Result{}
	for i, e := range s.Events {
		got, err := p.Play(e)
		if err != nil {
			return fmt.Errorf("event %d (%s): %w", i, e, err)
		}
		if _, err := fmt.Fprintf(w, "%9.3f %s\n", p.Now().Seconds(), e); err != nil {
			return err
		}
		for j := range p.Decisions {
			if err := sim.PrintDecision(w, &p.Decisions[j]); err != nil {
				return err
			}
		}
		if err := sim.PrintResult(w, e, &got, &before); err != nil {
			return err
		}
	}
	return nil
}

func newScenarioCheckCommand() *cobra.Command {
	var o sim.Options
	var record, conns bool
	cmd := &cobra.Command{
		Use:   "check FILE|DIR...",
		Short: "Compare what happens with what scenarios record",
		Long: `Check plays the scenarios up to their first difference from the record. It prints
each difference, expected and got side by side, and a count for each group of
scenarios (the part of their id before the first hyphen).

With --record it writes what happens into the files instead.

Exit code 0: all is as recorded. 1: there is a difference, or a file cannot be
played. 2: the command line makes no sense.`,
		Example: `  pktdirector scenario check docs/scenarios
  pktdirector scenario check --record my.json    from now on, this is what is expected`,
		Args: cobra.MinimumNArgs(1),
		RunE: failing(func(cmd *cobra.Command, args []string) error {
			if conns && !record {
				return usageError(fmt.Errorf("--conns belongs to --record"))
			}
			if err := checkWorkers(&o); err != nil {
				return err
			}
			files, err := scenarioFiles(args)
			if err != nil {
				return err
			}
			if record {
				return recordScenarios(cmd.OutOrStdout(), files, o, conns)
			}
			return checkScenarios(cmd.OutOrStdout(), files, o)
		}),
	}
	cmd.Flags().BoolVar(&record, "record", false, "write what happens into the files")
	cmd.Flags().BoolVar(&conns, "conns", false, "with --record: the connection table after every event, too")
	addScenarioFlags(cmd, &o)
	return cmd
}

// scenarioFiles lists the files named and those in the folders named.
func scenarioFiles(args []string) ([]string, error) {
	var files []string
	for _, arg := range args {
		info, err := os.Stat(arg)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			files = append(files, arg)
			continue
		}
		inside, err := filepath.Glob(filepath.Join(arg, "*.json"))
		if err != nil {
			return nil, err
		}
		if len(inside) == 0 {
			return nil, fmt.Errorf("%s: no scenarios (*.json) are there", arg)
		}
		files = append(files, inside...)
	}
	return files, nil
}

func checkScenarios(w io.Writer, files []string, o sim.Options) error {
	type count struct{ right, all int }
	groups := map[string]*count{}
	o.Explain = true
	failed := false
	for _, file := range files {
		group, right := sim.GroupOf(strings.TrimSuffix(filepath.Base(file), ".json")), false
		s, err := sim.Load(file)
		if err != nil {
			if _, err := fmt.Fprintln(w, err); err != nil {
				return err
			}
		} else {
			group = sim.GroupOf(s.ID)
			r := sim.Check(s, o)
			if right = r.OK(); !right {
				if err := r.Print(w); err != nil {
					return err
				}
			}
		}
		if groups[group] == nil {
			groups[group] = &count{}
		}
		groups[group].all++
		if right {
			groups[group].right++
		}
		failed = failed || !right
	}
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		if _, err := fmt.Fprintf(w, "%s %d/%d\n", group, groups[group].right, groups[group].all); err != nil {
			return err
		}
	}
	if failed {
		return exitError{code: exitFailed}
	}
	return nil
}

func recordScenarios(w io.Writer, files []string, o sim.Options, conns bool) error {
	for _, file := range files {
		s, err := sim.Load(file)
		if err != nil {
			return err
		}
		if s, err = sim.Record(s, o, conns); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		b, err := s.Marshal()
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err := os.WriteFile(file, b, 0o644); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "%s: %d events recorded\n", file, len(s.Events)); err != nil {
			return err
		}
	}
	return nil
}
