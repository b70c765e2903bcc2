package lvs

import (
	"sync/atomic"

	"pktdirector/image"
)

// The Carry methods write values into an image of a director, or read them back.
// A field is carried by its line here; a test fails for one that is forgotten.

// Carry carries the key.
func (k *ServiceKey) Carry(x *image.Codec) {
	image.Num(x, &k.Proto)
	x.Addr(&k.VIP)
	image.Num(x, &k.Port)
	image.Num(x, &k.Mark)
	x.Bool(&k.V6)
}

// Carry carries the key.
func (k *ServerKey) Carry(x *image.Codec) {
	x.Addr(&k.RIP)
	image.Num(x, &k.Port)
}

// Carry carries the tunnel; what is read is one that there can be.
func (t *TunnelInfo) Carry(x *image.Codec) {
	image.Num(x, &t.Type)
	image.Num(x, &t.Checksum)
	image.Num(x, &t.Port)
	if err := t.Validate(); x.Reads() && err != nil {
		x.Fail("%v", err)
	}
}

// Carry carries the service without its servers, whose destinations are carried
// by themselves.
func (s *VirtualService) Carry(x *image.Codec) {
	s.ServiceKey.Carry(x)
	x.Text(&s.Scheduler)
	image.Num(x, &s.Flags)
	image.Num(x, &s.Persist)
	image.Num(x, &s.MaskBits)
	x.Addr(&s.Netmask)
	x.Text(&s.Engine)
	x.Bool(&s.OnePacket)
	x.Bool(&s.ClampMSS)
	s.Sources.Carry(x)
}

// Carry carries the sources.
func (s *Sources) Carry(x *image.Codec) {
	image.List(x, &s.Addrs, 16, (*image.Codec).Addr)
	s.Ports.Carry(x)
	x.Bool(&s.TOA)
}

// Carry carries the range.
func (r *PortRange) Carry(x *image.Codec) {
	image.Num(x, &r.From)
	image.Num(x, &r.To)
}

// Carry carries the rule.
func (r *MarkRule) Carry(x *image.Codec) {
	image.List(x, &r.Src, 18, (*image.Codec).Prefix)
	image.List(x, &r.Dst, 18, (*image.Codec).Prefix)
	image.Num(x, &r.Proto)
	image.List(x, &r.Ports, 4, func(x *image.Codec, p *PortRange) { p.Carry(x) })
	image.Num(x, &r.Link)
	image.Num(x, &r.VLAN)
	image.Num(x, &r.Mark)
}

// Carry carries the reading.
func (s *Stats) Carry(x *image.Codec) {
	for _, n := range []*uint64{&s.Conns, &s.InPkts, &s.OutPkts, &s.InBytes, &s.OutBytes} {
		image.Num(x, n)
	}
}

// Carry carries the counters with their rates. What is counted meanwhile is
// missing in some and there in others.
func (c *Counters) Carry(x *image.Codec) {
	zero, counted := c.zero.Load(), c.all()
	zeroed := zero != nil
	if !zeroed {
		zero = &Stats{}
	}
	since := *zero
	x.Bool(&zeroed)
	since.Carry(x)
	counted.Carry(x)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.estimated.Carry(x)
	for i := range c.estimates {
		image.Num(x, &c.estimates[i])
	}
	if !x.Reads() {
		return
	}
	if zeroed {
		c.zero.Store(&since)
	}
	for to, n := range map[*atomic.Uint64]uint64{&c.Conns: counted.Conns, &c.InPkts: counted.InPkts, &c.OutPkts: counted.OutPkts, &c.InBytes: counted.InBytes, &c.OutBytes: counted.OutBytes} {
		to.Store(n)
	}
}

// Carry carries the destination but its ID and its counts of connections and
// templates: those follow from the connections, by Recount.
func (d *Destination) Carry(x *image.Codec) {
	d.Service.Carry(x)
	d.Server.Carry(x)
	method, tunnel := d.Method(), d.Tunnel()
	image.Num(x, &method)
	tunnel.Carry(x)
	weight, last := d.Weight(), d.LastWeight()
	image.Num(x, &weight)
	image.Num(x, &last)
	upper, lower := d.Thresholds()
	image.Num(x, &upper)
	image.Num(x, &lower)
	available, overload := d.Available(), d.Overloaded()
	x.Bool(&available)
	x.Bool(&overload)
	d.Stats.Carry(x)
	if !x.Reads() {
		return
	}
	if method > FullNAT || weight < 0 || weight > MaxWeight || last < 0 || last > MaxWeight {
		x.Fail("destination %s: no method %d, or no weights %d and %d", d.Server, method, weight, last)
		return
	}
	d.SetMethod(method)
	d.tunnel.Store(tunnel.pack())
	d.weight.Store(weight)
	d.lastWeight.Store(last)
	d.upper.Store(upper)
	d.lower.Store(lower)
	d.available.Store(available)
	d.overload.Store(overload)
}

// Recount counts a connection that was carried over. Neither the counters nor
// the OVERLOAD flag change: both were carried, too.
func (d *Destination) Recount(active bool) { d.count(active).Add(1) }

// RealServer returns the destination as an operator would write it.
func (d *Destination) RealServer() RealServer {
	upper, lower := d.Thresholds()
	return RealServer{ServerKey: d.Server, Method: d.Method(), Tunnel: d.Tunnel(), Weight: int(d.Weight()), Upper: upper, Lower: lower}
}
