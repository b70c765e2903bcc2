package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"pktdirector/host"
	"pktdirector/packet"
)

// newCheckARPCommand asks a segment who answers for an address.
func newCheckARPCommand() *cobra.Command {
	var dev, expect string
	var wait time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check-arp --dev INTERFACE ADDRESS",
		Short: "Count the machines that answer ARP (or IPv6 ND) for an address",
		Long: `Check-arp asks the segment at an interface who has the address, collects answers
and lists the distinct MAC addresses. Exactly one machine, the director, may
answer for a VIP: a real server that answers, too, takes connections away from
the director at random.

Run it on another machine of the segment, such as the router: the host that asks
hears neither itself nor a director that runs on it.

Exit code 0: exactly one machine answers (with --expect: that one). 1: none, more
than one, or another. 2: the command line makes no sense.`,
		Example: `  pktdirector check-arp --dev eth0 192.0.2.10
  pktdirector check-arp --dev eth0 --expect 02:00:00:00:01:fe 192.0.2.10
  pktdirector check-arp --dev eth0 --json 192.0.2.10`,
		Args: cobra.ExactArgs(1),
		RunE: failing(func(cmd *cobra.Command, args []string) error {
			target, err := netip.ParseAddr(args[0])
			if err != nil || target.Zone() != "" || target.Is4In6() {
				return usageError(fmt.Errorf("check-arp: %q is no IP address: write one like 192.0.2.10", args[0]))
			}
			if dev == "" {
				return usageError(fmt.Errorf("check-arp: --dev is missing: the interface to ask on"))
			}
			if wait <= 0 {
				return usageError(fmt.Errorf("check-arp: --wait %v must be longer than nothing", wait))
			}
			var expected packet.MAC
			if expect != "" {
				hw, err := net.ParseMAC(expect)
				if err != nil || len(hw) != len(expected) {
					return usageError(fmt.Errorf("check-arp: --expect %q is no MAC address: write one like 02:00:00:00:01:fe", expect))
				}
				expected = packet.MAC(hw)
			}
			macs, err := host.Ask(cmd.Context(), dev, target, wait)
			if err != nil {
				return err
			}
			verdict := judgeAnswers(target, dev, macs, expected)
			if asJSON {
				if err := printAnswers(cmd, arpAnswers{target, dev, macTexts(macs), verdict == nil, errorText(verdict)}); err != nil {
					return err
				}
				return verdict
			}
			for _, m := range macs {
				fmt.Fprintln(cmd.OutOrStdout(), m)
			}
			return verdict
		}),
	}
	cmd.Flags().StringVar(&dev, "dev", "", "the interface to ask on")
	cmd.Flags().StringVar(&expect, "expect", "", "the MAC address that must be the only one to answer")
	cmd.Flags().DurationVar(&wait, "wait", time.Second, "how long to collect answers")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// arpAnswers is what "check-arp --json" prints.
type arpAnswers struct {
	Address   netip.Addr `json:"address"`
	Interface string     `json:"interface"`
	MACs      []string   `json:"macs"` // of the machines that answered
	OK        bool       `json:"ok"`
	Error     string     `json:"error,omitempty"` // what is wrong with them
}

func printAnswers(cmd *cobra.Command, a arpAnswers) error {
	e := json.NewEncoder(cmd.OutOrStdout())
	e.SetIndent("", "  ")
	return e.Encode(a)
}

func macTexts(macs []packet.MAC) []string {
	texts := []string{} // [] rather than null
	for _, m := range macs {
		texts = append(texts, m.String())
	}
	return texts
}

// judgeAnswers says what is wrong with the answers for target.
func judgeAnswers(target netip.Addr, dev string, macs []packet.MAC, expected packet.MAC) error {
	switch {
	case len(macs) == 0:
		return fmt.Errorf("check-arp: nobody on %s answers for %s: is the director running, and on this segment?", dev, target)
	case len(macs) > 1:
		return fmt.Errorf("check-arp: %d machines on %s answer for %s: only the director may; set arp_ignore=1 and arp_announce=2 on the others", len(macs), dev, target)
	case !expected.IsZero() && macs[0] != expected:
		return fmt.Errorf("check-arp: %s answers for %s on %s, not %s", macs[0], target, dev, expected)
	}
	return nil
}
