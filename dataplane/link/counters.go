package link

import (
	"log/slog"
	"sync/atomic"
	"time"

	"pktdirector/dataplane"
)

// counters are a link's own, shared by its readers and writers.
type counters struct {
	rxPackets, rxBytes, rxRingDrops, rxTruncated, rxOtherVLAN atomic.Uint64
	txPackets, txBytes, txNoBuffer, txTooBig, txDown, txError atomic.Uint64
	segmented, summed                                         atomic.Uint64
}

// Stats reads the counters.
func (c *counters) Stats() dataplane.LinkStats {
	return dataplane.LinkStats{
		RxPackets:   c.rxPackets.Load(),
		RxBytes:     c.rxBytes.Load(),
		TxPackets:   c.txPackets.Load(),
		TxBytes:     c.txBytes.Load(),
		RxRingDrops: c.rxRingDrops.Load(),
		RxTruncated: c.rxTruncated.Load(),
		RxOtherVLAN: c.rxOtherVLAN.Load(),
		TxNoBuffer:  c.txNoBuffer.Load(),
		TxTooBig:    c.txTooBig.Load(),
		TxDown:      c.txDown.Load(),
		TxError:     c.txError.Load(),
		Segmented:   c.segmented.Load(),
		Summed:      c.summed.Load(),
	}
}

// goOn has the counters go on from those of another process.
func (c *counters) goOn(s dataplane.LinkStats) {
	for counter, value := range map[*atomic.Uint64]uint64{
		&c.rxPackets: s.RxPackets, &c.rxBytes: s.RxBytes, &c.txPackets: s.TxPackets, &c.txBytes: s.TxBytes,
		&c.rxRingDrops: s.RxRingDrops, &c.rxTruncated: s.RxTruncated, &c.rxOtherVLAN: s.RxOtherVLAN,
		&c.txNoBuffer: s.TxNoBuffer, &c.txTooBig: s.TxTooBig, &c.txDown: s.TxDown, &c.txError: s.TxError,
		&c.segmented: s.Segmented, &c.summed: s.Summed,
	} {
		counter.Store(value)
	}
}

// quietLog allows at most one line a second about something that can happen at
// line rate, and says how often it happened since the line before.
type quietLog struct {
	last  atomic.Int64 // time of the last line, ns since 1970
	count atomic.Uint64
}

// due counts one event and reports whether a line may be written, and how
// many events it stands for.
func (q *quietLog) due() (times uint64, ok bool) {
	q.count.Add(1)
	now, last := time.Now().UnixNano(), q.last.Load()
	if now-last < int64(time.Second) || !q.last.CompareAndSwap(last, now) {
		return 0, false
	}
	return q.count.Swap(0), true
}

// logger returns log, or one that writes nothing.
func logger(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return log
}
