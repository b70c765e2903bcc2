package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/sched"
)

// picks is the sequence of a service's new connections.
type picks struct {
	service serviceEnd
	servers []serverKey // in order of address
	list    []pick
}

// pick is one decision, as the capture shows it.
type pick struct {
	conn   *conn
	server int
	reused bool // the client's port had a connection to the service before
	bound  bool // the client had a connection before
}

// Bounds of what is tried to explain picks.
const (
	explainServers = 5
	explainPicks   = 200
	explainWeight  = 8 // largest weight that is tried
	// chance is how unlikely something must be to be no chance.
	chance = 0.05
	// entryLife is how long an entry outlives its connection (TIME_WAIT).
	entryLife = 120 * int64(time.Second)
	resetLife = 10 * int64(time.Second) // CLOSE
)

// schedules says which schedulers explain the picks of each service, and finds what
// only the picks show.
func (f *inference) schedules(r *Report) []Finding {
	var out []Finding
	for _, p := range f.picksOf() {
		i := slices.IndexFunc(r.Services, func(s Service) bool {
			return s.VIP == endName(p.service.end) && s.Protocol == p.service.proto.String()
		})
		sticky := p.sticky()
		reuse := p.reuse(sticky)
		free := slices.DeleteFunc(slices.Clone(p.list), func(k pick) bool { return reuse && k.reused || sticky && k.bound })
		names := p.explained(free)
		for k := range names {
			if sticky {
				names[k] += " with persistence"
			}
		}
		if i >= 0 {
			r.Services[i].Explained = names
		}
		if reuse {
			out = append(out, f.reuseFinding(p))
		}
		if sticky {
			out = append(out, f.drained(p, free)...)
		}
		if want := f.opts.Scheduler; want != "" && len(free) > 0 && !slices.ContainsFunc(names, func(n string) bool { return strings.Fields(n)[0] == want }) {
			out = append(out, f.notExplained(p, free, want))
		}
	}
	return out
}

// picksOf sorts connections whose beginning and server are known by service.
func (f *inference) picksOf() []*picks {
	at := map[serviceEnd]*picks{}
	var list []*picks
	for _, c := range f.conns {
		key := serverKey{c.server, c.serverMAC}
		if key == (serverKey{}) || c.client.proto == packet.TCP && !c.hasISN || c.out == none {
			continue
		}
		service := serviceEnd{c.service, c.client.proto}
		p := at[service]
		if p == nil {
			p = &picks{service: service}
			at[service] = p
			list = append(list, p)
		}
		p.list = append(p.list, pick{conn: c})
		if !slices.Contains(p.servers, key) && len(p.servers) <= explainServers {
			p.servers = append(p.servers, key)
		}
	}
	for _, p := range list {
		slices.SortFunc(p.servers, func(a, b serverKey) int {
			return cmp.Or(b2i(b.addr.Less(a.addr))-b2i(a.addr.Less(b.addr)), cmp.Compare(a.port, b.port), slices.Compare(a.mac[:], b.mac[:]))
		})
		clients, ports := map[packet.Addr]bool{}, map[client]bool{}
		for i := range p.list {
			k := &p.list[i]
			k.server = slices.Index(p.servers, serverKey{k.conn.server, k.conn.serverMAC})
			k.reused, k.bound = ports[k.conn.client], clients[k.conn.client.addr]
			ports[k.conn.client], clients[k.conn.client.addr] = true, true
		}
		p.list = slices.DeleteFunc(p.list, func(k pick) bool { return k.server < 0 })
	}
	return list
}

// sticky reports whether clients always get the server they had, more often than by
// chance, as persistence has it.
func (p *picks) sticky() bool {
	server := map[packet.Addr]int{}
	odds := 1.0
	for _, k := range p.list {
		before, known := server[k.conn.client.addr]
		if known && before != k.server {
			return false
		}
		if known && !k.reused {
			odds /= float64(len(p.servers))
		}
		server[k.conn.client.addr] = k.server
	}
	return len(p.servers) > 1 && odds < chance
}

