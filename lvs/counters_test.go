package lvs_test

import (
	"testing"

	"pktdirector/lvs"
)

// The rates of a real kernel: 34 packets of 4360 bytes in and 22 of 20880 out,
// 2 connections, all within the first 2 s; shown after one step and after three.
func TestRatesAreTheKernels(t *testing.T) {
	var c lvs.Counters
	c.Conns.Add(2)
	c.In(34, 4360)
	c.Out(22, 20880)
	c.Estimate()
	if got, want := c.Rates(), (lvs.Stats{Conns: 0, InPkts: 4, OutPkts: 3, InBytes: 545, OutBytes: 2610}); got != want {
		t.Errorf("after one step %+v, want %+v", got, want)
	}
	c.Estimate()
	c.Estimate()
	if got, want := c.Rates(), (lvs.Stats{Conns: 0, InPkts: 2, OutPkts: 2, InBytes: 307, OutBytes: 1468}); got != want {
		t.Errorf("after three %+v, want %+v", got, want)
	}
}

// A steady rate is reached from below: 25 % after 2 s, 68 % after 8 s, 90 %
// after 16 s.
func TestRatesLagBehind(t *testing.T) {
	var c lvs.Counters
	for step := 1; step <= 8; step++ {
		c.In(2000, 200_000)
		c.Estimate()
		if want := map[int]uint64{1: 250, 4: 684, 8: 900}[step]; want != 0 && c.Rates().InPkts != want {
			t.Errorf("after %d s of 1000 packets a second: %d, want %d", 2*step, c.Rates().InPkts, want)
		}
	}
}

// Zeroed counters count from then on; the rates do not notice.
func TestZero(t *testing.T) {
	var c lvs.Counters
	c.In(8, 800)
	c.Zero()
	if got := c.Read(); got != (lvs.Stats{}) {
		t.Errorf("zeroed, but %+v", got)
	}
	c.In(1, 60)
	c.Conns.Add(1)
	if got, want := c.Read(), (lvs.Stats{Conns: 1, InPkts: 1, InBytes: 60}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	c.Estimate()
	if got := c.Rates().InBytes; got != 107 { // 860/8, cut
		t.Errorf("%d bytes a second, want 107", got)
	}
}
