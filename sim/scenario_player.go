package sim

import (
	"encoding/hex"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"pktdirector/control"
	"pktdirector/dataplane"
	"pktdirector/packet"
)

// Options of a play.
type Options struct {
	Workers int    // that take turns with the events; 0: one
	Explain bool   // keep the scheduling decisions
	Seed    uint64 // of the engine
}

// Player plays a scenario's events one by one.
type Player struct {
	director  *dataplane.Director
	workers   []*dataplane.Worker
	host      dataplane.HostTable
	local     []netip.Prefix
	before    []Entry // the connections after the last event
	commander *control.Commander
	now       time.Duration
	turn      int
	steps     int                      // of virtual time
	readAt    map[*Event]time.Duration // of commands that have no time of their own
	learnt    time.Duration            // when the neighbours were last introduced

	// Decisions of the last event.
	Decisions []dataplane.Decision
}

// tickEvery is the longest step of virtual time around the end of a connection,
// idleTickEvery while none is near its end: nothing but defences and schedulers'
// memories, which look once a second, waits for a time then.
const (
	tickEvery     = 50 * time.Millisecond
	idleTickEvery = time.Second
)

// packetGap is the time between packets that have none of their own.
const packetGap = time.Millisecond

// NewPlayer returns a player at the scenario's beginning.
func NewPlayer(s *Scenario, o Options) (*Player, error) {
	if err := s.valid(); err != nil {
		return nil, err
	}
	d, host, err := newDirector(s, o)
	if err != nil {
		return nil, err
	}
	p := &Player{director: d, host: host, local: localAddrs(s, host), readAt: readTimes(s.Events)}
	p.commander = &control.Commander{Director: d, Connections: p.connections, Names: names(), Interfaces: func() []string { return links() }}
	for range max(1, o.Workers) {
		p.workers = append(p.workers, d.NewWorker())
	}
	introduce(d)
	p.advance(0)
	return p, nil
}

// Now returns the virtual time since the scenario's beginning.
func (p *Player) Now() time.Duration { return p.now }

// Play plays one event and returns what it led to.
func (p *Player) Play(e *Event) (Result, error) {
	p.Decisions = nil
	var r Result
	switch e.Op {
	case "note":
		return r, nil
	case "sleep":
		p.advance(p.timeOf(e, time.Duration(math.Round(e.Seconds*float64(time.Second)))))
	case "sysctl":
		p.advance(p.timeOf(e, 0))
		if err := setTunable(p.director, e.Name, e.Value); err != nil {
			return r, err
		}
	case "route":
		p.advance(p.timeOf(e, 0))
		route, err := routeOf(e.Args)
		if err != nil {
			return r, err
		}
		p.host.Routes = append(slices.Clone(p.host.Routes), route)
		p.director.SetHost(p.host)
	case "ipvsadm":
		p.advance(p.timeOf(e, 0))
		a := p.commander.Do(strings.Fields(e.Args), e.Stdin)
		r.RC, r.Stdout, r.Stderr = &a.Code, a.Stdout, a.Stderr
	case "proc":
		p.advance(p.timeOf(e, 0))
		var err error
		if r.proc, err = p.commander.Proc(e.File); err != nil {
			return r, err
		}
	case "pkt":
		p.advance(p.timeOf(e, packetGap))
		in, err := buildPacket(e, e.Src, e.Dst)
		if err != nil {
			return r, err
		}
		left, err := p.send(in, e.From)
		if err != nil {
			return r, err
		}
		r.Out = make([]Out, 0, len(left))
		for i := range left {
			r.Out = append(r.Out, left[i].out())
		}
	case "bulk":
		return p.bulk(e)
	case "frame":
		return p.frame(e)
	default:
		return r, e.valid()
	}
	p.finish(&r)
	return r, nil
}

// timeOf returns when an event happens: at its time, or some time after the
// last one.
func (p *Player) timeOf(e *Event, after time.Duration) time.Duration {
	if at, between := p.readAt[e]; between {
		return max(p.now, at)
	}
	if e.T == nil {
		return p.now + after
	}
	return max(p.now, time.Duration(math.Round(*e.T*float64(time.Second))))
}

