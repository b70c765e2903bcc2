package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"pktdirector/control"
)

// newTraceCommand tells what a running director does, as it does it.
func newTraceCommand() *cobra.Command {
	var director remote
	var filter queryFlags
	var asJSON bool
	var count uint64
	cmd := &cobra.Command{
		Use:   "trace [EXPRESSION]",
		Short: "Tell what a running director does, one line an event, as it happens",
		Long: `Trace prints one line for each event, until Ctrl-C:

  decision  a new connection and how its real server was chosen: every candidate with
            weight, ActiveConn, InActConn, score, and why it won or lost
  state     a connection began, came to another state, or ended
  drop      a packet went nowhere: its verdict, and what to do (docs/verdicts.md)
  admin     somebody changed something
  lost      events were faster than they could be told: how many are missing

All that is given must be so. --verdict chooses among drops, --state among state
changes; given alone they show nothing else. EXPRESSION, or --filter, is one of
tcpdump's (docs/trace.md lists what is taken); it is asked about the packet's headers as
they came from the client, and as they go to the real server.

The director records nothing while nobody asks, and never waits for who does: 1,024
events wait for each listener; those beyond are counted and told. Only who may use the
director's API may trace.

Exit code 0: ended by Ctrl-C, or after --count events. 1: no director answers, or it
ended. 2: the command line makes no sense.`,
		Example: `  pktdirector trace                                 all that happens
  pktdirector trace --kind decision --service tcp-192.0.2.10-80
  pktdirector trace --client 198.51.100.7           one client's story
  pktdirector trace --kind drop                     what goes nowhere, and what to do
  pktdirector trace --verdict no_neighbour,no_route
  pktdirector trace --state ESTABLISHED --server 10.2.0.1
  pktdirector trace 'tcp port 443 and net 198.51.100.0/24'
  pktdirector trace --json --count 100              for programs: one JSON object a line`,
		RunE: failing(func(cmd *cobra.Command, args []string) error {
			values := filter.given(cmd)
			if len(args) > 0 {
				if values.Has("filter") {
					return usageError(errors.New("an expression stands behind --filter and at the end: give it once"))
				}
				values.Set("filter", strings.Join(args, " "))
			}
			f, err := control.ParseEventFilter(values)
			if err != nil {
				return usageError(fmt.Errorf("--%w", err))
			}
			client, err := director.client()
			if err != nil {
				return err
			}
			return trace(cmd, client, f, asJSON, count)
		}),
	}
	filter.addFlags(cmd, control.EventParameters())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line, as GET /v1/events tells them")
	cmd.Flags().Uint64Var(&count, "count", 0, "end after so many events")
	director.addFlags(cmd)
	return cmd
}

// trace prints events until the context ends, which is no error, or there were count
// of them. In the end it says how many there were, on standard error.
func trace(cmd *cobra.Command, client *control.Client, f control.EventFilter, asJSON bool, count uint64) error {
	var events, lost uint64
	var failed error
	lines := json.NewEncoder(cmd.OutOrStdout())
	seen := func(e control.Event) bool {
		if e.Kind == "lost" {
			lost += e.Lost
		} else {
			events++
		}
		if asJSON {
			failed = lines.Encode(e)
		} else {
			failed = control.WriteEvent(cmd.OutOrStdout(), &e)
		}
		return failed == nil && (count == 0 || events < count)
	}
	for {
		err := client.Events(cmd.Context(), f, seen)
		switch {
		case cmd.Context().Err() != nil || count > 0 && events >= count:
			fmt.Fprintf(cmd.ErrOrStderr(), "%d events, %d more were lost on the way\n", events, lost)
			return failed
		case err != nil || failed != nil:
			return errors.Join(failed, err)
		}
		time.Sleep(listenAgain)
		if _, err := client.Health(cmd.Context()); err != nil {
			return errors.New("the director ended")
		}
		fmt.Fprintln(cmd.ErrOrStderr(), "the director has handed over to a new program: listening to that; what happened in between was not seen")
	}
}

// listenAgain is how long a stream that ended is left alone.
const listenAgain = 100 * time.Millisecond
