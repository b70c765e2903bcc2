package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"pktdirector/control"
)

// listing is what a list command shows.
type listing struct {
	director                                                  remote
	filter                                                    queryFlags
	asJSON, connections, wide, stats, rate, tunnels, verdicts bool
	every                                                     interval
}

// newListCommand shows what a running director balances.
func newListCommand() *cobra.Command {
	l := &listing{}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show what a running director balances, as \"ipvsadm -Ln\" prints it",
		Long: `List shows services and real servers, or connections, of a running director, in the
words of ipvsadm. With --wide, or a flag that chooses connections, it shows connections
with their age and what they counted each way; "n/a" where the director sees no
replies, in DR and TUN, and "-" for the templates of persistent services. Filters are
the director's work: of a million connections only those come that are asked for.

With --watch it shows that again and again until Ctrl-C: on a terminal in place, elsewhere one
after another with the time in front.

Exit code 0: done, also by Ctrl-C where --watch is given. 1: no director answers. 2: the
command line makes no sense.`,
		Example: `  pktdirector list                services and real servers, as ipvsadm -Ln
  pktdirector list --stats        with counters, as ipvsadm -Ln --stats
  pktdirector list --rate --watch  with rates a second, as ipvsadm -Ln --rate, every 2 s
  pktdirector list --tun-info     with the kind of tunnel, as ipvsadm -Ln --tun-info
  pktdirector list -c             connections, as ipvsadm -Lcn
  pktdirector list --wide         connections with age, packets and bytes
  pktdirector list --client 198.51.100.0/24 --state ESTABLISHED --older 1h
  pktdirector list --service tcp-192.0.2.10-80 --sort bytes --limit 20 --watch=1
  pktdirector list --kind templates --server 10.2.0.1
  pktdirector list --verdicts     how many packets ended in which way
  pktdirector list --json         all of it for programs`,
		Args: cobra.NoArgs,
		RunE: failing(l.run),
	}
	f := cmd.Flags()
	f.BoolVarP(&l.connections, "connections", "c", false, "show the connections")
	f.BoolVar(&l.wide, "wide", false, "show the connections with age, packets and bytes")
	f.BoolVar(&l.stats, "stats", false, "show the services' counters")
	f.BoolVar(&l.rate, "rate", false, "show the services' rates a second")
	f.BoolVar(&l.tunnels, "tun-info", false, "show the tunnels of real servers")
	f.BoolVar(&l.verdicts, "verdicts", false, "show how many packets ended in which way")
	f.BoolVar(&l.asJSON, "json", false, "print JSON")
	f.Var(&l.every, "watch", "show it again and again, every 2 s or as often as given (--watch=0.5)")
	f.Lookup("watch").NoOptDefVal = "2"
	l.filter.addFlags(cmd, control.FilterParameters(), control.OrderParameters())
	l.director.addFlags(cmd)
	cmd.MarkFlagsMutuallyExclusive("connections", "stats", "rate", "tun-info", "verdicts")
	cmd.MarkFlagsMutuallyExclusive("wide", "stats", "rate", "tun-info", "verdicts")
	return cmd
}

func (l *listing) run(cmd *cobra.Command, _ []string) error {
	query, err := l.filter.read(cmd)
	if err != nil {
		return err
	}
	if len(l.filter.given(cmd)) > 0 {
		if l.stats || l.rate || l.tunnels || l.verdicts {
			return usageError(fmt.Errorf("what chooses, sorts or limits is about connections: leave out --stats, --rate, --tun-info and --verdicts"))
		}
		l.wide = true
	}
	client, err := l.director.client()
	if err != nil {
		return err
	}
	draw := func(w io.Writer) error { return l.draw(cmd.Context(), w, client, query) }
	if l.every == 0 {
		return draw(cmd.OutOrStdout())
	}
	title := "pktdirector " + strings.Join(os.Args[min(1, len(os.Args)):], " ")
	return watch(cmd.Context(), time.Duration(l.every), cmd.OutOrStdout(), title, l.asJSON, draw)
}

// draw shows it once.
func (l *listing) draw(ctx context.Context, w io.Writer, client *control.Client, query control.ConnQuery) error {
	if l.connections || l.wide {
		conns := client.SelectConnections(ctx, query)
		switch {
		case l.asJSON:
			return writeJSONList(w, conns)
		case l.wide:
			return buffered(w, func(w io.Writer) error {
				_, err := control.WriteConnectionTable(w, conns)
				return err
			})
		}
		return buffered(w, func(w io.Writer) error { return control.WriteConnections(w, conns) })
	}
	status, err := client.Status(ctx)
	switch {
	case err != nil:
		return err
	case l.asJSON:
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(status)
	case l.verdicts:
		return control.WriteVerdicts(w, status.Verdicts)
	case l.rate:
		return control.WriteRates(w, status)
	case l.stats:
		return control.WriteStats(w, status)
	case l.tunnels:
		return control.WriteTunnelInfo(w, status)
	}
	return control.WriteList(w, status)
}

// buffered has write do few large writes.
func buffered(w io.Writer, write func(io.Writer) error) error {
	b := bufio.NewWriterSize(w, 1<<16)
	if err := write(b); err != nil {
		_ = b.Flush() // what came before is shown; why no more came is the error
		return err
	}
	return b.Flush()
}

// writeJSONList writes values as one JSON array as they come.
func writeJSONList[T any](w io.Writer, all iter.Seq2[T, error]) error {
	return buffered(w, func(w io.Writer) error {
		before := "[\n  "
		for one, err := range all {
			if err != nil {
				return err
			}
			text, err := json.MarshalIndent(one, "  ", "  ")
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(w, "%s%s", before, text); err != nil {
				return err
			}
			before = ",\n  "
		}
		end := "\n]\n"
		if before == "[\n  " {
			end = "[]\n"
		}
		_, err := io.WriteString(w, end)
		return err
	})
}
