package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"pktdirector/control"
)

// newExplainCommand tells the story of one connection.
func newExplainCommand() *cobra.Command {
	var director remote
	var asJSON, would bool
	var protocol string
	cmd := &cobra.Command{
		Use:   "explain CLIENT:PORT VIP:PORT",
		Short: "Tell why a connection got its server, or what would happen to one",
		Long: `Explain tells the whole story of a connection that is there, or was: how the service was
found, every candidate with weight, ActiveConn, InActConn and score and why it won or
lost, each change of state, each dropped packet with what to do, and how it is now.

The director keeps the latest 8,192 decisions and state changes and 2,048 drops for it
(docs/trace.md tells what that costs); a connection that is still there is known, whatever the
history has forgotten.

With --would: what would happen to the client's first packet (a SYN) now. It changes
nothing: no entry, no count, no scheduler's place.

IPv6 addresses stand in brackets: [2001:db8::7]:40000.

Exit code 0: the story is told; with --would, the packet would go to a server. 1:
nothing is known of the connection; with --would, it would not go to a server; or no
director answers. 2: the command line makes no sense.`,
		Example: `  pktdirector explain 198.51.100.7:40000 192.0.2.10:80
  pktdirector explain --would 198.51.100.7:40000 192.0.2.10:80
  pktdirector explain --protocol udp [2001:db8::7]:4000 [2001:db8::10]:53
  pktdirector explain --json 198.51.100.7:40000 192.0.2.10:80`,
		Args: cobra.ExactArgs(2),
		RunE: failing(func(cmd *cobra.Command, args []string) error {
			q, err := control.ParseExplainQuery(url.Values{"client": args[:1], "vip": args[1:], "protocol": {protocol}, "would": {strconv.FormatBool(would)}})
			if err != nil {
				return usageError(err)
			}
			client, err := director.client()
			if err != nil {
				return err
			}
			story, err := client.Explain(cmd.Context(), q)
			if err != nil {
				return err
			}
			if asJSON {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				err = e.Encode(story)
			} else {
				err = writeStory(cmd.OutOrStdout(), story)
			}
			o := story.Outlook
			if err == nil && (!story.Known || o != nil && o.Verdict != "forwarded" && o.Verdict != "delivered") {
				err = exitError{code: exitFailed}
			}
			return err
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&would, "would", false, "what would happen to the client's first packet now")
	f.StringVar(&protocol, "protocol", "tcp", "tcp, udp or sctp")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	director.addFlags(cmd)
	return cmd
}

// writeStory writes a story in words.
func writeStory(w io.Writer, s *control.Story) error {
	b := &printer{w: w}
	b.line("%s", s.Flow)
	if !s.Known {
		b.line("  nothing is known: no such connection is there, and the last %d decisions and state changes and %d drops tell of none", s.History.Events, s.History.Drops)
	}
	for _, step := range s.Steps {
		when := ""
		if !s.Would {
			when = step.Time.Local().Format("15:04:05.000000") + " "
		}
		b.line("  %s%s", when, step.Text)
		for _, d := range step.Details {
			b.line("      %s", d)
		}
	}
	return b.err
}

// printer writes lines until one fails.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}
