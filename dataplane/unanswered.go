package dataplane

import (
	"time"

	"pktdirector/conntrack"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// unansweredFor is how long a client has waited for a server's SYN+ACK when it
// counts as unanswered: it has sent its SYN again once (RFC 6298: after 1 s), or
// twice.
const unansweredFor = 3 * time.Second

// Unanswered is a masqueraded server from which nothing comes back through the
// director for some connections.
type Unanswered struct {
	Service     lvs.ServiceKey
	Server      lvs.ServerKey
	Connections int // half-open for 3 s or longer, without one packet of the server
	Answered    int // others of the server, of which the director has seen a reply
	Beside      int // of Connections, those whose client is on the server's own segment
	// Client is one of those that wait; one on the server's segment where there is one.
	Client     packet.Addr
	ClientPort uint16
}

// Unanswered lists the masqueraded servers whose replies do not pass the director
// at engine time now, in no order. It looks at every connection.
func (d *Director) Unanswered(now time.Duration) []Unanswered {
	all := map[uint32]*Unanswered{}
	dests := d.dests.Load().all
	for c := range d.table.All {
		if c.Method != lvs.Masq || c.Proto != packet.TCP {
			continue
		}
		replies, _ := c.Counted(conntrack.Reply)
		waits := replies == 0 && c.State == conntrack.SynRecv && now-c.Began() >= unansweredFor
		if !waits && replies == 0 {
			continue
		}
		u := all[c.DestID]
		if u == nil {
			dest := dests[c.DestID]
			u = &Unanswered{Service: dest.Service, Server: dest.Server}
			all[c.DestID] = u
		}
		if !waits {
			u.Answered++
			continue
		}
		u.Connections++
		beside := d.beside(c.Client, c.Dest)
		if u.Connections == 1 || beside && u.Beside == 0 {
			u.Client, u.ClientPort = c.Client, c.ClientPort
		}
		if beside {
			u.Beside++
		}
	}
	var list []Unanswered
	for _, u := range all {
		if u.Connections > 0 {
			list = append(list, *u)
		}
	}
	return list
}

// beside reports whether two machines are on one segment with the director, so
// that they reach each other without it.
func (d *Director) beside(a, b packet.Addr) bool {
	host := d.host.Load()
	x, okX := host.routes.Lookup(a.Netip())
	y, okY := host.routes.Lookup(b.Netip())
	return okX && okY && x.Link >= 0 && x.Link == y.Link && !x.Gateway.IsValid() && !y.Gateway.IsValid()
}
