//go:build !linux

package main

import (
	"errors"

	"github.com/spf13/cobra"
)

// newLabCommand says that labs need Linux.
func newLabCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "lab",
		Short: "Labs in network namespaces (Linux only)",
		RunE: failing(func(*cobra.Command, []string) error {
			return errors.New("labs are made of network namespaces: they need Linux")
		}),
	}
}