// reuse reports whether connections from a port that was used before go to the
// server of the old connection, though their clients are not bound to it.
func (p *picks) reuse(sticky bool) bool {
	if sticky || len(p.servers) < 2 {
		return false
	}
	server := map[client]int{}
	odds, n := 1.0, 0
	for _, k := range p.list {
		before, known := server[k.conn.client]
		if known && before != k.server {
			return false
		}
		if known {
			odds /= float64(len(p.servers))
			n++
		}
		server[k.conn.client] = k.server
	}
	if n == 0 || slices.ContainsFunc(hashing(), func(name string) bool { return p.explains(name, p.list[:min(len(p.list), explainPicks)]) }) {
		return false
	}
	// What explains the others simplest does not explain these: turns of schedulers
	// with weights may repeat as ports do.
	free := slices.DeleteFunc(slices.Clone(p.list), func(k pick) bool { return k.reused })
	if w, names := p.simplest(free); len(names) > 0 {
		// lc, and wlc with equal weights, take turns like rr, and pick the old server
		// anew, since its entry makes way. After two rounds rr is taken for granted.
		if slices.Contains(names, "rr") && len(free) > 2*len(p.servers) {
			names = []string{"rr"}
		}
		return (n > 1 || len(free) >= 3*len(p.servers)) && !slices.ContainsFunc(names, func(name string) bool { return p.explainsWith(name, w, p.list) })
	}
	const rare = 0.01
	return odds < rare && len(p.explained(p.list)) == 0
}

// simplest returns the smallest weights with which some schedulers explain picks,
// and these.
func (p *picks) simplest(list []pick) ([]int, []string) {
	if len(p.servers) > explainServers || len(list) < len(p.servers)+1 {
		return nil, nil
	}
	list = list[:min(len(list), explainPicks)]
	for _, w := range p.weights(list) {
		var names []string
		for _, name := range []string{"rr", "wrr", "lc", "wlc", "sed", "nq"} {
			if (name != "rr" && name != "lc" || slices.Max(w) == slices.Min(w)) && p.explainsWith(name, w, list) {
				names = append(names, name)
			}
		}
		if len(names) > 0 {
			return w, names
		}
	}
	return nil, nil
}

func (f *inference) reuseFinding(p *picks) Finding {
	var refs []Ref
	n := 0
	server := map[client]*conn{}
	var example *conn
	for _, k := range p.list {
		if k.reused {
			n++
			example = k.conn
			if len(refs) < 4*shown {
				refs = append(refs, server[k.conn.client].start, k.conn.start)
			}
		}
		server[k.conn.client] = k.conn
	}
	return Finding{Code: PortReuse, size: n, Packets: f.names(refs),
		Text: fmt.Sprintf("new connections to %s from a client port that was used before go to the server of the old connection, past the scheduler: all %d of them, such as %s to %s (conn_reuse_mode 0, or the old entry is not in TIME_WAIT)", endName(p.service.end), n, example.client, example.serverName()),
		Next: "on the director: sysctl net.ipv4.vs.conn_reuse_mode should be 1; with 0, clients with few ports stay with old servers, also with those that are drained. With the scheduler lc this is as it should be: the old entry made way"}
}

// drained finds servers that only clients get who are bound to them.
func (f *inference) drained(p *picks, firsts []pick) []Finding {
	var out []Finding
	if p.explainedSimply(firsts) {
		return nil
	}
	for i, server := range p.servers {
		last, had := -1, 0
		for n, k := range firsts {
			if k.server == i {
				last, had = n, had+1
			}
		}
		if had == 0 || last == len(firsts)-1 {
			continue
		}
		after, odds := len(firsts)-1-last, 1.0
		for range after {
			odds *= 1 - float64(had)/float64(last+1)
		}
		since := firsts[last+1].conn.first
		var refs []Ref
		bound, example := 0, (*conn)(nil)
		for _, k := range p.list {
			if k.server == i && k.bound && k.conn.first > since {
				bound++
				example = k.conn
				refs = append(refs, k.conn.start)
			}
		}
		if bound == 0 || after < 2*len(p.servers) || odds > chance {
			continue
		}
		name := (&conn{server: server.end, serverMAC: server.mac}).serverName()
		out = append(out, Finding{Code: WeightZero, size: bound, Packets: f.names(refs[:min(len(refs), 2*shown)]),
			Text: fmt.Sprintf("%s gets no new clients of %s any more (%d others since), but %d new connections of clients that are bound to it, such as %s: it seems to have weight 0, and persistence keeps its clients", name, endName(p.service.end), after, bound, example.client),
			Next: "on the director: ipvsadm -Ln (weight 0?), ipvsadm -Lnc (templates have client port 0); sysctl net.ipv4.vs.expire_quiescent_template=1 lets bound clients leave a server of weight 0"})
	}
	return out
}

