package lvs

import (
	"sync/atomic"
)

// Destination is a real server's live entry in one virtual service. Its
// connection counts are shared by all workers. It stays alive while
// connections refer to it, also after the operator removed the server.
type Destination struct {
	Service ServiceKey
	Server  ServerKey
	ID      uint32 // index in the director's list, what a connection entry holds

	method     atomic.Uint32
	tunnel     atomic.Uint32 // a packed TunnelInfo
	weight     atomic.Int64
	lastWeight atomic.Int64 // the last weight above 0
	active     atomic.Int64
	inactive   atomic.Int64
	// Persistent counts the templates that bind clients to the server.
	Persistent atomic.Int64
	available  atomic.Bool
	overload   atomic.Bool
	upper      atomic.Uint32
	lower      atomic.Uint32

	Stats Counters
	// Total is the counters of the service; nil while that is removed.
	Total atomic.Pointer[Counters]
}

// NewDestination returns an available destination for rs in the service.
func NewDestination(svc ServiceKey, rs RealServer, id uint32) *Destination {
	d := &Destination{Service: svc, Server: rs.ServerKey, ID: id}
	d.method.Store(uint32(rs.Method))
	d.tunnel.Store(rs.Tunnel.pack())
	d.weight.Store(int64(rs.Weight))
	d.lastWeight.Store(int64(rs.Weight))
	d.available.Store(true)
	d.upper.Store(rs.Upper)
	d.lower.Store(rs.Lower)
	return d
}

// Method returns the forwarding method that new connections get; connections
// keep the one they began with.
func (d *Destination) Method() Method { return Method(d.method.Load()) }

// SetMethod changes the forwarding method for new connections.
func (d *Destination) SetMethod(m Method) { d.method.Store(uint32(m)) }

// Tunnel returns the tunnel to the server, which every packet of the
// tunnelling method takes, those of older connections too.
func (d *Destination) Tunnel() TunnelInfo { return unpackTunnel(d.tunnel.Load()) }

// Weight returns the current weight; 0 means quiesced.
func (d *Destination) Weight() int64 { return d.weight.Load() }

// SetWeight changes the weight without touching any connection.
func (d *Destination) SetWeight(w int) {
	d.weight.Store(int64(w))
	if w > 0 {
		d.lastWeight.Store(int64(w))
	}
}

// LastWeight returns the last weight above 0, or 0 for a server that was added
// with weight 0 and never got another.
func (d *Destination) LastWeight() int64 { return d.lastWeight.Load() }

// Active returns ActiveConn.
func (d *Destination) Active() int64 { return d.active.Load() }

// Inactive returns InActConn.
func (d *Destination) Inactive() int64 { return d.inactive.Load() }

// Available reports whether the server is configured at present; a removed
// server's destination lives on, unavailable, for the connections it has.
func (d *Destination) Available() bool { return d.available.Load() }

// SetAvailable marks the server as configured or removed.
func (d *Destination) SetAvailable(yes bool) { d.available.Store(yes) }

// Overloaded reports the kernel's OVERLOAD flag, which thresholds set.
func (d *Destination) Overloaded() bool { return d.overload.Load() }

// Eligible reports whether a scheduler may choose d: weight above 0 and not
// overloaded.
func (d *Destination) Eligible() bool { return d.Weight() > 0 && !d.Overloaded() }

// Thresholds returns the upper and lower connection thresholds.
func (d *Destination) Thresholds() (upper, lower uint32) { return d.upper.Load(), d.lower.Load() }

// Edit takes over what the operator may change of a server that stays: method,
// tunnel, weight and thresholds. An upper threshold of 0 ends an overload at once; any
// other leaves it until the connections fall below the lower one.
func (d *Destination) Edit(rs RealServer) {
	d.SetMethod(rs.Method)
	d.tunnel.Store(rs.Tunnel.pack())
	d.SetWeight(rs.Weight)
	d.upper.Store(rs.Upper)
	d.lower.Store(rs.Lower)
	d.judge()
}

// Readd makes a removed server available again as it is added anew.
func (d *Destination) Readd(rs RealServer) {
	d.lastWeight.Store(0)
	d.Edit(rs)
	d.SetAvailable(true)
}

// judge sets or clears the OVERLOAD flag by the present counts. Templates do
// not count.
func (d *Destination) judge() {
	upper, lower := int64(d.upper.Load()), int64(d.lower.Load())
	total := d.Active() + d.Inactive()
	switch {
	case upper == 0:
		d.overload.Store(false)
	case total >= upper:
		d.overload.Store(true)
	case lower != 0 && total < lower, lower == 0 && total*4 < upper*3:
		d.overload.Store(false)
	}
}

// Bind counts a new connection; Unbind takes one that ended out again.
// active tells in which of the two counts it stands.
func (d *Destination) Bind(active bool) {
	d.Stats.Conns.Add(1)
	d.count(active).Add(1)
	if d.upper.Load() != 0 {
		d.judge()
	}
}

// Unbind takes a connection that ended out of the count it stands in.
func (d *Destination) Unbind(active bool) {
	d.count(active).Add(-1)
	if d.upper.Load() != 0 {
		d.judge()
	}
}

// Move takes a connection from one count to the other.
func (d *Destination) Move(toActive bool) {
	d.count(!toActive).Add(-1)
	d.count(toActive).Add(1)
}

func (d *Destination) count(active bool) *atomic.Int64 {
	if active {
		return &d.active
	}
	return &d.inactive
}
