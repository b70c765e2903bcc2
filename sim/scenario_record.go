package sim

import (
	"fmt"
	"math"
	"slices"
)

// Record plays a scenario and returns it with every result filled in: the
// table where it changed, and the connections where the event had them or conns
// asks for them.
func Record(s *Scenario, o Options, conns bool) (*Scenario, error) {
	p, err := NewPlayer(s, o)
	if err != nil {
		return nil, err
	}
	filled := *s
	filled.Events = nil
	var shown []string
	for i, e := range s.Events {
		got, err := p.Play(e)
		if err != nil {
			return nil, fmt.Errorf("event %d (%s): %w", i, e, err)
		}
		c := *e
		hadConns := e.Conns != nil
		c.Result = got
		if e.Op == "proc" {
			c.Text = got.proc
		}
		if e.Op != "note" {
			t := math.Round(p.Now().Seconds()*1000) / 1000
			c.T = &t
		}
		if text := tableLines(got.Table); got.Table == nil || slices.Equal(text, shown) {
			c.Table = nil
		} else {
			shown = text
		}
		if !hadConns && !conns {
			c.Conns = nil
		}
		filled.Events = append(filled.Events, &c)
	}
	return &filled, nil
}
