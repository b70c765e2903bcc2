package sched

import (
	"math/bits"

	"pktdirector/lvs"
)

// twoChoices is twos, "the power of two random choices". Two destinations are
// drawn at random by weight, and the one with less overhead per weight is taken,
// the first draw on a tie. A draw is a number from 0 to the sum of the eligible
// weights, both included; the list is walked subtracting weights, and the first
// destination where nothing is left is drawn.
type twoChoices struct {
	dests []*lvs.Destination
	state uint64 // of the generator
}

func (s *twoChoices) Update(dests []*lvs.Destination) { s.dests = dests }

// draw returns a number below n and the generator's next state (SplitMix64).
func draw(state uint64, n uint64) (uint64, uint64) {
	state += 0x9e3779b97f4a7c15
	z := state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	hi, _ := bits.Mul64(z^z>>31, n)
	return hi, state
}

func (s *twoChoices) Schedule(Request) *lvs.Destination {
	first, second, state := s.choices()
	s.state = state
	return better(first, second)
}

// choices draws two destinations without changing the generator.
func (s *twoChoices) choices() (first, second *lvs.Destination, state uint64) {
	var total int64
	for _, d := range s.dests {
		if d.Eligible() {
			total += d.Weight()
		}
	}
	if total == 0 {
		return nil, nil, s.state
	}
	a, state := draw(s.state, uint64(total)+1)
	b, state := draw(state, uint64(total)+1)
	return s.at(int64(a)), s.at(int64(b)), state
}

// at returns the destination where a draw ends.
func (s *twoChoices) at(left int64) *lvs.Destination {
	for _, d := range s.dests {
		if !d.Eligible() {
			continue
		}
		if left -= d.Weight(); left <= 0 {
			return d
		}
	}
	return nil
}

func better(first, second *lvs.Destination) *lvs.Destination {
	if first != nil && second != nil && wlcCost(second).less(wlcCost(first)) {
		return second
	}
	return first
}

func (s *twoChoices) Explain(_ Request, e *Explanation) {
	first, second, _ := s.choices()
	pick := better(first, second)
	e.Rule, e.Tie = "the less loaded of two random draws", "of equals the one drawn first"
	e.each(s.dests, func(d *lvs.Destination, c *Candidate) {
		c.Score = wlcCost(d)
		switch {
		case d == pick:
			c.Picked, c.Why = true, "drawn, and the less loaded"
		case d == first || d == second:
			c.Why = "drawn, but not less loaded"
		default:
			c.Why = "not drawn"
		}
	})
}
