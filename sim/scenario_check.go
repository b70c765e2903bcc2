package sim

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"pktdirector/dataplane"
)

// Difference is where a play departs from the record.
type Difference struct {
	Event int    // index in Scenario.Events
	What  string // of the result: out, table, conns and so on
	// Expected and Got are the two sides in lines.
	Expected, Got []string
}

// Report is the outcome of checking one scenario.
type Report struct {
	Scenario *Scenario
	First    *Difference // nil: all is as recorded
	Err      error       // the scenario cannot be played to its end
	Events   int         // played
	// Decisions and Departed count the scheduling decisions, and those whose
	// explanation names another winner than the pick.
	Decisions, Departed int
	Picks               []string // what each decision picked, "-" for nothing
}

// OK reports whether everything was as recorded.
func (r *Report) OK() bool { return r.First == nil && r.Err == nil && r.Departed == 0 }

// Check plays a scenario up to the first difference from its record.
func Check(s *Scenario, o Options) Report {
	r := Report{Scenario: s}
	p, err := NewPlayer(s, o)
	if err != nil {
		r.Err = err
		return r
	}
	var shown []Row
	for i, e := range s.Events {
		got, err := p.Play(e)
		if err != nil {
			r.Err = fmt.Errorf("event %d (%s): %w", i, e, err)
			return r
		}
		r.Events++
		for j := range p.Decisions {
			r.count(&p.Decisions[j])
		}
		if e.Table != nil {
			shown = e.Table
		}
		if d := compare(e, &got, shown); d != nil {
			d.Event = i
			r.First = d
			return r
		}
	}
	return r
}

// count takes a decision and holds its explanation against the pick.
func (r *Report) count(d *dataplane.Decision) {
	r.Decisions++
	pick := "-"
	if d.Pick != nil {
		pick = d.Pick.Server.String()
	}
	r.Picks = append(r.Picks, pick)
	if d.Explanation.Picked() != d.Pick {
		r.Departed++
	}
}

// compare holds a result against the record; shown is the table as it was last
// recorded. A result that was not recorded is not compared.
func compare(e *Event, got *Result, shown []Row) *Difference {
	want := &e.Result
	differ := func(what string, want, got []string) *Difference {
		if slices.Equal(want, got) {
			return nil
		}
		return &Difference{What: what, Expected: want, Got: got}
	}
	if want.RC != nil && got.RC != nil {
		if d := differ("exit code", []string{fmt.Sprint(*want.RC)}, []string{fmt.Sprint(*got.RC)}); d != nil {
			d.Got = append(d.Got, lines(got.Stderr)...)
			return d
		}
		if d := differ("stderr", lines(want.Stderr), lines(got.Stderr)); d != nil {
			return d
		}
		if !sameText(e.Args, want.Stdout, got.Stdout) {
			return &Difference{What: "stdout", Expected: lines(want.Stdout), Got: lines(got.Stdout)}
		}
	}
	if e.Op == "proc" && e.Text != "" && !sameProc(e.File, e.Text, got.proc) {
		return &Difference{What: "text", Expected: lines(e.Text), Got: lines(got.proc)}
	}
	if e.Op == "frame" && want.Out != nil && !sameFrames(e.In, want.Out, got.Out) {
		return &Difference{What: "out", Expected: frameLines(want.Out), Got: frameLines(got.Out)}
	}
	if e.Op == "pkt" && want.Out != nil {
		if d := differ("out", outLines(want.Out), outLines(got.Out)); d != nil {
			return d
		}
	}
	if e.Op == "bulk" && recorded(want.Results) {
		if d := differ("results", bulkLines(want.Results), bulkLines(got.Results)); d != nil {
			return d
		}
	}
	if shown != nil && got.Table != nil && !sameTable(shown, got) {
		return &Difference{What: "table", Expected: tableLines(shown), Got: tableLines(got.Table)}
	}
	if want.Conns != nil && !sameEntries(withoutLingering(want.Conns, got), got.Conns) {
		return &Difference{What: "conns", Expected: entryLines(want.Conns), Got: entryLines(got.Conns)}
	}
	return nil
}

func recorded(results []Bulk) bool {
	return slices.ContainsFunc(results, func(b Bulk) bool { return b.Outcome != "" })
}

// The kernel's clock ticks every 4 ms, a record's times are those of the script
// around it: what is read after an event may be read a little later, and after a
// silence once the wait for packets is over.
const (
	early = 0.05 // seconds
	late  = 0.15
)

// sameEntries compares two connection tables as sets.
func sameEntries(want, got []Entry) bool {
	if len(want) != len(got) {
		return false
	}
	order := func(a, b Entry) int {
		return strings.Compare(a.key()+a.State+fmt.Sprintf("%9d", a.Expires), b.key()+b.State+fmt.Sprintf("%9d", b.Expires))
	}
	want, got = slices.SortedFunc(slices.Values(want), order), slices.SortedFunc(slices.Values(got), order)
	for i := range want {
		w, g := &want[i], &got[i]
		if w.key() != g.key() || w.State != g.State || !nearly(w.Expires, g.left) {
			return false
		}
	}
	return true
}

// nearly reports whether seconds is what a reading of left, cut to whole
// seconds, may have given.
func nearly(seconds int64, left float64) bool {
	return int64(math.Floor(max(0, left-late))) <= seconds && seconds <= int64(math.Floor(left+early))
}

func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

func outLines(list []Out) []string {
	text := []string{}
	for _, o := range list {
		text = append(text, o.String())
	}
	if len(text) == 0 {
		text = append(text, "silence")
	}
	return text
}

// String describes a packet that left the director, in one line.
func (o Out) String() string {
	var b strings.Builder
	b.WriteString("to " + o.To)
	if o.RS != "" {
		b.WriteString(" " + o.RS)
	}
	if o.Tunnel != "" {
		fmt.Fprintf(&b, ": %s %s", o.Tunnel, o.Outer)
	}
	b.WriteString(":")
	switch icmp := o.ICMP + o.ICMP6; {
	case icmp != "":
		fmt.Fprintf(&b, " icmp %s", icmp)
	default:
		b.WriteString(" " + o.Proto)
	}
	fmt.Fprintf(&b, " %s > %s", o.Src, o.Dst)
	if o.Flags != nil {
		b.WriteString(" " + *o.Flags)
	}
	if o.Chunk != nil {
		fmt.Fprintf(&b, " chunk %d", *o.Chunk)
	}
	return b.String()
}

func bulkLines(list []Bulk) []string {
	var text []string
	for _, b := range list {
		text = append(text, b.Src+" > "+b.Dst+" "+b.Outcome)
	}
	return text
}

// tableLines writes services in a fixed order, their servers in their own.
func tableLines(rows []Row) []string {
	text := []string{}
	for _, r := range slices.SortedFunc(slices.Values(rows), func(a, b Row) int { return strings.Compare(a.Service, b.Service) }) {
		text = append(text, r.Service)
		for _, s := range r.Servers {
			text = append(text, fmt.Sprintf("  %s weight %d active %d inact %d", s.Addr, s.Weight, s.Active, s.InAct))
		}
	}
	return text
}

func entryLines(list []Entry) []string {
	text := []string{}
	for _, e := range list {
		text = append(text, fmt.Sprintf("%s %s > %s > %s %s %d", e.Proto, e.Client, e.Virtual, e.Dest, e.State, e.Expires))
	}
	slices.Sort(text)
	return text
}
