package replay

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"

	"pktdirector/capture"
	"pktdirector/capture/judge"
	"pktdirector/packet"
	"pktdirector/sim"
)

// MaxScenarioPackets is how many packets of a capture a scenario holds at most.
const MaxScenarioPackets = 20_000

// Scenario writes a scenario from a capture: the services that the capture shows,
// or those it is given, the packets of their connections with their times, and
// which server each connection got. Payloads, sequence numbers and options are left
// out. Addresses of real servers become those of the scenario's network, others stay
// unless they are of that network, or Anonymise says otherwise.
type Scenario struct {
	// Anonymise replaces an address; nil: it stays.
	Anonymise func(netip.Addr) netip.Addr
	// ServerOf is asked for the server, address:port, of a client's packet at a time in
	// ns whose server the capture does not show; nil: it stays unknown.
	ServerOf func(f packet.Flow, at int64) string

	report  *judge.Report
	plans   []judge.Plan
	sim     sim.Scenario
	servers map[packet.Addr]int // their numbers
	begun   map[string]string   // recorded server by event of a connection's first packet
	starts  map[*sim.Event]string
	seen    bool // real servers' own replies are in the capture
	first   int64
	err     error
}

// ErrNothing is returned for a capture that no scenario can be made of.
var ErrNothing = errors.New("the capture shows no connection with its server: give the servers' side, too, or a configuration")

// NewScenario begins a scenario of the connections in a report. plans are the
// services; nil: those that the report inferred.
func NewScenario(id, title string, report *judge.Report, plans []judge.Plan) (*Scenario, error) {
	s := &Scenario{report: report, plans: plans, servers: map[packet.Addr]int{}, begun: map[string]string{}, starts: map[*sim.Event]string{}, seen: report.ServersSeen()}
	if plans == nil {
		s.plans = report.Plans()
	}
	s.sim = sim.Scenario{ID: id, Title: title}
	for _, p := range s.plans {
		for _, rs := range p.Servers {
			if _, known := s.servers[rs.Address]; !known {
				s.servers[rs.Address] = len(s.servers) + 1
			}
		}
	}
	const most = 250 // of a scenario's network
	switch {
	case len(s.servers) == 0:
		return nil, ErrNothing
	case len(s.servers) > most:
		return nil, fmt.Errorf("%d real servers, a scenario's network has %d", len(s.servers), most)
	}
	return s, nil
}

// commands are the ipvsadm lines of the services.
func (s *Scenario) commands() error {
	local := map[netip.Addr]bool{}
	for _, p := range s.plans {
		vip := s.addr(p.VIP)
		if !local[vip] {
			local[vip] = true
			s.sim.Local = append(s.sim.Local, netip.PrefixFrom(vip, vip.BitLen()))
		}
		flag := map[packet.Proto]string{packet.TCP: "-t", packet.UDP: "-u", packet.SCTP: "--sctp-service"}[p.Protocol]
		service := flag + " " + netip.AddrPortFrom(vip, p.Port).String()
		line := "-A " + service + " -s " + p.Scheduler
		if p.Persistent {
			line += " -p 300"
		}
		s.sim.Events = append(s.sim.Events, &sim.Event{Op: "ipvsadm", Args: line})
		method, port := "", p.Port
		switch p.Mode {
		case "nat":
			method = "-m"
		case "dr":
			method = "-g"
		case "tun":
			method = "-i"
			switch p.Tunnel {
			case "gre":
				method += " --tun-type gre"
			case "gue":
				method += " --tun-type gue --tun-port 6080"
			}
		default:
			return fmt.Errorf("%s %s: the method %q cannot be written into a scenario: nat, dr and tun can", p.Protocol, packet.Endpoint(p.VIP, p.Port), p.Mode)
		}
		for _, rs := range p.Servers {
			if p.Mode == "nat" {
				port = rs.Port
			}
			s.sim.Events = append(s.sim.Events, &sim.Event{Op: "ipvsadm",
				Args: fmt.Sprintf("-a %s -r %s %s -w %d", service, netip.AddrPortFrom(s.rip(rs.Address), port), method, rs.Weight)})
		}
	}
	return nil
}

