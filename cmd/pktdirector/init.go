package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"pktdirector/control"
)

// newInitCommand writes a small configuration file.
func newInitCommand() *cobra.Command {
	var dev string
	var force bool
	cmd := &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a small configuration file to start from",
		Long: `Init writes a small configuration with explanations to FILE, or to standard output.
docs/director.yaml explains every option.`,
		Example: "  pktdirector init director.yaml\n  pktdirector init --dev eth1 > director.yaml",
		Args:    cobra.MaximumNArgs(1),
		RunE: failing(func(cmd *cobra.Command, args []string) error {
			text := control.Minimal(dev)
			if _, err := control.Parse("init", text); err != nil {
				return usageError(fmt.Errorf("init: --dev %q cannot be an interface's name", dev))
			}
			if len(args) == 0 || args[0] == "-" {
				_, err := cmd.OutOrStdout().Write(text)
				return err
			}
			flags := os.O_WRONLY | os.O_CREATE | os.O_EXCL
			if force {
				flags = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
			}
			f, err := os.OpenFile(args[0], flags, 0o644)
			if errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("init: %s is there already: name another file, or overwrite it with --force", args[0])
			}
			if err != nil {
				return fmt.Errorf("init: %w", err)
			}
			_, err = f.Write(text)
			return errors.Join(err, f.Close())
		}),
	}
	cmd.Flags().StringVar(&dev, "dev", "eth0", "the interface the director shall work on")
	cmd.Flags().BoolVar(&force, "force", false, "overwrite FILE")
	return cmd
}
