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
		Long: `pktdirector balances TCP, UDP and SCTP over real servers by NAT, direct routing
(DR) or tunnelling (TUN: IP in IP, GRE, GUE), as the Linux kernel's IPVS does, in
user space; and by FullNAT, which IPVS does not have.`,
		Example: `  pktdirector lab demo                  see NAT, DR and TUN at work, each in a lab
  pktdirector init > director.yaml      write a small configuration to start from
  pktdirector check -c director.yaml    tell what on this host would break forwarding
  pktdirector run -c director.yaml      balance
  pktdirector list                      what "ipvsadm -Ln" shows
  pktdirector ipvsadm -a -t 192.0.2.10:80 -r 10.2.0.3 -m    change it while it runs`,
		Version:       thisBuild().Version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate("pktdirector {{.Version}}\n")
	root.CompletionOptions.DisableDefaultCmd = true // newCompletionCommand has words of its own
	root.AddCommand(subcommands()...)
	addCompletion(root)
	return root
}

// subcommands lists every subcommand.
func subcommands() []*cobra.Command {
	return []*cobra.Command{
		newRunCommand(), newListCommand(), newKillCommand(), newIpvsadmCommand(), newReloadCommand(), newDriftCommand(), newUpgradeCommand(), newStandbyCommand(), newDiagnoseCommand(), newTraceCommand(), newExplainCommand(), newCaptureCommand(), newInitCommand(), newConfigCommand(), newImportCommand(), newCheckCommand(), newCheckARPCommand(), newCleanupCommand(),
		newLabCommand(), newReplayCommand(), newScenarioCommand(), newVersionCommand(), newManCommand(), newCompletionCommand(),
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