// advance lets time pass.
func (p *Player) advance(to time.Duration) {
	next := p.nextEnd(to)
	for {
		step := tickEvery
		if p.now+idleTickEvery < next {
			step = idleTickEvery
		}
		p.now = min(p.now+step, to)
		p.steps++
		last := p.now >= to
		if last && p.now-p.learnt >= neighbourTrust { // nobody asks before
			introduce(p.director)
			p.learnt = p.now
		}
		p.workers[0].Tick(p.now) // only announcements and questions about neighbours
		if last {
			return
		}
		if p.now >= next {
			next = p.nextEnd(to)
		}
	}
}

// nextEnd is when the first connection or template ends unless a packet comes;
// later than to when none ends by then.
func (p *Player) nextEnd(to time.Duration) time.Duration {
	next := to + 2*idleTickEvery
	if to-p.now <= tickEvery {
		return next // one step
	}
	p.director.Conns(func(c dataplane.ConnStatus) bool {
		next = min(next, c.Expires)
		return true
	})
	return next
}

// bulk plays many packets, spread over the time since the last event.
func (p *Player) bulk(e *Event) (Result, error) {
	n := time.Duration(len(e.Results))
	began, end := p.now, p.timeOf(e, n*packetGap)
	r := Result{Results: make([]Bulk, 0, n)}
	for i, one := range e.Results {
		p.advance(began + (end-began)*time.Duration(i+1)/n)
		in, err := buildPacket(e, one.Src, one.Dst)
		if err != nil {
			return r, fmt.Errorf("results[%d]: %w", i, err)
		}
		left, err := p.send(in, "client")
		if err != nil {
			return r, err
		}
		outs := make([]Out, 0, len(left))
		for j := range left {
			outs = append(outs, left[j].out())
		}
		r.Results = append(r.Results, Bulk{one.Src, one.Dst, outcome(outs)})
	}
	p.finish(&r)
	return r, nil
}

// frame plays one Ethernet frame.
func (p *Player) frame(e *Event) (Result, error) {
	var r Result
	p.advance(p.timeOf(e, packetGap))
	raw, err := frameOf(e.In)
	if err != nil {
		return r, err
	}
	kind := packet.EtherType(uint16(raw[12])<<8 | uint16(raw[13]))
	in := newPacket(raw[etherHeader:], kind == packet.EtherIPv4)
	in.EtherType = kind
	copy(in.DstMAC[:], raw)
	copy(in.SrcMAC[:], raw[6:])
	left, err := p.send(in, e.From)
	if err != nil {
		return r, err
	}
	r.Out = make([]Out, 0, len(left))
	for i := range left {
		s := &left[i]
		side := [2]string{"client", "rs"}[s.link]
		from := directorMAC(s.link)
		frame := slices.Concat(s.mac[:], from[:], []byte{byte(s.kind >> 8), byte(s.kind)}, s.raw)
		r.Out = append(r.Out, Out{To: side, Frame: hex.EncodeToString(frame)})
	}
	p.finish(&r)
	return r, nil
}

// send takes one packet through the director and returns what left.
func (p *Player) send(in *packet.Packet, from string) ([]seen, error) {
	switch from {
	case "client":
		in.Link, in.SrcMAC = clientLink, routerMAC()
	case "rs":
		in.Link = serverLink
	default:
		return nil, validSide(from)
	}
	if in.DstMAC.IsZero() {
		in.DstMAC = directorMAC(in.Link)
	}
	switch {
	case in.DstMAC == directorMAC(in.Link):
	case in.DstMAC == packet.Broadcast:
		in.Class = packet.Broadcasted
	case in.DstMAC.IsMulticast():
		in.Class = packet.Multicasted
	default:
		in.Class = packet.OtherHost
	}
	w := p.workers[p.turn%len(p.workers)]
	p.turn++
	out := w.Process([]*packet.Packet{in}, p.now)
	p.Decisions = append(p.Decisions, w.Decisions...)
	var left []seen
	for _, q := range out {
		s := seen{link: q.Link, mac: q.DstMAC, kind: q.EtherType, raw: slices.Clone(q.Bytes())}
		if !s.neighbourDiscovery() {
			left = append(left, s)
		}
	}
	if len(left) == 0 && dataplane.Verdict(in.Verdict) == dataplane.NotOurs {
		left = p.routed(in)
	}
	return left, nil
}

