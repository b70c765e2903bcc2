package main

import (
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"pktdirector/control"
	"pktdirector/dataplane"
	"pktdirector/host"
	"pktdirector/packet"
)

// newCheckCommand looks for what would break forwarding on this host.
func newCheckCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "check -c FILE",
		Short: "Tell what on this host would break forwarding",
		Long: `Check reads the configuration and looks at this host: rights, interfaces, MTUs,
tunnels' headers, reverse path filters, routes to the real servers, VIPs and FullNAT's
source addresses and ports, real servers that are this host, and whether another machine
answers for what the director will. It says, too, what a local client would see. Each finding is one line with its remedy. Nothing is
changed. "pktdirector run" logs the same findings when it starts.

Exit code 0: nothing that stops the director. 1: there are errors. 2: the command
line makes no sense.`,
		Example: "  pktdirector check -c director.yaml",
		Args:    cobra.NoArgs,
		RunE: failing(func(cmd *cobra.Command, _ []string) error {
			c, err := loadConfig(file)
			if err != nil {
				return err
			}
			plan := planOf(c)
			findings, err := host.Check(cmd.Context(), plan)
			if err != nil {
				return err
			}
			if local, ok := host.LocalClients(plan); ok {
				findings = append(findings, local)
			}
			faults := 0
			for _, f := range findings {
				fmt.Fprintln(cmd.OutOrStdout(), f)
				if f.Severity == host.Fault {
					faults++
				}
			}
			if faults > 0 {
				return exitError{code: exitFailed}
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: nothing found that would stop the director\n", file)
			return nil
		}),
	}
	addConfigFlag(cmd, &file)
	return cmd
}

// addConfigFlag adds -c FILE.
func addConfigFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVarP(file, "config", "c", "", "the configuration file")
}

// loadConfig reads the file that -c names.
func loadConfig(file string) (*control.Config, error) {
	if file == "" {
		return nil, usageError(fmt.Errorf("-c FILE is missing: the configuration file (\"pktdirector init\" writes one)"))
	}
	c, err := control.Load(file)
	if err != nil {
		return nil, err
	}
	return c, c.CheckSysctl(dataplane.CheckTunable)
}

// planOf translates the configuration for package host.
func planOf(c *control.Config) host.Plan {
	p := host.Plan{Rules: c.Ruleset}
	index := map[string]int{}
	for i, l := range c.Links {
		p.Links = append(p.Links, host.Link{Name: l.Name, VLAN: l.VLAN, Tundev: l.Type == control.Tundev, Local: l.Type == control.Local})
		if _, there := index[l.Name]; !there {
			index[l.Name] = i
		}
		for _, a := range l.Addresses {
			p.Static.Addrs = append(p.Static.Addrs, dataplane.LinkAddr{Link: i, Prefix: a})
		}
	}
	for _, r := range c.Routes {
		p.Static.Routes = append(p.Static.Routes, host.StaticRoute{To: r.To, Via: packet.AddrFrom(r.Via), Link: index[r.Link]})
	}
	return p
}

// logFindings writes each finding as one log line.
func logFindings(log *slog.Logger, findings []host.Finding) {
	for _, f := range findings {
		switch f.Severity {
		case host.Fault:
			log.Error(f.What, "remedy", f.Remedy)
		case host.Warning:
			log.Warn(f.What, "remedy", f.Remedy)
		default:
			log.Info(f.What, "remedy", f.Remedy)
		}
	}
}
