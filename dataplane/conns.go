package dataplane

import (
	"time"

	"pktdirector/conntrack"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// ConnStatus is a connection, or a template, as a listing shows it.
type ConnStatus struct {
	Proto                             packet.Proto
	Client, Virtual, Dest             packet.Addr
	ClientPort, VirtualPort, DestPort uint16
	State                             conntrack.State
	Method                            lvs.Method
	Template                          bool
	Expires                           time.Duration // engine time at which it ends
	// Source and SourcePort stand for the client towards a FullNAT server; zero
	// with any other.
	Source     packet.Addr
	SourcePort uint16

	Began time.Duration // engine time, to 128 ms
	Last  time.Duration // engine time of its last packet: see conntrack.Filter.Idle
	// Requests and Replies are what was counted; RepliesSeen tells whether
	// replies pass the director at all.
	Requests, Replies Traffic
	RepliesSeen       bool
}

// Traffic is packets and their bytes, IP headers included.
type Traffic struct{ Packets, Bytes uint64 }

// Conns yields every template and connection. A template's client port is 0;
// one of a firewall mark has protocol 0 and the mark as its virtual address.
func (d *Director) Conns(yield func(ConnStatus) bool) {
	d.SelectConns(conntrack.Filter{})(yield)
}

// SelectConns is Conns for those that a filter chooses. No lock is held while
// yield runs, and none for longer than a page of the table takes.
func (d *Director) SelectConns(f conntrack.Filter) func(yield func(ConnStatus) bool) {
	return func(yield func(ConnStatus) bool) {
		more := true
		for _, t := range []*conntrack.Table{d.templates, d.table} {
			if !more || !d.meant(t, &f) {
				continue
			}
			t.Select(d.wanted(t, f))(func(c conntrack.Conn) bool {
				more = yield(statusOf(t, &c))
				return more
			})
		}
	}
}

// meant reports whether a filter may choose entries of a table.
func (d *Director) meant(t *conntrack.Table, f *conntrack.Filter) bool {
	if t == d.templates {
		return f.Of(conntrack.Templates)
	}
	return f.Of(conntrack.Connections)
}

// wanted is the filter as the table asks it of its entries. One service's net of
// clients is read once, before any entry is locked.
func (d *Director) wanted(t *conntrack.Table, f conntrack.Filter) func(*conntrack.Conn) bool {
	m, dests := t.Matcher(f), d.dests.Load().all
	var widened func(*conntrack.Conn) bool
	if t == d.templates && f.Client.Net.IsValid() {
		nets := d.clientNets(packet.AddrFrom(f.Client.Net.Addr()))
		widened = func(c *conntrack.Conn) bool {
			// A destination that came meanwhile has no net here.
			return int(c.DestID) < len(dests) && nets[dests[c.DestID].Service] == c.Client
		}
	}
	return func(c *conntrack.Conn) bool {
		if f.Service != nil && (int(c.DestID) >= len(dests) || dests[c.DestID].Service != *f.Service) {
			return false
		}
		return m.Matches(c, widened)
	}
}

// clientNets returns for each service what its templates call a client.
func (d *Director) clientNets(client packet.Addr) map[lvs.ServiceKey]packet.Addr {
	nets := map[lvs.ServiceKey]packet.Addr{}
	for key, svc := range d.rules.Load().services {
		svc.mu.Lock()
		if svc.config.Persist > 0 && key.Is4() == client.Is4() {
			nets[key] = masked(&svc.config, client)
		}
		svc.mu.Unlock()
	}
	return nets
}

func statusOf(t *conntrack.Table, c *conntrack.Conn) ConnStatus {
	s := ConnStatus{
		Proto: c.Proto, Client: c.Client, Virtual: c.Virtual, Dest: c.Dest,
		ClientPort: c.ClientPort, VirtualPort: c.VirtualPort, DestPort: c.DestPort,
		State: c.State, Method: c.Method, Expires: c.Expires(), Source: c.Source, SourcePort: c.SourcePort,
		Template: c.Flags&conntrack.Template != 0, Began: c.Began(), Last: t.Last(c),
	}
	s.RepliesSeen = !s.Template && c.Flags&conntrack.NoOutput == 0
	s.Requests.Packets, s.Requests.Bytes = c.Counted(conntrack.Request)
	s.Replies.Packets, s.Replies.Bytes = c.Counted(conntrack.Reply)
	return s
}

// Now returns the engine time that a worker has reached.
func (d *Director) Now() time.Duration { return d.table.Now() }

// EndConns ends the connections that a filter chooses, and takes out of use the
// templates it chooses; it returns how many of each there were. With dry it only
// counts them. A packet of an ended connection is one without an entry; a client
// without template is scheduled like a new one. A template that connections hold
// is listed until they have ended, under ports 65535.
//
// An entry that is made meanwhile may be left out.
func (d *Director) EndConns(f conntrack.Filter, dry bool) (connections, templates int) {
	end := func(t *conntrack.Table) (n int) {
		switch wanted := d.wanted(t, f); {
		case !d.meant(t, &f):
		case !dry:
			n = t.Dismiss(wanted)
		default:
			t.Select(func(c *conntrack.Conn) bool {
				if !c.Dismissed() && wanted(c) {
					n++
				}
				return false
			})(func(conntrack.Conn) bool { return true })
		}
		return n
	}
	// Templates after connections: those that no connection holds any more end.
	connections = end(d.table)
	return connections, end(d.templates)
}