// routed is what the director's host does with a packet that is not the
// director's: it forwards it as a router.
func (p *Player) routed(in *packet.Packet) []seen {
	src, dst := in.Flow.Src.Netip(), in.Flow.Dst.Netip()
	if slices.ContainsFunc(p.local, func(l netip.Prefix) bool { return l.Contains(src) }) {
		return nil // a host believes no other that has its own address
	}
	if in.Class != packet.ToUs || !dst.IsValid() || in.TTL <= 1 || slices.ContainsFunc(p.local, func(l netip.Prefix) bool { return l.Contains(dst) }) {
		return nil
	}
	best := -1
	for i, r := range p.host.Routes {
		if r.Dst.Contains(dst) && (best < 0 || r.Dst.Bits() > p.host.Routes[best].Dst.Bits()) {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	hop := in.Flow.Dst
	if gateway := p.host.Routes[best].Gateway; gateway.IsValid() {
		hop = gateway
	}
	s := seen{link: p.host.Routes[best].Link, kind: in.EtherType, mac: neighbourMAC(p.host.Routes[best].Link, hop)}
	in.DecrementTTL()
	s.raw = slices.Clone(in.Bytes())
	return []seen{s}
}

// finish adds to a result how things stand after the event.
func (p *Player) finish(r *Result) {
	r.Table, r.Conns = p.table(), p.entries()
	r.lingering = lingering(p.before, r.Conns, p.now)
	p.before = r.Conns
}

// table lists the services as they are.
func (p *Player) table() []Row {
	rows := []Row{}
	for _, s := range p.director.Status() {
		row := Row{Service: s.Service.String(), Servers: []ServerRow{}}
		if s.Service.Mark != 0 {
			row.Service = fmt.Sprintf("FWM %d", s.Service.Mark)
		}
		for _, d := range s.Destinations {
			row.Servers = append(row.Servers, ServerRow{d.Server.String(), d.Weight, d.Active, d.InAct})
		}
		rows = append(rows, row)
	}
	return rows
}

// entries lists the connections as they are.
func (p *Player) entries() []Entry {
	list := []Entry{}
	p.director.Conns(func(c dataplane.ConnStatus) bool {
		left := max(c.Expires-p.now, 0)
		list = append(list, Entry{
			Proto:  control.ProtocolName(c.Proto),
			Client: packet.Endpoint(c.Client, c.ClientPort), Virtual: packet.Endpoint(c.Virtual, c.VirtualPort),
			Dest: packet.Endpoint(c.Dest, c.DestPort), State: c.State.String(),
			Expires: int64(left / time.Second), left: left.Seconds(), ends: c.Expires,
		})
		return true
	})
	slices.SortFunc(list, func(a, b Entry) int { return strings.Compare(a.key(), b.key()) })
	return list
}

// key names an entry without what changes in its life.
func (e *Entry) key() string { return e.Proto + " " + e.Client + " " + e.Virtual + " " + e.Dest }

// connections lists the entries as -Lc wants them.
func (p *Player) connections(yield func(control.Connection) bool) {
	p.director.Conns(func(c dataplane.ConnStatus) bool {
		return yield(control.Connection{
			Protocol: control.ProtocolName(c.Proto), State: c.State.String(),
			Client: c.Client.String(), ClientPort: c.ClientPort, VIP: c.Virtual.String(), Port: c.VirtualPort,
			Destination: c.Dest.String(), DestinationPort: c.DestPort,
			Expires: int64(max(c.Expires-p.now, 0) / time.Second),
		})
	})
}

// setTunable changes a setting of net.ipv4.vs.
func setTunable(d *dataplane.Director, name string, value Setting) error {
	return d.SetTunable(strings.TrimPrefix(name, "net.ipv4.vs."), string(value))
}
