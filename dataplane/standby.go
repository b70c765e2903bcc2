package dataplane

import (
	"pktdirector/conntrack"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// SetStandby makes the director stand by, or take over. One that stands by
// answers for no address and leaves every packet to its host, as the kernel does
// with backup_only, whatever services it has; its connections stay until they
// expire. When it takes over it announces the VIPs.
func (d *Director) SetStandby(standby bool) {
	if d.standby.Swap(standby) && !standby {
		d.announce.Store(true)
	}
}

// Standby reports whether the director stands by.
func (d *Director) Standby() bool { return d.standby.Load() }

// Bounced returns how many requests went back, by direct routing, to the machine
// that they came from. That machine is a director itself, and does not know that
// another one is in charge: they pass the packet to and fro until its TTL is used
// up.
func (d *Director) Bounced() uint64 { return d.bounced.Load() }

// noteBounce counts a request that is about to leave for the MAC it came from.
func (w *Worker) noteBounce(p *packet.Packet, c *conntrack.Conn, dir conntrack.Direction) {
	if c.Method == lvs.Route && dir == conntrack.Request && p.DstMAC == p.SrcMAC && !isICMP(p) && c.Client != c.Dest {
		w.d.bounced.Add(1)
	}
}
