package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// exitRemarks: the work is done, and not all that was there could be taken over.
const exitRemarks = 3

// newConfigExportCommand writes the running state as a configuration file.
func newConfigExportCommand() *cobra.Command {
	var director remote
	var file string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "export [-o FILE]",
		Short: "Write the running state as a configuration file",
		Long: `Export asks a running director for all that it was told, by its file, by ipvsadm's
command lines and by the API, and writes it as a configuration file: a director that is
started with that file balances in the same way. Settings and timeouts that are not the
defaults are in it. FILE is replaced as a whole; connections and counters are no part
of it.

Exit code 0: the file says all of it. 1: the director could not be asked, or FILE not
written. 2: the command line makes no sense. 3: written, but for what a file cannot say
(such as a real server that is the host itself): each is told, and a comment in the
file.`,
		Example: "  pktdirector config export\n  pktdirector config export -o director.yaml\n  pktdirector config export --json",
		Args:    cobra.NoArgs,
		RunE: failing(func(cmd *cobra.Command, _ []string) error {
			client, err := director.client()
			if err != nil {
				return err
			}
			e, err := client.Export(cmd.Context())
			if err != nil {
				return err
			}
			if err := deliver(cmd, file, e.Config, asJSON, e); err != nil {
				return err
			}
			if !asJSON {
				for _, r := range e.Remarks {
					fmt.Fprintln(cmd.ErrOrStderr(), r)
				}
			}
			if len(e.Remarks) > 0 {
				return exitError{code: exitRemarks}
			}
			return nil
		}),
	}
	director.addFlags(cmd)
	addOutputFlags(cmd, &file, &asJSON)
	return cmd
}

// addOutputFlags adds -o FILE and --json.
func addOutputFlags(cmd *cobra.Command, file *string, asJSON *bool) {
	cmd.Flags().StringVarP(file, "output", "o", "-", "the file to write; - is standard output")
	cmd.Flags().BoolVar(asJSON, "json", false, "print the configuration and the remarks as JSON on standard output")
}

// deliver writes a configuration to file, and with asJSON answer to standard output,
// which otherwise gets the configuration when file is -.
func deliver(cmd *cobra.Command, file, config string, asJSON bool, answer any) error {
	if file != "-" {
		if err := writeFile(file, []byte(config)); err != nil {
			return err
		}
	}
	switch {
	case asJSON:
		e := json.NewEncoder(cmd.OutOrStdout())
		e.SetIndent("", "  ")
		return e.Encode(answer)
	case file == "-":
		_, err := io.WriteString(cmd.OutOrStdout(), config)
		return err
	}
	return nil
}
