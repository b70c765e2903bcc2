package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"pktdirector/control"
	"pktdirector/host"
)

// newCleanupCommand removes what a killed director left on the host.
func newCleanupCommand() *cobra.Command {
	var file, dir string
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove what a director that was killed left on this host",
		Long: `A director that ends takes back what it changed on the host: packet filter tables,
policy routing rules, sysctls, its control socket. One that was killed (kill -9) cannot; cleanup does
it, and so does the next start. It says what it removed, and refuses while a
director runs.`,
		Example: "  pktdirector cleanup\n  pktdirector cleanup -c director.yaml",
		Args:    cobra.NoArgs,
		RunE: failing(func(cmd *cobra.Command, _ []string) error {
			socket := ""
			if file != "" {
				c, err := control.Load(file)
				if err != nil {
					return err
				}
				dir, socket = filepath.Dir(c.Control), c.Control
			}
			if socket == "" {
				socket = filepath.Join(dir, filepath.Base(control.DefaultSocket))
			}
			defer stateFolder(dir)()
			done, err := host.Cleanup(dir)
			if err == nil {
				var gone bool
				if gone, err = control.RemoveStale(socket); gone {
					done = append(done, "removed the control socket "+socket)
				}
			}
			for _, d := range done {
				fmt.Fprintln(cmd.OutOrStdout(), d)
			}
			if err == nil && len(done) == 0 {
				fmt.Fprintln(cmd.OutOrStdout(), "nothing was left behind")
			}
			return err
		}),
	}
	cmd.Flags().StringVarP(&file, "config", "c", "", "the configuration file of the director that was killed, when it names another control socket")
	cmd.Flags().StringVar(&dir, "state", filepath.Dir(control.DefaultSocket), "the folder in which the director kept what must be undone")
	cmd.MarkFlagsMutuallyExclusive("config", "state")
	return cmd
}
