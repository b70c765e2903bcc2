package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"pktdirector/control"
	"pktdirector/dataplane"
	"pktdirector/lvs"
)

// newDiagnoseCommand tells what goes wrong for clients of a running director.
func newDiagnoseCommand() *cobra.Command {
	var director remote
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "diagnose",
		Short: "Tell what goes wrong for clients of a running director",
		Long: `Diagnose looks at a running director's connections and counts. Each line has a code, what
was seen, and what to do:

  no_return_traffic  a masqueraded server answers some clients past the director, or not
  snapshot_failing   what the next start would go on from cannot be written
  packets_bounce     packets come from the server they are sent to: it is a director, too
  vip_conflict, no_neighbour, no_route, truncated, local_node, table_full, ports_exhausted:
                     packets ended so (docs/verdicts.md)

What would go wrong on this host, "pktdirector check" tells beforehand.

Exit code 0: nothing was found. 1: something was, or no director answers. 2: the command
line makes no sense.`,
		Example: `  pktdirector diagnose
  pktdirector diagnose --json`,
		Args: cobra.NoArgs,
		RunE: failing(func(cmd *cobra.Command, _ []string) error {
			client, err := director.client()
			if err != nil {
				return err
			}
			found, err := client.Diagnose(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				err = e.Encode(append([]control.Diagnosis{}, found...)) // [] rather than null
			} else {
				err = control.WriteDiagnoses(cmd.OutOrStdout(), found)
			}
			if err == nil && len(found) > 0 {
				err = exitError{code: exitFailed}
			}
			return err
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	director.addFlags(cmd)
	return cmd
}

// Diagnose implements control.Source.
func (s *source) Diagnose() []control.Diagnosis {
	all := diagnose(s.director, time.Since(s.began))
	if kept := s.kept.State(); kept != nil && kept.Error != "" {
		all = append(all, control.Diagnosis{
			Code: "snapshot_failing", Text: "the snapshot that the next start would go on from cannot be written: " + kept.Error,
			Remedy: "see whether its folder is there and has room, or name another file under snapshot in the configuration",
		})
	}
	return all
}

// diagnose puts into words what a director's connections and counts show at engine
// time now.
func diagnose(d *dataplane.Director, now time.Duration) []control.Diagnosis {
	var all []control.Diagnosis
	silent := d.Unanswered(now)
	slices.SortFunc(silent, func(a, b dataplane.Unanswered) int {
		return cmp.Or(cmp.Compare(b.Connections, a.Connections), a.Service.VIP.Netip().Compare(b.Service.VIP.Netip()),
			cmp.Compare(a.Service.Port, b.Service.Port), a.Server.RIP.Netip().Compare(b.Server.RIP.Netip()), cmp.Compare(a.Server.Port, b.Server.Port))
	})
	for _, u := range silent {
		all = append(all, noReturn(u))
	}
	if n := d.Bounced(); n > 0 {
		all = append(all, control.Diagnosis{
			Code:   "packets_bounce",
			Text:   fmt.Sprintf("%d requests came from the machine that direct routing sends them to: it is a director itself, and packets pass to and fro", n),
			Remedy: "let one of the two stand by: pktdirector standby on",
		})
	}
	remedies := map[string]string{
		"vip_conflict":    "pktdirector check-arp on another machine names the one that answers for a VIP; a DR server needs arp_ignore=1 and arp_announce=2 before the VIP",
		"no_neighbour":    "see whether the real servers and gateways are up, and on the director's segment",
		"no_route":        "ip route get the real server or client: the route must leave by one of the director's links",
		"truncated":       "raise ring.slot_size of the link",
		"local_node":      "give the director a link of type local and the server the service's port, or run the server in a network namespace of its own",
		"table_full":      "raise conn_max if there is memory, or set drop_entry to 3 to end idle connections",
		"ports_exhausted": "give the service more sources, or more real servers",
	}
	for _, v := range d.Verdicts() {
		if remedy := remedies[v.Name]; remedy != "" && v.Count > 0 {
			all = append(all, control.Diagnosis{Code: v.Name, Text: fmt.Sprintf("%d packets since the start: %s", v.Count, v.Help), Remedy: remedy})
		}
	}
	return all
}

// noReturn tells of a masqueraded server whose replies do not pass the director.
func noReturn(u dataplane.Unanswered) control.Diagnosis {
	client := netip.AddrPortFrom(u.Client.Netip(), u.ClientPort).String()
	d := control.Diagnosis{
		Code: "no_return_traffic", Service: serviceName(u.Service), Server: netip.AddrPortFrom(u.Server.RIP.Netip(), u.Server.Port).String(),
		Connections: u.Connections, Client: client,
	}
	what := fmt.Sprintf("%s, server %s: no return traffic through the director for %d half-open connections", d.Service, d.Server, u.Connections)
	switch {
	case u.Beside > 0:
		d.Text = fmt.Sprintf("%s; of %d the client is on-link with the real server (%s), which answers it directly", what, u.Beside, u.Client)
		d.Remedy = fmt.Sprintf("on the real server, route %s to the director (ip route add %s via DIRECTOR), or use the method fullnat", u.Client, u.Client)
	case u.Answered > 0:
		d.Text = fmt.Sprintf("%s (%s is one), though %d others are answered", what, client, u.Answered)
		d.Remedy = "see whether the real server has another route to these clients than by the director, or is overloaded"
	default:
		d.Text = fmt.Sprintf("%s (%s is one), and for no other", what, client)
		d.Remedy = "make the director the real server's default gateway, and see whether the server is up and its port listens"
	}
	return d
}

// serviceName names a service as ipvsadm's listing does: TCP 192.0.2.10:80, FWM 7.
func serviceName(k lvs.ServiceKey) string {
	if k.Mark != 0 {
		return strings.TrimSpace(fmt.Sprintf("FWM %d %s", k.Mark, map[bool]string{true: "IPv6"}[k.V6]))
	}
	return k.Proto.String() + " " + netip.AddrPortFrom(k.VIP.Netip(), k.Port).String()
}
