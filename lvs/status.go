package lvs

import (
	"time"

	"pktdirector/packet"
)

// DestinationStatus is a destination as a listing shows it.
type DestinationStatus struct {
	Server       ServerKey
	Method       Method
	Tunnel       TunnelInfo // of the tunnelling method
	Weight       int64
	Active       int64
	InAct        int64
	Persistent   int64 // templates
	Upper, Lower uint32
	Stats        Stats
	Rates        Stats // a second
}

// ServiceStatus is a virtual service as a listing shows it, its destinations
// in the order in which schedulers walk them: newest first.
type ServiceStatus struct {
	Service      ServiceKey
	Scheduler    string
	Flags        SchedFlags
	Persist      time.Duration
	MaskBits     int
	Netmask      packet.Addr
	Engine       string
	OnePacket    bool
	Destinations []DestinationStatus
	Stats        Stats
	Rates        Stats // a second
}