// rip is a real server's address in a scenario's network.
func (s *Scenario) rip(a packet.Addr) netip.Addr {
	n := byte(s.servers[a])
	if a.Is4() {
		return netip.AddrFrom4([4]byte{10, 2, 0, n})
	}
	return netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 0, 2, 15: n})
}

// addr is another address, out of the way of the scenario's network.
func (s *Scenario) addr(a packet.Addr) netip.Addr {
	ip := a.Netip()
	if s.Anonymise != nil {
		ip = s.Anonymise(ip)
	}
	if ip.Is4() {
		if b := ip.As4(); b[0] == 10 && (b[1] == 1 || b[1] == 2) {
			return netip.AddrFrom4([4]byte{198, 17 + b[1], b[2], b[3]})
		}
		return ip
	}
	if b := ip.As16(); b[0] == 0x20 && b[1] == 0x01 && b[2] == 0x0d && b[3] == 0xb8 && b[4] == 0 && (b[5] == 1 || b[5] == 2) {
		b[4] = 0xee
		return netip.AddrFrom16(b)
	}
	return ip
}

// Add takes the next packet of the capture.
func (s *Scenario) Add(rec *capture.Record) {
	if s.err != nil || rec.Offset > len(rec.Data) || rec.EtherType != packet.EtherIPv4 && rec.EtherType != packet.EtherIPv6 {
		return
	}
	if len(s.sim.Events) == 0 {
		if s.err = s.commands(); s.err != nil {
			return
		}
	}
	b := append(make([]byte, 0, len(rec.Data)), rec.Data[rec.Offset:]...)
	q, ok := packet.ParseQuote(b, 0, rec.EtherType) // lengths may be cut
	if !ok {
		return
	}
	f := q.Flow
	sent := rec.HasSrc && s.report.DirectorSent(rec.SrcMAC) || rec.Direction == capture.Outgoing
	request, reply := f, f.Reverse()
	e := &sim.Event{Op: "pkt"}
	if s.plan(request.Dst, request.DstPort, f.Proto) != nil && !sent {
		e.From, e.Src, e.Dst = "client", endpoint(s.addr(f.Src), f.SrcPort), endpoint(s.addr(f.Dst), f.DstPort)
		if recorded := s.serverOf(f, rec.Time); recorded != "" && s.begun[f.String()] == "" {
			s.starts[e] = recorded
		}
	} else {
		server, port := s.replyOf(&f, reply, sent, rec)
		if !server.IsValid() {
			return
		}
		e.From, e.Src, e.Dst = "rs", endpoint(s.rip(server), port), endpoint(s.addr(f.Dst), f.DstPort)
	}
	if !s.transport(e, &f, b[q.L4:q.End]) {
		delete(s.starts, e)
		return
	}
	if s.starts[e] != "" && (f.Proto != packet.TCP || strings.HasPrefix(*e.Flags, "S")) {
		s.begun[f.String()] = s.starts[e]
	} else {
		delete(s.starts, e)
	}
	if f.Proto == packet.TCP && (strings.Contains(*e.Flags, "F") || strings.Contains(*e.Flags, "R")) {
		delete(s.begun, f.String())
		delete(s.begun, reply.String())
	}
	s.time(e, rec.Time)
	if s.sim.Events = append(s.sim.Events, e); len(s.sim.Events) > MaxScenarioPackets {
		s.err = fmt.Errorf("a scenario holds at most %d packets: cut the capture (editcap -r, or tcpdump -r with a filter on one client)", MaxScenarioPackets)
	}
}

// replyOf returns the masqueraded server that sent a packet, or whose reply the
// director sent on.
func (s *Scenario) replyOf(f *packet.Flow, request packet.Flow, sent bool, rec *capture.Record) (packet.Addr, uint16) {
	none := packet.Addr{}
	if s.seen {
		for _, p := range s.plans {
			for _, rs := range p.Servers {
				if p.Mode == "nat" && rs.Address == f.Src && rs.Port == f.SrcPort && !sent {
					return rs.Address, rs.Port
				}
			}
		}
		return none, 0
	}
	p := s.plan(f.Src, f.SrcPort, f.Proto)
	if p == nil || p.Mode != "nat" {
		return none, 0
	}
	server, err := netip.ParseAddrPort(s.serverOf(request, rec.Time))
	if err != nil {
		return none, 0
	}
	if _, known := s.servers[packet.AddrFrom(server.Addr())]; !known {
		return none, 0
	}
	return packet.AddrFrom(server.Addr()), server.Port()
}

