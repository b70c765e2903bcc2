package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"pktdirector/conntrack"
	"pktdirector/control"
)

// newKillCommand ends connections of a running director.
func newKillCommand() *cobra.Command {
	var director remote
	var filter queryFlags
	var all, affinity, dry, asJSON bool
	cmd := &cobra.Command{
		Use:   "kill [CLIENT:PORT VIP:PORT [tcp|udp|sctp]]",
		Short: "End connections of a running director",
		Long: `Kill takes connections out of a running director's table: one that is named by its
ends, or all that the flags choose. Neither end is told. The next packet is that of a
connection that the director does not know: a TCP segment to the VIP without SYN is answered
with a reset, one with SYN and a UDP packet begin a new connection, by the scheduler; what a
real server still sends is left alone.

With --affinity it is not connections that end, but what binds clients of persistent
services to their servers: their connections go on, new ones are scheduled anew. A client
is also chosen by a net that its service counts as one client.

"pktdirector list" takes the same flags and shows what would end; --dry-run counts it.

Exit code 0: done, also where no connection was chosen. 1: no director answers, or it
has no connection between the two ends. 2: the command line makes no sense.`,
		Example: `  pktdirector kill 198.51.100.7:40000 192.0.2.10:80      one connection
  pktdirector kill --server 10.2.0.1 --dry-run           how many has the real server?
  pktdirector kill --server 10.2.0.1                     all of a real server
  pktdirector kill --server 10.2.0.1:8080 --service tcp-192.0.2.10-80
  pktdirector kill --client 198.51.100.7                 all of a client
  pktdirector kill --client 198.51.100.7 --affinity      it may get another server
  pktdirector kill --vip 192.0.2.10 --state SYN_RECV --older 30s
  pktdirector kill --all                                 every connection there is`,
		Args: cobra.MaximumNArgs(3),
		RunE: failing(func(cmd *cobra.Command, args []string) error {
			query, err := killed(cmd, &filter, args, all, affinity)
			if err != nil {
				return err
			}
			client, err := director.client()
			if err != nil {
				return err
			}
			ended, err := client.EndConnections(cmd.Context(), query.Filter, all, dry)
			switch {
			case err != nil:
				return err
			case asJSON:
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				if err := e.Encode(ended); err != nil {
					return err
				}
			}
			if len(args) > 0 && ended.Connections == 0 {
				return fmt.Errorf("there is no connection from %s to %s: see \"pktdirector list --client %[1]s\"", args[0], args[1])
			}
			if asJSON {
				return nil
			}
			return tellEnded(cmd.OutOrStdout(), ended, affinity)
		}),
	}
	filter.addFlags(cmd, killParameters())
	cmd.Flags().BoolVar(&affinity, "affinity", false, "end what binds clients of persistent services to their servers, not connections")
	cmd.Flags().BoolVar(&all, "all", false, "all there are, in place of a filter")
	cmd.Flags().BoolVarP(&dry, "dry-run", "n", false, "only count what would end")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	director.addFlags(cmd)
	return cmd
}

// killParameters are those of a filter; which kind is meant, --affinity says.
func killParameters() []control.Parameter {
	var rest []control.Parameter
	for _, p := range control.FilterParameters() {
		if p.Name != "kind" {
			rest = append(rest, p)
		}
	}
	return rest
}

// killed is what the command line means.
func killed(cmd *cobra.Command, flags *queryFlags, args []string, all, affinity bool) (control.ConnQuery, error) {
	query, err := flags.read(cmd)
	if err != nil {
		return query, err
	}
	query.Kinds = conntrack.Connections
	if affinity {
		query.Kinds = conntrack.Templates
	}
	switch {
	case len(args) == 1:
		return query, usageError(fmt.Errorf("%s is one end of a connection: name both, CLIENT:PORT and VIP:PORT, or all of a client with --client", args[0]))
	case len(args) > 0 && (affinity || all || !query.IsZero()):
		return query, usageError(fmt.Errorf("a connection that is named by its ends takes neither a filter nor --all or --affinity"))
	case len(args) > 0:
		return pair(args)
	case all && !query.IsZero():
		return query, usageError(fmt.Errorf("--all is in place of a filter: leave one of them out"))
	case !all && query.IsZero():
		return query, usageError(fmt.Errorf("which connections? Name one by CLIENT:PORT VIP:PORT, choose some by --server, --client and others, or add --all"))
	}
	return query, nil
}

// pair chooses the connection between two ends.
func pair(args []string) (q control.ConnQuery, err error) {
	q.Kinds = conntrack.Connections
	for i, to := range []*conntrack.Peer{&q.Client, &q.VIP} {
		p, err := control.ParsePeer(args[i])
		if err != nil || p.Port == 0 || !p.Net.IsValid() {
			return q, usageError(fmt.Errorf("%q is no end of a connection: write an address and a port, like 198.51.100.7:40000 or [2001:db8::7]:40000", args[i]))
		}
		*to = p
	}
	if q.Client.Net.Addr().Is4() != q.VIP.Net.Addr().Is4() {
		return q, usageError(fmt.Errorf("%s and %s are of two IP versions: no connection has both", args[0], args[1]))
	}
	if len(args) == 3 {
		one, err := control.ParseConnQuery(map[string][]string{"protocol": {args[2]}})
		if err != nil {
			return q, usageError(fmt.Errorf("%q is no protocol: write tcp, udp or sctp", args[2]))
		}
		q.Proto = one.Proto
	}
	return q, nil
}

func tellEnded(w io.Writer, e control.Ended, affinity bool) error {
	n, what := e.Connections, "connection"
	if affinity {
		n, what = e.Templates, "binding of clients"
	}
	if n != 1 {
		what = strings.Replace(what, "connection", "connections", 1)
		what = strings.Replace(what, "binding", "bindings", 1)
	}
	done := "ended"
	if e.DryRun {
		done = "would end"
	}
	_, err := fmt.Fprintf(w, "%s %d %s\n", done, n, what)
	return err
}
