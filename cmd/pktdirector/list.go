package main

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"pktdirector/control"
)

// newListCommand shows what a running director balances.
func newListCommand() *cobra.Command {
	var socket string
	var asJSON, connections, stats, rate, verdicts bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show what a running director balances, as \"ipvsadm -Ln\" prints it",
		Example: `  pktdirector list                services and real servers, as ipvsadm -Ln
  pktdirector list --stats        with counters, as ipvsadm -Ln --stats
  pktdirector list --rate         with rates a second, as ipvsadm -Ln --rate
  pktdirector list -c             connections, as ipvsadm -Lcn
  pktdirector list --verdicts     how many packets ended in which way
  pktdirector list --json         all of it for programs`,
		Args: cobra.NoArgs,
		RunE: failing(func(cmd *cobra.Command, _ []string) error {
			client, out := control.NewClient(socket), cmd.OutOrStdout()
			printJSON := func(v any) error {
				e := json.NewEncoder(out)
				e.SetIndent("", "  ")
				return e.Encode(v)
			}
			if connections {
				conns, err := client.Connections(cmd.Context())
				switch {
				case err != nil:
					return err
				case asJSON:
					return printJSON(append([]control.Connection{}, conns...)) // [] rather than null
				}
				return control.WriteConnections(out, conns)
			}
			status, err := client.Status(cmd.Context())
			switch {
			case err != nil:
				return err
			case asJSON:
				return printJSON(status)
			case verdicts:
				return control.WriteVerdicts(out, status.Verdicts)
			case rate:
				return control.WriteRates(out, status)
			case stats:
				return control.WriteStats(out, status)
			}
			return control.WriteList(out, status)
		}),
	}
	cmd.Flags().BoolVarP(&connections, "connections", "c", false, "show the connections")
	cmd.Flags().BoolVar(&stats, "stats", false, "show the services' counters")
	cmd.Flags().BoolVar(&rate, "rate", false, "show the services' rates a second")
	cmd.Flags().BoolVar(&verdicts, "verdicts", false, "show how many packets ended in which way")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&socket, "control", control.DefaultSocket, "the director's control socket")
	cmd.MarkFlagsMutuallyExclusive("connections", "stats", "rate", "verdicts")
	return cmd
}
