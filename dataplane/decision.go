package dataplane

import (
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/sched"
)

// Decision explains one scheduling decision: the service and how it was found,
// whether the client's template decided, and every candidate in list
// order, with its counts, weight, score and why it won or lost.
type Decision struct {
	ID          uint64 // 1 for the first that the director kept, and so on
	Service     lvs.ServiceKey
	Mark        uint32 // the packet's firewall mark
	Flow        packet.Flow
	Found       Found // how the service was found
	Template    bool  // the client's template decided, not the scheduler
	Explanation sched.Explanation
	Pick        *lvs.Destination // nil: none was available
}

// explain returns where a scheduler's explanation goes; nil when nobody wants
// it.
func (d *Decision) explain() *sched.Explanation {
	if d == nil {
		return nil
	}
	return &d.Explanation
}

// Found tells by what a packet's service was found.
type Found uint8

// The ways to a service, in the order in which they are tried.
const (
	ByMark    Found = iota + 1 // the packet's firewall mark
	ByPort                     // address and port
	ByFTP                      // the FTP service of the address: a data connection
	ByAddress                  // the service for every port of the address
)

// String says it in words.
func (f Found) String() string {
	return [...]string{"", "firewall mark", "address and port", "address, as data of its FTP service", "address, every port"}[min(f, ByAddress)]
}

// foundBy tells by what match found a packet's service.
func foundBy(k lvs.ServiceKey, f *packet.Flow) Found {
	switch {
	case k.Mark != 0:
		return ByMark
	case k.Port == f.DstPort:
		return ByPort
	case k.Port != 0:
		return ByFTP
	}
	return ByAddress
}
