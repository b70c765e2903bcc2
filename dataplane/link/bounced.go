package link

import "time"

// bounces is what the log has been told of them.
type bounces struct {
	at    time.Duration
	count uint64
}

// tellBounced logs that requests went back to the machine they came from.
func (r *runner) tellBounced(told *bounces) {
	now, count := r.now(), r.director.Bounced()
	if count == told.count || told.at > 0 && now-told.at < noticeEvery {
		return
	}
	r.log.Warn("requests came from the machine that direct routing sends them to: it is a director itself, and packets pass to and fro; let one of the two stand by (\"pktdirector standby on\")",
		"packets", count-told.count)
	*told = bounces{at: now, count: count}
}
