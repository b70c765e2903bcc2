package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// newRootCommand joins all subcommands.
func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "pktdirector",
		Short: "Linux Virtual Server in user space",
		Long: `pktdirector balances TCP and UDP connections over real servers by NAT, direct
routing (DR) or IPIP tunnelling (TUN), as the Linux kernel's IPVS does, in user
space.`,
		Example: `  pktdirector lab demo                  see all three methods at work in a lab
  pktdirector init > director.yaml      write a small configuration to start from
  pktdirector check -c director.yaml    tell what on this host would break forwarding
  pktdirector run -c director.yaml      balance
  pktdirector list                      what "ipvsadm -Ln" shows`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(subcommands()...)
	return root
}

// subcommands lists every subcommand.
func subcommands() []*cobra.Command {
	return []*cobra.Command{
		newRunCommand(), newListCommand(), newInitCommand(), newCheckCommand(), newCheckARPCommand(), newCleanupCommand(),
		newLabCommand(), newScenarioCommand(),
	}
}

// group makes a command that only joins others refuse what it does not know;
// alone it prints its help.
func group(cmd *cobra.Command) {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usageError(fmt.Errorf("unknown command %q for %q: see %[2]s --help", args[0], cmd.CommandPath()))
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
}
