package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"pktdirector/lvs"
)

// newStandbyCommand has a running director stand by, or take over.
func newStandbyCommand() *cobra.Command {
	var director remote
	cmd := &cobra.Command{
		Use:   "standby [on|off]",
		Short: "Have a running director stand by, or take over",
		Long: `A director that stands by leaves every packet to its host and answers for no VIP,
whatever services it has, so two directors may have one configuration and be real servers
of each other. Without an argument, standby tells which it is: "on" or "off".

"standby off" takes over: the host is kept off the VIPs, and they are announced by
gratuitous ARP and neighbour advertisements. Connections that the director had before are
kept until they expire. What it is at the start, "standby:" in the configuration says.

Exit code 0: done. 1: no director answers, or it has a tundev, which cannot stand by. 2:
the command line makes no sense.`,
		Example: `  pktdirector standby          which is it?
  pktdirector standby off      take over; keepalived: notify_master "pktdirector standby off"
  pktdirector standby on       stand by;  keepalived: notify_backup "pktdirector standby on"`,
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"on", "off"},
		RunE: failing(func(cmd *cobra.Command, args []string) error {
			client, err := director.client()
			if err != nil {
				return err
			}
			if len(args) == 1 {
				return client.SetStandby(cmd.Context(), args[0] == "on")
			}
			on, err := client.Standby(cmd.Context())
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), map[bool]string{true: "on", false: "off"}[on])
			return nil
		}),
	}
	director.addFlags(cmd)
	return cmd
}

// Standby implements control.Admin.
func (a *administration) Standby() bool { return a.director.Standby() }

// SetStandby implements control.Admin.
func (a *administration) SetStandby(who string, on bool) error {
	if err := a.lock(); err != nil {
		return err
	}
	defer a.mu.Unlock()
	if err := a.director.standBy(on); err != nil {
		return err
	}
	a.log.Info("standby", "on", on, "by", who)
	a.publish(who, []string{map[bool]string{true: "standby on", false: "standby off"}[on]}, "")
	return nil
}

// standBy leaves the host its packets, or takes them: in an order in which nobody
// else answers for what the director does.
func (g *guarded) standBy(on bool) error {
	if on {
		for _, l := range g.links {
			if l.Tundev {
				return fmt.Errorf("the link %s is a tundev, which the host routes the VIPs into: only a director on network cards can stand by", l.Name)
			}
		}
		g.SetStandby(true)
		if err := g.follow(lvs.Ruleset{}); err != nil {
			return fmt.Errorf("standing by, but the host is still kept off: %w", err)
		}
		return nil
	}
	if err := g.keepOff(g.Ruleset()); err != nil {
		return fmt.Errorf("still standing by: the host cannot be kept off the services: %w", err)
	}
	g.SetStandby(false)
	return nil
}

// follow has the host kept off what is balanced: nothing, while standing by.
func (g *guarded) follow(r lvs.Ruleset) error {
	if g.Standby() {
		r = lvs.Ruleset{}
	}
	return g.keepOff(r)
}
