package dataplane

import (
	"encoding/binary"
	"net/netip"

	"pktdirector/conntrack"
	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/sched"
)

const (
	// ftpPort is the port whose services keep a client's connections to all
	// ports of the VIP together.
	ftpPort = 21
	// ftpDataPort is where servers call clients from (RFC 959 section 3.2).
	ftpDataPort = 20
	// unprivileged is the first port that any program may listen on.
	unprivileged = 1024
)

// templateFlow returns the key of the template that a client's packet looks
// for: protocol, the client's address under the service's mask, VIP and port. A
// service for every port, and FTP, has one template for all ports; one with a
// firewall mark has the mark in place of the VIP and no protocol.
func templateFlow(svc *lvs.VirtualService, f *packet.Flow) packet.Flow {
	t := packet.Flow{Proto: f.Proto, Src: masked(svc, f.Src), Dst: f.Dst}
	switch {
	case svc.Mark != 0:
		t.Proto, t.Dst = 0, markAddr(svc.Mark, svc.V6)
	case f.DstPort == svc.Port && svc.Port != ftpPort:
		t.DstPort = f.DstPort
	}
	return t
}

// masked returns a client's address under the service's persistence mask.
func masked(svc *lvs.VirtualService, a packet.Addr) packet.Addr {
	switch {
	case svc.Netmask.IsValid() && a.Is4():
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], a.V4()&svc.Netmask.V4())
		return packet.AddrFrom4(b[:])
	case svc.MaskBits == 0:
		return a
	}
	p, err := a.Netip().Prefix(svc.MaskBits)
	if err != nil {
		return a // more bits than the family has
	}
	return packet.AddrFrom(p.Addr())
}

// markAddr writes a firewall mark as an address, as ipvsadm shows it.
func markAddr(mark uint32, v6 bool) packet.Addr {
	b := [16]byte{12: byte(mark >> 24), 13: byte(mark >> 16), 14: byte(mark >> 8), 15: byte(mark)}
	if v6 {
		return packet.AddrFrom16(b[:])
	}
	return packet.AddrFrom(netip.AddrFrom4([4]byte(b[12:])))
}

// persistent finds or makes the template for a new connection of a persistent
// service, and returns the destination and what the connection holds the template
// by; without a destination, the verdict. svc.mu is held. A known client
// bypasses scheduler and thresholds.
func (w *Worker) persistent(svc *service, p *packet.Packet, d *Decision) (*lvs.Destination, conntrack.TemplateRef, Verdict) {
	key := templateFlow(&svc.config, &p.Flow)
	slot := w.d.templates.Lock(key.Proto, key.Src, 0)
	defer slot.Unlock()
	t := slot.Request(&key)
	if t != nil && !w.valid(t) {
		w.d.choices.abandoned.Add(1)
		slot.Rename(t)
		t = nil
	}
	if t == nil {
		if !slot.Room() {
			return nil, conntrack.TemplateRef{}, TableFull
		}
		dest := w.choose(svc, &p.Flow, w.explained(svc, d))
		if dest == nil {
			return nil, conntrack.TemplateRef{}, NoDestination
		}
		c := conntrack.Conn{
			Proto: key.Proto, Client: key.Src, Virtual: key.Dst, VirtualPort: key.DstPort, Dest: dest.Server.RIP,
			Method: dest.Method(), DestID: dest.ID, Flags: conntrack.Template,
		}
		c.SetLifetime(uint32(svc.config.Persist / conntrack.Tick))
		if key.DstPort != 0 {
			c.DestPort = dest.Server.Port
		}
		var err error
		if t, err = slot.Insert(c); err != nil {
			return nil, conntrack.TemplateRef{}, TableFull // templates have no reply key to collide
		}
		dest.Persistent.Add(1)
	} else {
		w.d.choices.template.Add(1)
		if d != nil {
			d.Template = true
			if w.explained(svc, d) != nil {
				sched.Bound(svc.dests, w.d.dests.Load().all[t.DestID], &d.Explanation)
			}
		}
	}
	slot.Renew(t, w.now)
	return w.d.dests.Load().all[t.DestID], slot.Hold(t), pending
}

// valid reports whether a template may be used for a new connection.
func (w *Worker) valid(t *conntrack.Conn) bool {
	dest := w.d.dests.Load().all[t.DestID]
	return dest.Available() && (dest.Weight() != 0 || w.d.tunables.Load().ExpireQuiescentTemplate == 0)
}
