package conntrack

import (
	"net/netip"
	"time"

	"pktdirector/lvs"
	"pktdirector/packet"
)

// Kinds says which kinds of entries are meant.
type Kinds uint8

// The two kinds of entries, and both.
const (
	Connections Kinds = 1 << iota
	Templates         // of persistent services
	AllKinds    = Connections | Templates
)

// States is a set of states.
type States uint32

// AllStates is the set of all states.
const AllStates States = 1<<numStates - 1

// With returns the set with one state more.
func (s States) With(one State) States { return s | 1<<one }

// Has reports whether a state is in the set.
func (s States) Has(one State) bool { return s>>one&1 != 0 }

// Peer is one end of connections: a net of addresses, and a port. The zero Peer is
// any end; port 0 is any port.
type Peer struct {
	Net  netip.Prefix
	Port uint16
}

// Filter chooses entries of the tables. All that is set must be so; the zero
// Filter chooses every entry.
type Filter struct {
	Kinds Kinds // 0: AllKinds
	Proto packet.Proto
	// Client, VIP and Server are the ends that the entry names. A template's
	// client is a net; where its mask is known, a client in it is enough.
	Client, VIP, Server Peer
	Service             *lvs.ServiceKey // whose server the entry has; nil: any
	States              States          // one of them; 0: any
	Older, Younger      time.Duration   // age at least, and less than; 0: any
	// Idle is the least time without a packet, as far as the timeouts are those
	// of the entry's last packet; 0: any.
	Idle time.Duration
}

// IsZero reports whether the filter chooses every entry of its kinds.
func (f *Filter) IsZero() bool {
	bare := *f
	bare.Kinds = 0
	return bare == Filter{}
}

// Of reports whether a kind of entries is meant.
func (f *Filter) Of(k Kinds) bool { return f.Kinds == 0 || f.Kinds&k != 0 }

// Matcher is a Filter made ready to look at many entries.
type Matcher struct {
	Filter
	now                 time.Duration
	timeouts            *Timeouts
	client, vip, server addrNet
}

// Matcher makes a filter ready to look at entries of the table, at the time that
// the table has reached.
func (t *Table) Matcher(f Filter) *Matcher {
	return &Matcher{
		Filter: f, now: t.Now(), timeouts: t.timeouts.Load(),
		client: newAddrNet(f.Client.Net), vip: newAddrNet(f.VIP.Net), server: newAddrNet(f.Server.Net),
	}
}

// Matches reports whether the filter chooses an entry, its Service left out, of
// which a table knows nothing. widened, which may be nil, is asked whether the
// filter's client is one of a template's net.
func (m *Matcher) Matches(c *Conn, widened func(*Conn) bool) bool {
	kind := Connections
	if c.Flags&Template != 0 {
		kind = Templates
	}
	switch {
	case !m.Of(kind), m.Proto != 0 && c.Proto != m.Proto, m.States != 0 && !m.States.Has(c.State):
		return false
	case m.Client.Port != 0 && c.ClientPort != m.Client.Port, m.VIP.Port != 0 && c.VirtualPort != m.VIP.Port, m.Server.Port != 0 && c.DestPort != m.Server.Port:
		return false
	case !m.vip.has(c.Virtual), !m.server.has(c.Dest):
		return false
	case !m.client.has(c.Client) && (kind != Templates || widened == nil || !widened(c)):
		return false
	case m.Older != 0 && m.now-c.Began() < m.Older, m.Younger != 0 && m.now-c.Began() >= m.Younger:
		return false
	}
	return m.Idle == 0 || m.now-c.last(m.now, m.timeouts) >= m.Idle
}

// Last returns the engine time of an entry's last packet, and of a template's last
// connection, as far as the timeouts are still what they were then.
func (t *Table) Last(c *Conn) time.Duration { return c.last(t.Now(), t.timeouts.Load()) }

func (c *Conn) last(now time.Duration, timeouts *Timeouts) time.Duration {
	lives := timeouts[c.State]
	switch {
	case c.Flags&Template != 0:
		lives = time.Duration(c.Lifetime()) * Tick
	case c.State == None || c.State == SCTPNone:
		lives = newEntryTimeout
	}
	return max(min(c.Expires()-lives, now), c.Began())
}

// addrNet is a prefix that packet.Addrs are quickly looked up in. The zero addrNet
// has all.
type addrNet struct {
	hi, lo, maskHi, maskLo uint64
	v6                     bool // a net that packet.Addr's form of IPv4 addresses may be in
}

func newAddrNet(p netip.Prefix) addrNet {
	if !p.IsValid() {
		return addrNet{}
	}
	bits := p.Bits()
	if p.Addr().Is4() {
		bits += 96 // as packet.Addr holds it
	}
	n := addrNet{maskHi: ^uint64(0), maskLo: ^uint64(0), v6: p.Addr().Is6()}
	if bits < 64 {
		n.maskHi, n.maskLo = n.maskHi<<(64-bits), 0
	} else {
		n.maskLo <<= 128 - bits
	}
	hi, lo := packet.AddrFrom(p.Addr()).Words()
	n.hi, n.lo = hi&n.maskHi, lo&n.maskLo
	return n
}

func (n addrNet) has(a packet.Addr) bool {
	hi, lo := a.Words()
	return hi&n.maskHi == n.hi && lo&n.maskLo == n.lo && !(n.v6 && a.Is4())
}
