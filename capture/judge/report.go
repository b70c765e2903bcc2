package judge

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"pktdirector/packet"
)

// Report is what a capture says about its director.
type Report struct {
	Mode        string       `json:"mode"`           // nat, dr, tun, fullnat or unknown
	VIP         string       `json:"vip"`            // the one with the most connections; empty: none is known
	VIPs        []string     `json:"vips,omitempty"` // all of them
	Tunnel      string       `json:"tunnel,omitempty"`
	Services    []Service    `json:"services"`
	Connections []Connection `json:"connections"`
	Findings    []Finding    `json:"findings"`
	Notes       []string     `json:"notes,omitempty"` // what the capture cannot show
	Packets     uint64       `json:"packets"`
	Seconds     float64      `json:"seconds"`
	Overflow    uint64       `json:"connections_not_kept,omitempty"`

	recorded recorded
}

// Service is a virtual service that was inferred.
type Service struct {
	Protocol string   `json:"protocol"`
	VIP      string   `json:"vip"` // address:port
	Mode     string   `json:"mode"`
	Servers  []Server `json:"servers"`
	// Explained lists the schedulers that would have picked as was picked.
	Explained []string `json:"explained_by,omitempty"`
}

// Server is a real server of a service.
type Server struct {
	Address     string `json:"address"` // address:port, or MAC:port where no address is known
	MAC         string `json:"mac,omitempty"`
	Connections int    `json:"connections"`
	Failed      int    `json:"failed,omitempty"`
}

// Connection is one connection through the director.
type Connection struct {
	Client   string  `json:"client"`
	Server   string  `json:"server"` // empty: not known
	VIP      string  `json:"vip,omitempty"`
	Protocol string  `json:"protocol"`
	Mode     string  `json:"mode"`
	Start    float64 `json:"start"` // s after the first packet of the capture
	Packet   any     `json:"packet"`
	Finding  Code    `json:"finding,omitempty"`
}

// Finding is something that is wrong.
type Finding struct {
	Code Code   `json:"code"`
	Text string `json:"text"`
	// Packets are numbers, or "file:number" where several files were read.
	Packets []any `json:"packets"`
	// Next is what to look at, or do.
	Next string `json:"next"`

	size int
}

// name formats a packet's number, with the file's name where there are several.
func (j *Judge) name(r Ref) any {
	if len(j.opts.Files) < 2 {
		return r.Number
	}
	return fmt.Sprintf("%s:%d", filepath.Base(j.opts.Files[r.File]), r.Number)
}

func (j *Judge) names(refs []Ref) []any {
	slices.SortFunc(refs, func(a, b Ref) int { return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Number, b.Number)) })
	out := []any{}
	for _, r := range slices.Compact(refs) {
		if r.Number > 0 {
			out = append(out, j.name(r))
		}
	}
	return out
}

// Report judges what was seen. The Judge takes no packets afterwards.
func (j *Judge) Report() *Report {
	f := j.infer()
	f.survey()
	r := &Report{Mode: string(f.mode), Packets: j.packets, Seconds: time.Duration(j.last - j.first).Seconds(), Overflow: j.table.dropped,
		Services: []Service{}, Connections: []Connection{}, Findings: []Finding{}}
	f.vipList(r)
	codes := map[*conn]Code{}
	for _, c := range f.conns {
		codes[c] = f.diagnose(c)
	}
	r.Findings = append(r.Findings, f.conflicts()...)
	r.Findings = append(r.Findings, f.troubles(codes)...)
	f.services(r, codes)
	r.Findings = append(r.Findings, f.schedules(r)...)
	for _, c := range f.conns {
		r.Connections = append(r.Connections, Connection{Client: c.client.String(), Server: c.serverName(), VIP: endName(c.service),
			Protocol: c.client.proto.String(), Mode: string(f.modeOf(c)), Start: time.Duration(c.first - j.first).Seconds(), Packet: j.name(c.start), Finding: codes[c]})
	}
	if n := j.table.dropped; n > 0 {
		r.Findings = append(r.Findings, Finding{Code: ConnectionOverflow, Packets: []any{},
			Text: fmt.Sprintf("packets of %d connections beyond the %d that are kept were not judged", n, j.opts.Connections),
			Next: "give --connections a larger number, or cut the capture into parts (editcap -i)"})
	}
	order := Codes()
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Code), slices.Index(order, b.Code)), cmp.Compare(b.size, a.size))
	})
	f.notes(r)
	r.recorded = f.remembered()
	return r
}

func endName(e end) string {
	if !e.addr.IsValid() {
		return ""
	}
	return e.String()
}

func (c *conn) serverName() string {
	if !c.server.addr.IsValid() && !c.serverMAC.IsZero() {
		return fmt.Sprintf("[%s]:%d", c.serverMAC, c.server.port)
	}
	return endName(c.server)
}

func (f *inference) modeOf(c *conn) mode {
	if c.kind == "" {
		return f.mode
	}
	return c.kind
}