// explainedSimply reports whether a scheduler with everyday weights, up to 3 to 1,
// picks like that: a server of little weight gets few clients, and is not drained.
func (p *picks) explainedSimply(firsts []pick) bool {
	if len(p.servers) > explainServers || len(firsts) == 0 {
		return false
	}
	const everyday = 3
	for _, w := range p.weights(firsts) {
		if slices.Max(w) > everyday {
			continue
		}
		for _, name := range []string{"rr", "wrr", "lc", "wlc", "sed", "nq"} {
			if p.explainsWith(name, w, firsts) {
				return true
			}
		}
	}
	return false
}

func (f *inference) notExplained(p *picks, free []pick, want string) Finding {
	var refs []Ref
	for _, k := range free[:min(len(free), 2*shown)] {
		refs = append(refs, k.conn.start)
	}
	return Finding{Code: NotExplained, size: len(free), Packets: f.names(refs),
		Text: fmt.Sprintf("the scheduler %s does not explain which servers the %d connections to %s got, whatever the order and, up to %d, the weights of the servers", want, len(free), endName(p.service.end), explainWeight),
		Next: "ipvsadm -Sn shows the scheduler, weights and flags; connections from before the capture, and edits during it, change picks, too"}
}

// explained lists the schedulers that would have picked the same.
func (p *picks) explained(list []pick) []string {
	n := len(p.servers)
	if n < 2 || n > explainServers || len(list) < n+1 {
		return nil
	}
	list = list[:min(len(list), explainPicks)]
	var names []string
	for i, name := range append([]string{"rr", "wrr", "lc", "wlc", "sed", "nq", "dh"}, hashing()...) {
		const cheap = 7 // tables of Maglev take time to fill
		if i > cheap && len(names) > 0 {
			break
		}
		if p.explains(name, list) {
			names = append(names, name)
		}
	}
	// Of those that agree without weights, the weighted ones say nothing more.
	for _, pair := range [][2]string{{"rr", "wrr"}, {"lc", "wlc"}} {
		if slices.Contains(names, pair[0]) {
			names = slices.DeleteFunc(names, func(s string) bool { return s == pair[1] })
		}
	}
	return names
}

// hashing lists the schedulers that pick by the addresses of a packet, with their
// flags as ipvsadm has them.
func hashing() []string { return []string{"sh", "sh -b sh-port", "mh", "mh -b mh-port"} }

func (p *picks) explains(name string, list []pick) bool {
	weights := [][]int{slices.Repeat([]int{1}, len(p.servers))}
	if name != "rr" && name != "lc" && name != "dh" {
		weights = p.weights(list)
	}
	return slices.ContainsFunc(weights, func(w []int) bool { return p.explainsWith(name, w, list) })
}

// explainsWith reports whether a scheduler with these weights, whatever the order of
// the servers, would have picked the same.
func (p *picks) explainsWith(name string, w []int, list []pick) bool {
	list = list[:min(len(list), explainPicks)]
	begins := 1
	if name == "rr" || name == "wrr" {
		for _, one := range w {
			begins += one
		}
	}
	for order := range orders(len(p.servers)) {
		for begin := range begins {
			if p.replay(name, order, w, begin, list) {
				return true
			}
		}
	}
	return false
}

