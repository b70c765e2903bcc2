package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"pktdirector/control"
	"pktdirector/lvs"
)

// Times of a storm are durations since its start.

// stormSpan is a time from which to which something was so.
type stormSpan struct{ from, to time.Duration }

const stormForever = time.Duration(math.MaxInt64)

// stormFact is something that edits turn on and off. When exactly an edit takes
// effect nobody knows but the director: some time between its beginning and its end.
type stormFact struct {
	on            bool
	maybe, surely []stormSpan // those of surely are inside those of maybe
	since         int         // which edit turned it on
}

func (f *stormFact) set(on bool, began, ended time.Duration, edit int) {
	switch {
	case on == f.on:
		return
	case on:
		f.since = edit
		f.maybe = append(f.maybe, stormSpan{began, stormForever})
		f.surely = append(f.surely, stormSpan{ended, stormForever})
	default:
		f.maybe[len(f.maybe)-1].to = ended
		f.surely[len(f.surely)-1].to = began
	}
	f.on = on
}

// maybeWithin tells whether it may have been so at any moment from-to.
func (f *stormFact) maybeWithin(from, to time.Duration) bool {
	return f != nil && slices.ContainsFunc(f.maybe, func(s stormSpan) bool { return s.from <= to && s.to >= from })
}

// surelyAll tells whether it was so in all of from-to.
func (f *stormFact) surelyAll(from, to time.Duration) bool {
	return f != nil && slices.ContainsFunc(f.surely, func(s stormSpan) bool { return s.from <= from && s.to >= to })
}

// longest is the longest time from-to in which it may have been so.
func (f *stormFact) longest(from, to time.Duration) (d time.Duration) {
	for _, s := range f.maybe {
		d = max(d, min(s.to, to)-max(s.from, from))
	}
	return d
}

// stormSynRecv is the kernel's timeout of SYN_RECV, 60 s, less what passes between a
// connection's last packet and the removal of its server.
const stormSynRecv = 50 * time.Second

// stormServer is a real server of a service.
type stormServer struct {
	service lvs.ServiceKey
	server  lvs.ServerKey
}

// stormEdit is an edit that was made.
type stormEdit struct {
	n            int
	began, ended time.Duration
	words        string
}

func (e stormEdit) String() string {
	return fmt.Sprintf("edit %d at %v-%v: %s", e.n, e.began.Round(time.Millisecond), e.ended.Round(time.Millisecond), e.words)
}

// stormModel knows what the director was told, and from it which connections the
// kernel's rules keep. It belongs to the goroutine that edits.
type stormModel struct {
	run, file control.Config // what the director does, and what its file says
	servers   []lvs.ServerKey
	edits     []stormEdit

	absent   map[stormServer]*stormFact    // the service has no such server
	shut     map[stormServer]*stormFact    // or it is quiesced: new connections pass it by
	unserved map[lvs.ServiceKey]*stormFact // no server takes new connections, or there is no service
	sticky   map[lvs.ServiceKey]*stormFact // persistent
	expire   stormFact                     // expire_nodest_conn: connections end with their server
}

func newStormModel(c control.Config, servers []lvs.ServerKey, services []lvs.ServiceKey) *stormModel {
	m := &stormModel{servers: servers, absent: map[stormServer]*stormFact{}, shut: map[stormServer]*stormFact{},
		unserved: map[lvs.ServiceKey]*stormFact{}, sticky: map[lvs.ServiceKey]*stormFact{}}
	for _, s := range services {
		m.unserved[s], m.sticky[s] = new(stormFact), new(stormFact)
		for _, server := range servers {
			m.absent[stormServer{s, server}], m.shut[stormServer{s, server}] = new(stormFact), new(stormFact)
		}
	}
	m.file = c
	m.become(c, 0, 0)
	return m
}

// become notes that the director does something else after an edit.
func (m *stormModel) become(next control.Config, began, ended time.Duration) {
	m.run = next
	n := len(m.edits)
	for key, f := range m.unserved {
		s := stormService(&next.Ruleset, key)
		f.set(stormUsable(s) == 0, began, ended, n)
		m.sticky[key].set(s != nil && s.Persist > 0, began, ended, n)
		for _, server := range m.servers {
			rs := stormServerOf(s, server)
			m.absent[stormServer{key, server}].set(rs == nil, began, ended, n)
			m.shut[stormServer{key, server}].set(rs == nil || rs.Weight == 0, began, ended, n)
		}
	}
	m.expire.set(stormSetting(&next, "expire_nodest_conn") == 1, began, ended, n)
}

func stormService(r *lvs.Ruleset, key lvs.ServiceKey) *lvs.VirtualService {
	i := slices.IndexFunc(r.Services, func(s lvs.VirtualService) bool { return s.ServiceKey == key })
	if i < 0 {
		return nil
	}
	return &r.Services[i]
}

