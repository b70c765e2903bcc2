package dataplane

import (
	"time"

	"pktdirector/conntrack"
)

// Timeouts returns the timeouts of TCP, of TCP after a FIN, and of UDP as
// SetTimeouts set them, or the kernel's.
func (d *Director) Timeouts() (tcp, tcpFin, udp time.Duration) {
	t := d.table.Timeouts()
	return t[conntrack.Established], t[conntrack.FinWait], t[conntrack.UDP]
}

// Changed is a setting that is not the kernel's default.
type Changed struct {
	Name  string // without net.ipv4.vs
	Value int
}

// Changed lists the settings that are not the kernel's defaults, in the order of
// Settings. A defence that waits for memory to run low shows as what was set (1),
// whether it is on at the moment (2) or not.
func (t Tunables) Changed() []Changed {
	for _, mode := range []*int{&t.DropEntry, &t.DropPacket, &t.SecureTCP} {
		if *mode == modeActive {
			*mode = modeAutomatic
		}
	}
	var changed []Changed
	for _, s := range Settings() {
		if value := *s.field(&t); value != s.Default {
			changed = append(changed, Changed{s.Name, value})
		}
	}
	return changed
}
