package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"pktdirector/control"
)

// Exit codes of reload and drift beside those of all commands.
const (
	exitRestart = 3 // the file asks for what only a start can do
	exitDiffers = 4 // there is something to do, or to see
)

// newReloadCommand has a running director load its configuration file again.
func newReloadCommand() *cobra.Command {
	var director remote
	var dry, asJSON bool
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Have a running director load its configuration file again",
		Long: `Reload has the director compare its configuration file as it was loaded, as it is
now, and what it does, and change what is different: in place, so that no connection
is lost. All of it is done, or nothing. It prints what it did, one line each:

  + added   ~ changed   - removed   ! changed by hand since the file was loaded

What was changed by hand, by ipvsadm's commands or through the API, becomes what the
file says again; with "drift: keep" in the file it stays unless the file changed the
same. With --dry-run nothing is done. SIGHUP does the same; with "watch: true" in the
file, a change of the file does.

Exit code 0: done, or nothing to do. 1: refused or failed, nothing was changed. 2: the
command line makes no sense. 3: the file changes what no reload can, nothing was
changed. 4: with --dry-run, there is something to do.`,
		Example: "  pktdirector reload --dry-run     what would change\n  pktdirector reload\n  pktdirector reload --json | jq .steps",
		Args:    cobra.NoArgs,
		RunE: failing(func(cmd *cobra.Command, _ []string) error {
			client, err := director.client()
			if err != nil {
				return err
			}
			report, err := client.Reload(cmd.Context(), dry)
			if err != nil {
				return reloadRefused(cmd, err, asJSON)
			}
			if asJSON {
				err = writeIndented(cmd.OutOrStdout(), report)
			} else {
				err = writeReport(cmd.OutOrStdout(), report)
			}
			switch {
			case err != nil:
				return err
			case len(report.Restart) > 0:
				return exitError{code: exitRestart}
			case dry && len(report.Steps) > 0:
				return exitError{code: exitDiffers}
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only print what would be done")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	director.addFlags(cmd)
	return cmd
}

// reloadRefused says why; as JSON, a problem as the API has it.
func reloadRefused(cmd *cobra.Command, err error, asJSON bool) error {
	p := (*control.Problem)(nil)
	if !errors.As(err, &p) {
		return err
	}
	code := exitFailed
	if p.Status == http.StatusConflict {
		code = exitRestart
	}
	if asJSON {
		return errors.Join(writeIndented(cmd.OutOrStdout(), p), exitError{code: code})
	}
	return exitError{code: code, err: fmt.Errorf("not reloaded, nothing was changed:\n%w", p)}
}

// writeReport prints what a reload did or would do.
func writeReport(out io.Writer, report control.ReloadReport) error {
	if err := control.WritePlan(out, report.Drift, report.Steps); err != nil {
		return err
	}
	for _, f := range report.Restart {
		if _, err := fmt.Fprintf(out, "x %s\n", f); err != nil {
			return err
		}
	}
	if len(report.Drift)+len(report.Steps)+len(report.Restart) == 0 {
		_, err := fmt.Fprintln(out, "nothing to do")
		return err
	}
	return nil
}

// newDriftCommand shows what was changed by hand.
func newDriftCommand() *cobra.Command {
	var director remote
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "drift",
		Short: "Show what was changed by hand since the configuration file was loaded",
		Long: `Drift compares what the director does with its configuration file as it was loaded,
and prints what ipvsadm's commands, or others through the API, have made different.
"pktdirector reload --dry-run" tells what a reload would make of it.

Exit code 0: nothing. 1: the director could not be asked. 2: the command line makes no
sense. 4: there is something.`,
		Example: "  pktdirector drift\n  pktdirector drift --json",
		Args:    cobra.NoArgs,
		RunE: failing(func(cmd *cobra.Command, _ []string) error {
			client, err := director.client()
			if err != nil {
				return err
			}
			report, err := client.Drift(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				err = writeIndented(cmd.OutOrStdout(), report)
			} else {
				err = control.WritePlan(cmd.OutOrStdout(), report.Drift, nil)
			}
			if err == nil && len(report.Drift) > 0 {
				return exitError{code: exitDiffers}
			}
			return err
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	director.addFlags(cmd)
	return cmd
}

// writeIndented prints JSON for people, too.
func writeIndented(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
