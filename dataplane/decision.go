package dataplane

import (
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/sched"
)

// Decision explains one scheduling decision: the service and how it was found,
// whether the client's template decided, and otherwise every candidate in list
// order, with its counts, weight, score and why it won or lost.
type Decision struct {
	Service     lvs.ServiceKey
	Mark        uint32 // the packet's firewall mark
	Flow        packet.Flow
	Template    bool // a template decided; there are no candidates then
	Explanation sched.Explanation
	Pick        *lvs.Destination // nil: none was available
}

// explain returns where a scheduler's explanation goes; nil when nobody wants
// it.
func (d *Decision) explain() func(*sched.Explanation) {
	if d == nil {
		return nil
	}
	return func(e *sched.Explanation) { d.Explanation = *e }
}