func stormServerOf(s *lvs.VirtualService, key lvs.ServerKey) *lvs.RealServer {
	if s == nil {
		return nil
	}
	i := slices.IndexFunc(s.Servers, func(rs lvs.RealServer) bool { return rs.ServerKey == key })
	if i < 0 {
		return nil
	}
	return &s.Servers[i]
}

// stormUsable counts the servers that take new connections at any time.
func stormUsable(s *lvs.VirtualService) (n int) {
	if s != nil {
		for _, rs := range s.Servers {
			if rs.Weight > 0 && rs.Upper == 0 {
				n++
			}
		}
	}
	return n
}

func stormSetting(c *control.Config, name string) int {
	for _, s := range c.Sysctl {
		if s.Name == name {
			n, _ := strconv.Atoi(s.Value)
			return n
		}
	}
	return 0
}

// excuse says by which rule of the kernel's a connection that failed was not kept;
// "": by none. There are four. A connection that is being made is refused where no
// server takes any. One that is made, or has found its server, ends only with that
// server, and only where expire_nodest_conn is on: without it its packets are
// dropped until the server is there again, which no end of a connection looks like.
// And where it is on, a SYN that comes again is scheduled anew if its server has been
// quiesced: two servers answer, and the client resets one. Last, a connection in SYN_RECV
// ends a minute after its last packet, and packets for a server that is away are none.
func (m *stormModel) excuse(c *stormConn) string {
	if c.connected == 0 && m.unserved[c.service].maybeWithin(c.began, c.ended) {
		return "no server took connections"
	}
	servers := c.servers()
	for _, server := range servers {
		at := stormServer{c.service, m.servers[server]}
		switch {
		case m.expired(m.absent[at], c):
			return "its server was removed under expire_nodest_conn"
		case c.connected == 0 && len(servers) > 1 && m.expired(m.shut[at], c):
			return "its SYN came again to a server that was quiesced, under expire_nodest_conn"
		case c.connected == 0 && m.absent[at].longest(c.began, c.ended) > stormSynRecv:
			return "it waited in SYN_RECV for a server that was away"
		}
	}
	return ""
}

// expired reports whether something of a connection's server may have been so while it
// lived, and expire_nodest_conn on at that moment.
func (m *stormModel) expired(f *stormFact, c *stormConn) bool {
	return slices.ContainsFunc(f.maybe, func(s stormSpan) bool {
		from, to := max(s.from, c.began), min(s.to, c.ended)
		return from <= to && m.expire.maybeWithin(from, to)
	})
}

// wrongServer says why no new connection should have met its server; "": it should.
func (m *stormModel) wrongServer(c *stormConn) string {
	if c.connected == 0 || m.sticky[c.service].maybeWithin(0, c.connected) {
		return "" // a persistent client stays with a server that is quiesced
	}
	at := stormServer{c.service, m.servers[c.server]}
	if m.shut[at].surelyAll(c.began, c.connected) {
		return fmt.Sprintf("it was sent to %s, which was quiesced or removed all the while", at.server)
	}
	return ""
}

// before lists the last edits before a moment, and those of a service among the many
// before them.
func (m *stormModel) before(at time.Duration, about ...string) string {
	const last, more = 3, 6
	var list []string
	for _, e := range slices.Backward(m.edits) {
		if e.began > at {
			continue
		}
		touches := slices.ContainsFunc(about, func(a string) bool { return a != "" && strings.Contains(e.words, a) })
		if len(list) < last || touches && len(list) < last+more {
			list = append(list, "      "+e.String())
		}
	}
	slices.Reverse(list)
	return strings.Join(list, "\n")
}

// stormText writes what must be the same in two configurations: order means nothing.
func stormText(c *control.Config) string {
	var lines []string
	for i := range c.Ruleset.Services {
		s := &c.Ruleset.Services[i]
		lines = append(lines, fmt.Sprintf("%s scheduler %s flags %d persistence %v", s.ServiceKey, s.Scheduler, s.Flags, s.Persist))
		for _, rs := range s.Servers {
			lines = append(lines, fmt.Sprintf("%s -> %s %s weight %d thresholds %d %d", s.ServiceKey, rs.ServerKey, rs.Method.Short(), rs.Weight, rs.Upper, rs.Lower))
		}
	}
	for _, s := range c.Sysctl {
		if s.Value != "0" { // the default of those that a storm changes
			lines = append(lines, s.Name+" "+s.Value)
		}
	}
	d := control.DefaultTimeouts()
	lines = append(lines, fmt.Sprint("timeouts ", cmp.Or(c.Timeouts.TCP, d.TCP), cmp.Or(c.Timeouts.TCPFin, d.TCPFin), cmp.Or(c.Timeouts.UDP, d.UDP)))
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
