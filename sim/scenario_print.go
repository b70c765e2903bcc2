package sim

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"pktdirector/dataplane"
	"pktdirector/sched"
)

// Print writes what a difference is, both sides next to each other; lines that
// differ are marked.
func (r *Report) Print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", r.Scenario.ID, r.Scenario.Title)
	switch {
	case r.Err != nil:
		fmt.Fprintf(&b, "  %v\n", r.Err)
	case r.First != nil:
		d := r.First
		e := r.Scenario.Events[d.Event]
		fmt.Fprintf(&b, "  event %d%s: %s\n  %s differs:\n", d.Event, at(e), e, d.What)
		sideBySide(&b, d.Expected, d.Got)
	}
	if r.Departed > 0 {
		fmt.Fprintf(&b, "  %d of %d decisions are explained otherwise than they were taken\n", r.Departed, r.Decisions)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func at(e *Event) string {
	if e.T == nil {
		return ""
	}
	return fmt.Sprintf(" at %.3f s", *e.T)
}

// equalContext is how many equal lines are shown around those that differ.
const equalContext = 3

func sideBySide(b *strings.Builder, want, got []string) {
	width := len("expected")
	for _, line := range want {
		width = max(width, utf8.RuneCountInString(line))
	}
	fmt.Fprintf(b, "      %-*s   %s\n", width, "expected", "got")
	line := func(list []string, i int) string {
		if i < len(list) {
			return list[i]
		}
		return ""
	}
	n := max(len(want), len(got))
	differs := func(i int) bool {
		return i >= 0 && i < n && (line(want, i) != line(got, i) || i >= len(want) || i >= len(got))
	}
	near := func(i int) bool {
		for j := i - equalContext; j <= i+equalContext; j++ {
			if differs(j) {
				return true
			}
		}
		return false
	}
	skipped := 0
	for i := range n {
		if n > 4*equalContext && !near(i) {
			skipped++
			continue
		}
		if skipped > 0 {
			fmt.Fprintf(b, "      ... %d equal lines\n", skipped)
			skipped = 0
		}
		mark := " "
		if differs(i) {
			mark = "!"
		}
		fmt.Fprintf(b, "    %s %-*s | %s\n", mark, width, line(want, i), line(got, i))
	}
	if skipped > 0 {
		fmt.Fprintf(b, "      ... %d equal lines\n", skipped)
	}
}

// PrintResult writes what an event led to; before is the table and the
// connections as last printed, which are not repeated.
func PrintResult(w io.Writer, e *Event, r *Result, before *Result) error {
	var b strings.Builder
	block := func(text []string) {
		for _, line := range text {
			b.WriteString("    " + line + "\n")
		}
	}
	switch e.Op {
	case "ipvsadm":
		block(lines(r.Stdout))
		block(lines(r.Stderr))
		if *r.RC != 0 {
			fmt.Fprintf(&b, "    exit code %d\n", *r.RC)
		}
	case "pkt":
		block(outLines(r.Out))
	case "bulk":
		block(bulkLines(r.Results))
	case "frame":
		block(frameLines(r.Out))
	}
	if r.Table != nil {
		if text := tableLines(r.Table); strings.Join(text, "\n") != strings.Join(tableLines(before.Table), "\n") {
			block(text)
		}
		before.Table = r.Table
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// PrintDecision writes a scheduling decision: every candidate, and why it won or
// lost.
func PrintDecision(w io.Writer, d *dataplane.Decision) error {
	var b strings.Builder
	e := &d.Explanation
	fmt.Fprintf(&b, "    decision: %s for %s, found by %s", d.Service, d.Flow, d.Found)
	if d.Mark != 0 {
		fmt.Fprintf(&b, "; the packet's mark is %d", d.Mark)
	}
	fmt.Fprintf(&b, "\n      decided by: %s\n      ties: %s\n", e.Rule, e.Tie)
	if e.Buckets > 0 {
		fmt.Fprintf(&b, "      place %d of %d", e.Bucket, e.Buckets)
		if e.Fallback != e.Bucket {
			fmt.Fprintf(&b, ", by fallback %d", e.Fallback)
		}
		b.WriteString("\n")
	}
	for i := range d.Explanation.Candidates {
		printCandidate(&b, &d.Explanation.Candidates[i])
	}
	if d.Pick == nil {
		b.WriteString("      nothing is available\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func printCandidate(b *strings.Builder, c *sched.Candidate) {
	mark := " "
	if c.Picked {
		mark = "*"
	}
	score := ""
	if c.Score.Den > 0 {
		score = fmt.Sprintf(" score %d/%d", c.Score.Num, c.Score.Den)
	}
	fmt.Fprintf(b, "      %s %s weight %d active %d inact %d%s: %s\n", mark, c.Dest.Server, c.Weight, c.Active, c.InAct, score, c.Why)
}
