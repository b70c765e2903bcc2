package dataplane

import (
	"net/netip"
	"slices"
	"sync"

	"pktdirector/lvs"
	"pktdirector/packet"
)

// serves reports whether an address is the director's own as far as services
// go: a VIP of one, a source address of FullNAT that the host does not have, or
// named by SetLocal.
func (d *Director) serves(a packet.Addr) bool {
	rules := d.rules.Load()
	if _, vip := rules.vips[a]; vip && !d.localVIPs || rules.isSource(a) && !d.host.Load().owns(a) {
		return true
	}
	return d.isLocal(a) || d.localVIPs && d.host.Load().owns(a)
}

// isLocal reports whether SetLocal names an address.
func (d *Director) isLocal(a packet.Addr) bool {
	prefixes := *d.local.Load()
	if len(prefixes) == 0 {
		return false
	}
	ip := a.Netip()
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// otherProtocol answers a packet of a protocol that nobody balances, to a VIP, as
// a host does. What the host itself owns is the host's to answer.
func (w *Worker) otherProtocol(p *packet.Packet) Verdict {
	if p.Class != packet.ToUs || !w.d.serves(p.Flow.Dst) || w.d.host.Load().owns(p.Flow.Dst) || p.Flow.Proto == noNextHeader {
		return NotOurs
	}
	if w.forged(p) {
		return ForgedSource
	}
	switch p.Flow.Proto {
	case packet.GRE, packet.IPIP, packet.IPv6P:
		w.refuse(p) // known, but no tunnel ends here
	default:
		w.refuseProtocol(p)
	}
	return NoService
}

// noNextHeader says that nothing follows an IPv6 header (RFC 8200 section 4.7).
const noNextHeader packet.Proto = 59

// endpoint is a port of a real server.
type endpoint struct {
	proto packet.Proto
	addr  packet.Addr
	port  uint16
}

// realServers finds the servers of all services by their port.
type realServers struct {
	mu    sync.RWMutex
	dests map[endpoint][]*lvs.Destination
}

func (s *realServers) init() { s.dests = map[endpoint][]*lvs.Destination{} }

func (s *realServers) add(k lvs.ServiceKey, dest *lvs.Destination) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := endpoint{k.Proto, dest.Server.RIP, dest.Server.Port}
	s.dests[e] = append(s.dests[e], dest)
}

func (s *realServers) remove(k lvs.ServiceKey, gone *lvs.Destination) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := endpoint{k.Proto, gone.Server.RIP, gone.Server.Port}
	if s.dests[e] = without(s.dests[e], gone); len(s.dests[e]) == 0 {
		delete(s.dests, e)
	}
}

// masquerades reports whether a packet comes from the port of a server that is
// masqueraded.
func (s *realServers) masquerades(f *packet.Flow) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.ContainsFunc(s.dests[endpoint{f.Proto, f.Src, f.SrcPort}], func(d *lvs.Destination) bool { return d.Method() == lvs.Masq })
}

// refuseServer tells a real server, with nat_icmp_send, that a packet from its
// port belongs to no connection, so that it gives its socket up. Resets get no
// answer.
func (w *Worker) refuseServer(p *packet.Packet) Verdict {
	f := &p.Flow
	if w.d.tunables.Load().NATICMPSend == 0 || p.ShortTransport() || !w.d.servers.masquerades(f) ||
		f.Proto == packet.TCP && p.TCPFlags&packet.RST != 0 || f.Proto == packet.SCTP && p.Chunk == sctpAbort {
		return NotOurs
	}
	from := f.Dst
	if !w.d.serves(from) {
		h, ok := w.nextHop(f.Src, p)
		if from = w.source(&h); !ok || !from.IsValid() || p.TTL <= 1 {
			return NotOurs // the host, who routes it, has the word
		}
		p.DecrementTTL() // as the host's router has done where the kernel looks
	}
	w.icmpError(p, from, f.Src, icmpUnreachable, icmpPort, icmp6Unreachable, icmp6Port, 0)
	return ServerRefused
}
