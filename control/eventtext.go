package control

import (
	"fmt"
	"io"
	"strings"
)

// shownLosers is how many of the servers that were not picked a line tells of.
const shownLosers = 16

// WriteEvent writes an event as one line, with the time of day where it is read.
func WriteEvent(w io.Writer, e *Event) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %-8s ", e.Time.Local().Format("15:04:05.000000"), e.Kind)
	switch {
	case e.Decision != nil:
		e.Decision.describe(&b)
	case e.State != nil:
		e.State.describe(&b)
	case e.Drop != nil:
		e.Drop.describe(&b)
	case e.Admin != nil:
		fmt.Fprintf(&b, "%s: %s", e.Admin.By, strings.Join(e.Admin.Changes, "; "))
		if e.Admin.Refused != "" {
			fmt.Fprintf(&b, "; refused: %s", e.Admin.Refused)
		}
	default:
		fmt.Fprintf(&b, "%d events are missing here: they came faster than they could be told; a narrower filter helps", e.Lost)
	}
	b.WriteByte('\n')
	_, err := io.WriteString(w, strings.ReplaceAll(strings.TrimRight(b.String(), "\n"), "\n", "; ")+"\n")
	return err
}

// String writes the flow as packet.Flow does.
func (f Flow) String() string {
	return f.Protocol + " " + pairText(f.Source, f.SourcePort) + " -> " + pairText(f.Destination, f.DestinationPort)
}

func pairText(addr string, port uint16) string {
	if strings.Contains(addr, ":") {
		addr = "[" + addr + "]"
	}
	return fmt.Sprintf("%s:%d", addr, port)
}

// serverText writes what ServerID wrote as address and port.
func serverText(id string) string {
	k, err := ParseServerID(id)
	if err != nil {
		return id
	}
	return pairText(k.RIP.String(), k.Port)
}

func (d *Decision) describe(b *strings.Builder) {
	fmt.Fprintf(b, "%d %s: %s, found by %s, ", d.ID, d.Flow, d.Service, d.Found)
	if d.Picked == "" {
		b.WriteString("has no server for it")
	} else {
		fmt.Fprintf(b, "gives it to %s", serverText(d.Picked))
	}
	var losers []string
	for i := range d.Candidates {
		c := &d.Candidates[i]
		if c.Picked {
			fmt.Fprintf(b, " (%s): %s", c.counts(), c.Why)
			continue
		}
		losers = append(losers, fmt.Sprintf("%s (%s): %s", serverText(c.Server), c.counts(), c.Why))
	}
	if len(losers) > 0 {
		b.WriteString("; not to " + strings.Join(losers[:min(len(losers), shownLosers)], ", "))
	}
	if more := len(losers) - shownLosers; more > 0 {
		fmt.Fprintf(b, ", and %d more, which --json shows", more)
	}
}

// counts are what a scheduler looks at.
func (c *Candidate) counts() string {
	text := fmt.Sprintf("weight %d, ActiveConn %d, InActConn %d", c.Weight, c.Active, c.Inactive)
	if c.Score != nil {
		text += ", score " + c.Score.String()
	}
	return text
}

// String writes the fraction, as a whole number where it is one.
func (s *Score) String() string {
	if s.Den == 1 {
		return fmt.Sprint(s.Num)
	}
	return fmt.Sprintf("%d/%d", s.Num, s.Den)
}

func (s *StateChange) describe(b *strings.Builder) {
	fmt.Fprintf(b, "%s, server %s: ", s.Flow, serverText(s.Server))
	switch {
	case s.Ended:
		fmt.Fprintf(b, "ended in %s", s.Before)
	case s.Began:
		fmt.Fprintf(b, "began: %s, by a %s", s.After, s.Direction)
	default:
		fmt.Fprintf(b, "%s -> %s, by a %s", s.Before, s.After, s.Direction)
	}
}

func (d *Drop) describe(b *strings.Builder) {
	if d.Flow != nil {
		b.WriteString(d.Flow.String())
	} else {
		b.WriteString("a packet")
	}
	if d.Flags != "" {
		fmt.Fprintf(b, " [%s]", d.Flags)
	}
	fmt.Fprintf(b, " %d bytes", d.Bytes)
	if d.Server != "" {
		fmt.Fprintf(b, ", server %s", serverText(d.Server))
	}
	if d.Decision != 0 {
		fmt.Fprintf(b, ", decision %d", d.Decision)
	}
	fmt.Fprintf(b, ": %s: %s", d.Verdict, d.Means)
	if d.Advice != "" {
		fmt.Fprintf(b, ". What to do: %s", d.Advice)
	}
}
