package link

import (
	"time"

	"pktdirector/dataplane"
)

// shortage is what the log has been told of source ports that ran out.
type shortage struct {
	at      time.Duration
	refused uint64
}

// tellExhausted logs that FullNAT connections were refused for want of a source
// port, not more often than every noticeEvery.
func (r *runner) tellExhausted(told *shortage) {
	now := r.now()
	if told.at > 0 && now-told.at < noticeEvery {
		return
	}
	refused := r.director.Count(dataplane.PortsExhausted)
	if refused == told.refused {
		return
	}
	r.log.Warn("no source ports are left towards a FullNAT server: new connections are refused; add addresses under sources",
		"refused", refused-told.refused)
	*told = shortage{at: now, refused: refused}
}