// survey counts what judging one connection needs to know of the others.
func (f *inference) survey() {
	f.good, f.goodUDP, f.silentUDP = map[end]int{}, map[end]int{}, map[end]int{}
	f.answersUDP, f.servers = map[end]int{}, map[end]map[end]int{}
	f.of = map[serverKey]int{}
	f.goodService, f.goodClient = map[serviceEnd]int{}, map[packet.Addr]int{}
	modes := map[mode]int{}
	for _, c := range f.conns {
		v := c.sight()
		f.of[serverKey{c.server, c.serverMAC}]++
		if c.kind != "" {
			modes[c.kind]++
		}
		f.replies += int(v.replies)
		if f.servers[c.service] == nil {
			f.servers[c.service] = map[end]int{}
		}
		if c.client.proto == packet.TCP {
			if v.progress {
				f.good[c.server]++
			}
			if v.out != nil && v.out.req.syns > 0 && v.out.req.hasAck {
				f.handshake = max(f.handshake, v.out.req.ackAt-v.out.req.synAt)
			}
			if v.progress && v.reset == nil {
				f.goodService[serviceEnd{c.service, packet.TCP}]++
				f.goodClient[c.client.addr]++
			}
			continue
		}
		if v.replies > 0 || !f.masquerades(c) {
			f.goodService[serviceEnd{c.service, c.client.proto}]++
			f.goodClient[c.client.addr]++
		}
		if v.replies > 0 {
			f.goodUDP[c.server]++
			f.answersUDP[c.service]++
			f.servers[c.service][c.server]++
		} else {
			f.silentUDP[c.server]++
		}
	}
	f.questions()
	f.mode = unknownMode
	most := 0
	for _, m := range []mode{natMode, drMode, tunMode, fullnatMode} {
		if modes[m] > most {
			f.mode, most = m, modes[m]
		}
	}
}

const (
	// maxUnheard bounds the unanswered questions that connections are held against.
	maxUnheard = 256
	// deaf is how many questions in a row a machine that answered before leaves
	// unanswered when it is gone: as many as the kernel asks.
	deaf = 3
)

// questions sorts out who asked for neighbours in vain, and whom servers asked for.
func (f *inference) questions() {
	f.bySender = map[packet.Addr][]*asked{}
	all := slices.SortedFunc(maps.Values(f.neigh.asks), func(a, b *asked) int {
		return cmp.Or(cmp.Compare(a.firstAt, b.firstAt), cmp.Compare(a.first.Number, b.first.Number))
	})
	for _, q := range all {
		if q.sender.IsValid() && len(f.bySender[q.sender]) < maxClaims*4 {
			f.bySender[q.sender] = append(f.bySender[q.sender], q)
		}
		if (q.streak >= deaf || q.answered == 0 && len(f.neigh.claims[q.target]) == 0) && (f.own[q.from] || len(f.own) == 0 && f.cooked) && len(f.unheard) < maxUnheard {
			f.unheard = append(f.unheard, q)
		}
	}
}

// vipList names the VIPs, the one with the most connections first.
func (f *inference) vipList(r *Report) {
	n := map[packet.Addr]int{}
	for _, c := range f.conns {
		if c.service.addr.IsValid() {
			n[c.service.addr]++
		}
	}
	for a := range f.lostVIPs() {
		if len(n) == 0 {
			n[a] = 1
		}
		if n[a] > 0 && f.mode == unknownMode {
			f.mode = drMode // only servers of direct routing have a VIP on the director's segment
			r.Mode = string(drMode)
		}
	}
	f.addrs4VIP = n
	var list []packet.Addr
	for a := range n {
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b packet.Addr) int {
		return cmp.Or(cmp.Compare(n[b], n[a]), b2i(b.Less(a))-b2i(a.Less(b)))
	})
	for _, a := range list {
		r.VIPs = append(r.VIPs, a.String())
	}
	if len(list) > 0 {
		r.VIP = list[0].String()
	}
	for _, c := range f.conns {
		if c.out != none && c.kind == tunMode && r.Tunnel == "" {
			r.Tunnel = c.paths[c.out].tunnel.String()
		}
	}
}

// services lists the services with their servers.
func (f *inference) services(r *Report, codes map[*conn]Code) {
	at := map[serviceEnd]int{}
	for _, c := range f.conns {
		key := serviceEnd{c.service, c.client.proto}
		i, known := at[key]
		if !known {
			i = len(r.Services)
			at[key] = i
			r.Services = append(r.Services, Service{Protocol: c.client.proto.String(), VIP: endName(c.service), Mode: string(f.modeOf(c)), Servers: []Server{}})
		}
		s := &r.Services[i]
		name := c.serverName()
		if name == "" {
			continue
		}
		k := slices.IndexFunc(s.Servers, func(v Server) bool { return v.Address == name })
		if k < 0 {
			k = len(s.Servers)
			v := Server{Address: name}
			if !c.serverMAC.IsZero() {
				v.MAC = c.serverMAC.String()
			}
			s.Servers = append(s.Servers, v)
		}
		s.Servers[k].Connections++
		if codes[c] != "" {
			s.Servers[k].Failed++
		}
	}
	for i := range r.Services {
		slices.SortFunc(r.Services[i].Servers, func(a, b Server) int { return cmp.Compare(a.Address, b.Address) })
	}
}

// notes says what the capture cannot show.
func (f *inference) notes(r *Report) {
	if r.Mode == string(unknownMode) && len(f.conns) > 0 {
		r.Notes = append(r.Notes, "only requests towards the VIP were captured, neither what was forwarded nor a reply: the method may be dr or tun; capture on the servers' side, too")
	}
	unknown := 0
	for _, c := range f.conns {
		if c.serverName() == "" {
			unknown++
		}
	}
	if unknown > 0 {
		why := "what was forwarded is not in the capture"
		if f.cooked && f.mode == drMode {
			why = "a cooked capture (-i any) does not say to which MAC a packet was sent; capture on the interface itself"
		}
		r.Notes = append(r.Notes, fmt.Sprintf("the server of %d of %d connections is not known: %s", unknown, len(f.conns), why))
	}
	if f.other > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%d packets are neither IP nor ARP, or not enough of them was captured (tcpdump -s 128 is enough)", f.other))
	}
}
