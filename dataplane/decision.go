package dataplane

import (
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/sched"
)

// Decision explains one scheduling decision: every candidate in list order,
// with its counts, weight, score and why it won or lost.
type Decision struct {
	Service    lvs.ServiceKey
	Flow       packet.Flow
	Candidates []sched.Candidate
}

// Picked returns the destination the decision fell on, or nil.
func (d *Decision) Picked() *lvs.Destination {
	for i := range d.Candidates {
		if d.Candidates[i].Picked {
			return d.Candidates[i].Dest
		}
	}
	return nil
}