func (s *Scenario) serverOf(f packet.Flow, at int64) string {
	server := s.report.ServerOf(f, at)
	if server == "" && s.ServerOf != nil {
		server = s.ServerOf(f, at)
	}
	return server
}

// transport writes the flags of TCP, or SCTP's chunk.
func (s *Scenario) transport(e *sim.Event, f *packet.Flow, t []byte) bool {
	switch f.Proto {
	case packet.TCP:
		e.Proto = "tcp"
		if len(t) < 14 {
			return false
		}
		flags := ""
		for i, letter := range "FSRPAUEC" {
			if t[13]&(1<<i) != 0 {
				flags += string(letter)
			}
		}
		e.Flags = &flags
	case packet.UDP:
		e.Proto = "udp"
	case packet.SCTP:
		e.Proto = "sctp"
		if len(t) <= packet.SCTPHeaderLen {
			return false
		}
		e.Chunk = &t[packet.SCTPHeaderLen]
	default:
		return false
	}
	return true
}

// time gives an event its time, a millisecond after the start at least.
func (s *Scenario) time(e *sim.Event, at int64) {
	if s.first == 0 {
		s.first = at
	}
	t := math.Round(float64(at-s.first)/1e6+1) / 1e3
	e.T = &t
}

func endpoint(a netip.Addr, port uint16) string { return netip.AddrPortFrom(a, port).String() }

func (s *Scenario) plan(a packet.Addr, port uint16, proto packet.Proto) *judge.Plan {
	for i := range s.plans {
		if p := &s.plans[i]; p.VIP == a && p.Port == port && p.Protocol == proto {
			return p
		}
	}
	return nil
}

// Finish plays the scenario, fills in what it leads to, and writes which servers
// connections got in the capture. It returns how many of them get another one here.
func (s *Scenario) Finish() (*sim.Scenario, int, error) {
	if s.err != nil {
		return nil, 0, s.err
	}
	if len(s.starts) == 0 {
		return nil, 0, ErrNothing
	}
	done, err := sim.Record(&s.sim, sim.Options{}, false)
	if err != nil {
		return nil, 0, err
	}
	others := 0
	for i, e := range s.sim.Events {
		recorded, err := netip.ParseAddrPort(s.starts[e])
		if err != nil {
			continue // only a MAC is known
		}
		n, known := s.servers[packet.AddrFrom(recorded.Addr())]
		if !known {
			continue
		}
		want := fmt.Sprintf("RS%d", n)
		out := done.Events[i].Out
		if len(out) == 1 && out[0].RS == want {
			continue
		}
		others++
		dst := e.Dst
		p := s.planOf(e)
		if p != nil && p.Mode == "nat" {
			dst = endpoint(s.rip(packet.AddrFrom(recorded.Addr())), recorded.Port())
		}
		o := sim.Out{To: "rs", RS: want, Proto: e.Proto, Src: e.Src, Dst: dst, Flags: e.Flags, Chunk: e.Chunk}
		if len(out) == 1 {
			o.Tunnel = out[0].Tunnel
			if from, _, cut := strings.Cut(out[0].Outer, " > "); cut {
				o.Outer = from + " > " + s.rip(packet.AddrFrom(recorded.Addr())).String()
			}
		}
		done.Events[i].Out = []sim.Out{o}
	}
	return done, others, nil
}

// planOf finds the service of a client's packet.
func (s *Scenario) planOf(e *sim.Event) *judge.Plan {
	for i := range s.plans {
		p := &s.plans[i]
		if endpoint(s.addr(p.VIP), p.Port) == e.Dst && strings.EqualFold(p.Protocol.String(), e.Proto) {
			return p
		}
	}
	return nil
}
