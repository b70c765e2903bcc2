package lvs

import "time"

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
}

// ServiceStatus is a virtual service as a listing shows it, its destinations
// in the order in which schedulers walk them: newest first.
type ServiceStatus struct {
	Service      ServiceKey
	Scheduler    string
	Flags        SchedFlags
	Persist      time.Duration
	MaskBits     int
	OnePacket    bool
	Destinations []DestinationStatus
	Stats        Stats
}