// weights are those that the counts may come from.
func (p *picks) weights(list []pick) [][]int {
	n := make([]int, len(p.servers))
	for _, k := range list {
		n[k.server]++
	}
	most := slices.Max(n)
	seen := map[string]bool{}
	var out [][]int
	for top := 1; top <= explainWeight; top++ {
		w := make([]int, len(n))
		for i := range n {
			w[i] = max(1, (n[i]*top*2+most)/(2*most))
		}
		if key := fmt.Sprint(w); !seen[key] {
			seen[key] = true
			out = append(out, w)
		}
	}
	return out
}

// replay picks anew, with the counts that the connections of the capture make.
// begin is how many picks came before, of schedulers that go round.
func (p *picks) replay(name string, order, weights []int, begin int, list []pick) bool {
	dests := make([]*lvs.Destination, len(order))
	byServer := make([]*lvs.Destination, len(order))
	key := lvs.ServiceKey{Proto: p.service.proto, VIP: p.service.addr, Port: p.service.port}
	for at, server := range order {
		d := lvs.NewDestination(key, lvs.RealServer{ServerKey: lvs.ServerKey{RIP: p.servers[server].addr, Port: p.servers[server].port}, Weight: weights[server]}, uint32(at))
		dests[at], byServer[server] = d, d
	}
	config := sched.Config{}
	name, flag, _ := strings.Cut(name, " -b ")
	if strings.HasSuffix(flag, "-port") {
		config.Flags = lvs.FlagPort
	}
	s, err := sched.New(name, config, dests)
	if err != nil {
		return false
	}
	for range begin {
		s.Schedule(sched.Request{})
	}
	var ends []ending
	for _, k := range list {
		c := k.conn
		ends = settle(ends, c)
		flow := packet.Flow{Src: c.client.addr, SrcPort: c.client.port, Dst: c.service.addr, DstPort: c.service.port, Proto: c.client.proto}
		if s.Schedule(sched.Request{Flow: flow, Now: time.Duration(c.first)}) != byServer[k.server] {
			return false
		}
		tcp := c.client.proto == packet.TCP
		byServer[k.server].Bind(tcp)
		ends = append(ends, c.ending(byServer[k.server], tcp))
	}
	return true
}

// ending is when a connection's entry becomes inactive, and when it ends.
type ending struct {
	client     client
	dest       *lvs.Destination
	quiet, end int64
	active     bool
}

func (c *conn) ending(d *lvs.Destination, active bool) ending {
	e := ending{client: c.client, dest: d, active: active, quiet: 1<<63 - 1, end: 1<<63 - 1}
	for i := range c.paths {
		for _, h := range []*half{&c.paths[i].req, &c.paths[i].rep} {
			if h.fin {
				e.quiet, e.end = min(e.quiet, h.finAt), c.last+entryLife
			}
			if h.rst {
				e.quiet, e.end = min(e.quiet, h.resetAt), h.resetAt+resetLife
			}
		}
	}
	if !active {
		e.quiet, e.end = 0, c.last+udpIdle
	}
	return e
}

// settle lets time pass in the counts until next begins. An old entry of its client's
// port makes way first (conn_reuse_mode 1).
func settle(ends []ending, next *conn) []ending {
	left, now := ends[:0], next.first
	for _, e := range ends {
		if e.client == next.client {
			e.end = now
		}
		if e.active && e.quiet <= now {
			e.dest.Move(false)
			e.active = false
		}
		if e.end <= now {
			e.dest.Unbind(e.active)
			continue
		}
		left = append(left, e)
	}
	return left
}

// orders yields every order of n things.
func orders(n int) func(func([]int) bool) {
	return func(yield func([]int) bool) {
		var walk func(done, rest []int) bool
		walk = func(done, rest []int) bool {
			if len(rest) == 0 {
				return yield(done)
			}
			for i := range rest {
				others := slices.Delete(slices.Clone(rest), i, i+1)
				if !walk(append(slices.Clone(done), rest[i]), others) {
					return false
				}
			}
			return true
		}
		all := make([]int, n)
		for i := range all {
			all[i] = i
		}
		walk(nil, all)
	}
}
