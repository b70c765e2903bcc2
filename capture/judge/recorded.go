package judge

import (
	"sort"

	"pktdirector/packet"
)

// recorded answers questions about what a report was made of.
type recorded struct {
	own   map[packet.MAC]bool
	macs  map[packet.Addr]packet.MAC
	dips  map[packet.Addr]packet.Addr // where tunnels begin, by server
	conns map[client][]*conn          // in order of their beginning
	plans []Plan
}

// remembered keeps what Report's questions need.
func (f *inference) remembered() recorded {
	r := recorded{own: f.own, macs: map[packet.Addr]packet.MAC{}, dips: map[packet.Addr]packet.Addr{}, conns: map[client][]*conn{}, plans: f.plans()}
	for _, c := range f.conns {
		r.conns[c.client] = append(r.conns[c.client], c)
		if c.out != none && c.kind == tunMode {
			r.dips[c.server.addr] = c.paths[c.out].outerSrc
		}
		if c.out != none && c.server.addr.IsValid() && !c.paths[c.out].dst.IsZero() {
			r.macs[c.server.addr] = c.paths[c.out].dst
		}
	}
	return r
}

// Plans returns the services whose servers the capture shows.
func (r *Report) Plans() []Plan { return r.recorded.plans }

// DirectorSent reports whether frames from this MAC are the director's.
func (r *Report) DirectorSent(mac packet.MAC) bool { return r.recorded.own[mac] }

// MAC returns where the director sent packets for a real server; zero: not known.
func (r *Report) MAC(server packet.Addr) packet.MAC { return r.recorded.macs[server] }

// DIP returns the director's address that tunnels to a real server begin at; zero:
// there are none.
func (r *Report) DIP(server packet.Addr) packet.Addr { return r.recorded.dips[server] }

// ServersSeen reports whether the masqueraded servers' own replies were captured.
func (r *Report) ServersSeen() bool {
	for _, list := range r.recorded.conns {
		for _, c := range list {
			if c.out != none && c.paths[c.out].rep.packets > 0 && (c.kind == natMode || c.kind == fullnatMode) {
				return true
			}
		}
	}
	return false
}

// ServerOf returns the server that the capture shows for the connection of a
// client's packet at a time in ns since 1970; empty: none.
func (r *Report) ServerOf(f packet.Flow, at int64) string {
	list := r.recorded.conns[client{end{f.Src, f.SrcPort}, f.Proto}]
	// Clocks of two files differ a little.
	i := sort.Search(len(list), func(i int) bool { return list[i].first > at+synGap })
	for i--; i >= 0; i-- {
		if c := list[i]; c.service == (end{f.Dst, f.DstPort}) || !c.service.addr.IsValid() {
			return c.serverName()
		}
	}
	return ""
}
