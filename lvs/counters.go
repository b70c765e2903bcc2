package lvs

import (
	"sync"
	"sync/atomic"
	"time"
)

// Counters are what ipvsadm --stats shows. Packets and bytes count the IP
// length of what was balanced: requests in, replies out. A super-frame counts
// as the packets it stands for on the wire.
type Counters struct {
	Conns, InPkts, OutPkts, InBytes, OutBytes atomic.Uint64

	zero atomic.Pointer[Stats] // what was counted when Zero was called; nil: never

	mu        sync.Mutex // guards what follows
	estimated Stats      // the counters at the last Estimate
	estimates [5]int64   // in the order of Stats, scaled
}

// In counts n request packets of together bytes bytes.
func (c *Counters) In(n, bytes uint64) {
	c.InPkts.Add(n)
	c.InBytes.Add(bytes)
}

// Out counts n reply packets of together bytes bytes.
func (c *Counters) Out(n, bytes uint64) {
	c.OutPkts.Add(n)
	c.OutBytes.Add(bytes)
}

// Stats is a reading of Counters.
type Stats struct {
	Conns    uint64 `json:"conns"`
	InPkts   uint64 `json:"in_pkts"`
	OutPkts  uint64 `json:"out_pkts"`
	InBytes  uint64 `json:"in_bytes"`
	OutBytes uint64 `json:"out_bytes"`
}

// Read returns what was counted since Zero was called, or from the beginning.
func (c *Counters) Read() Stats {
	z := c.zero.Load() // first: what is counted meanwhile must not make it negative
	s := c.all()
	if z == nil {
		return s
	}
	return s.less(*z)
}

// Zero makes Read count from now on (ipvsadm -Z). The counters themselves go
// on, and with them the rates. It returns what Read would have.
func (c *Counters) Zero() Stats {
	now := c.all()
	if before := c.zero.Swap(&now); before != nil {
		return now.less(*before)
	}
	return now
}

func (c *Counters) all() Stats {
	return Stats{c.Conns.Load(), c.InPkts.Load(), c.OutPkts.Load(), c.InBytes.Load(), c.OutBytes.Load()}
}

// Plus returns the sums.
func (s Stats) Plus(t Stats) Stats {
	return Stats{s.Conns + t.Conns, s.InPkts + t.InPkts, s.OutPkts + t.OutPkts, s.InBytes + t.InBytes, s.OutBytes + t.OutBytes}
}

func (s Stats) less(t Stats) Stats {
	return Stats{s.Conns - t.Conns, s.InPkts - t.InPkts, s.OutPkts - t.OutPkts, s.InBytes - t.InBytes, s.OutBytes - t.OutBytes}
}

// EstimateEvery is how often Estimate is to be called.
const EstimateEvery = 2 * time.Second

// The kernel keeps rates as whole numbers: conns and packets a second times
// 2^10, bytes a second times 2^5. What was counted in 2 s is therefore shifted by
// one bit less.
const (
	countBits = 10
	byteBits  = 5
)

// Estimate moves the rates on by one step. It is to be called every
// EstimateEvery: a quarter of the distance between the old rate and that of the
// last 2 s is added to the old.
func (c *Counters) Estimate() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.all()
	d := now.less(c.estimated)
	c.estimated = now
	for i, rate := range [5]uint64{d.Conns << (countBits - 1), d.InPkts << (countBits - 1), d.OutPkts << (countBits - 1), d.InBytes << (byteBits - 1), d.OutBytes << (byteBits - 1)} {
		c.estimates[i] += (int64(rate) - c.estimates[i]) / 4
	}
}

// Rates returns conns, packets and bytes a second, as ipvsadm --rate shows
// them: a moving average that lags some 10 s behind.
func (c *Counters) Rates() Stats {
	c.mu.Lock()
	e := c.estimates
	c.mu.Unlock()
	count := func(n int64) uint64 { return uint64(n+1<<(countBits-1)-1) >> countBits }
	bytes := func(n int64) uint64 { return uint64(n+1<<(byteBits-1)-1) >> byteBits }
	return Stats{count(e[0]), count(e[1]), count(e[2]), bytes(e[3]), bytes(e[4])}
}
