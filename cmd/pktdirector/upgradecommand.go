package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"pktdirector/control"
)

// newUpgradeCommand has a running director hand over to a new program.
func newUpgradeCommand() *cobra.Command {
	var director remote
	var dry, asJSON bool
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Have a running director hand over to the program that now stands in its place",
		Long: `Upgrade has the director start the program that now stands where its own did when it
started, with the same command line, and hand everything over: sockets, connections,
counters, and what was changed by hand. Then it ends. Connections go on; packets that come
meanwhile wait. Where the configuration file says otherwise than what the director had
loaded, the new program then loads it, as "pktdirector reload" does.

It prints both versions, the new process id, how many connections the new program goes on
with, and how long no packet was read. If anything goes wrong before the new program
forwards, that is ended, and the director goes on as it was. SIGUSR2 does the same. With
--dry-run the new program is asked whether it could take over, and ended.

Exit code 0: done, or with --dry-run it could be. 1: not upgraded; a director that runs goes on
as it was. 2: the command line makes no sense.`,
		Example: "  pktdirector upgrade --dry-run     could the new program take over?\n  pktdirector upgrade\n  pktdirector upgrade --json | jq .pause_ms",
		Args:    cobra.NoArgs,
		RunE: failing(func(cmd *cobra.Command, _ []string) error {
			client, err := director.client()
			if err != nil {
				return err
			}
			r, err := client.Upgrade(cmd.Context(), dry)
			if err != nil {
				p := (*control.Problem)(nil)
				if asJSON && errors.As(err, &p) {
					return errors.Join(writeIndented(cmd.OutOrStdout(), p), exitError{code: exitFailed})
				}
				return err
			}
			if asJSON {
				return writeIndented(cmd.OutOrStdout(), r)
			}
			if dry {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "version %s (process %d) could hand over to version %s\n", r.Old.Version, r.Old.PID, r.New.Version)
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "version %s (process %d) handed over to version %s (process %d): connections %d, templates %d, pause %.1f ms\n",
				r.Old.Version, r.Old.PID, r.New.Version, r.New.PID, r.Connections, r.Templates, r.PauseMS)
			return err
		}),
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only ask whether it could be done")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	director.addFlags(cmd)
	return cmd
}
