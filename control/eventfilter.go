package control

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"pktdirector/capture/filter"
	"pktdirector/conntrack"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// Subject is what an event is about, for filters to look at before the event is made.
// What is zero, the event does not have.
type Subject struct {
	Service lvs.ServiceKey
	Server  lvs.ServerKey
	Flow    packet.Flow // from the client to the VIP; of a drop, as the packet came
	Flags   uint8       // of TCP
	Bytes   int         // of the IP packet
	Verdict string
	State   conntrack.State // that the connection moved on to, or had in the end
}

// EventFilter chooses events. All that is set must be so; the zero EventFilter chooses
// all.
type EventFilter struct {
	Kinds               EventKind // 0: all, or those of which Verdicts and States are
	Service             *lvs.ServiceKey
	Client, VIP, Server conntrack.Peer
	// Verdicts are of drops: of other events they say nothing. So are States of state
	// changes.
	Verdicts []string
	States   conntrack.States
	Packets  *filter.Filter // by the headers of the packet, or of one like it
}

// EventParameters are the parameters of an EventFilter, as the API's query and the
// command line name them.
func EventParameters() []Parameter {
	return []Parameter{
		{"kind", "only events of these kinds, with commas between or repeated: " + strings.Join(kindNames(), ", ")},
		{"service", "of this service: tcp-192.0.2.10-80, fwm-1"},
		{"client", "of this client: address, net, or address:port"},
		{"vip", "of this VIP: address, net, or address:port"},
		{"server", "of this real server: address, net, or address:port"},
		{"verdict", "drops with these verdicts, joined by commas: no_service,no_neighbour"},
		{"state", "connections that came to one of these states, joined by commas: ESTABLISHED,FIN_WAIT"},
		{"filter", "whose packet an expression of tcpdump chooses: 'tcp port 80 and net 198.51.100.0/24'"},
	}
}

// ParseEventFilter reads what Values writes. Errors are *ParameterErrors.
func ParseEventFilter(v url.Values) (EventFilter, error) {
	var f EventFilter
	for _, name := range sortedKeys(v) {
		text := v.Get(name)
		if len(v[name]) > 1 && name != "kind" {
			return f, &ParameterError{name, text, "given more than once"}
		}
		var err error
		switch name {
		case "kind":
			f.Kinds, err = parseEventKinds(v[name])
		case "service":
			key, wrong := ParseServiceID(text)
			f.Service, err = &key, wrong
		case "client":
			f.Client, err = ParsePeer(text)
		case "vip":
			f.VIP, err = ParsePeer(text)
		case "server":
			f.Server, err = ParsePeer(text)
		case "verdict":
			f.Verdicts = strings.Split(text, ",")
			if slices.Contains(f.Verdicts, "") {
				err = errors.New("a name is missing: write verdicts with commas between, such as no_service,no_neighbour")
			}
		case "state":
			f.States, err = parseStates(text)
		case "filter":
			f.Packets, err = filter.Parse(text)
		default:
			err = errors.New("no such parameter")
		}
		if err != nil {
			return f, &ParameterError{name, text, err.Error()}
		}
	}
	return f, nil
}

// Values writes the filter as ParseEventFilter reads it.
func (f EventFilter) Values() url.Values {
	v := url.Values{}
	set := func(name, text string) {
		if text != "" {
			v.Set(name, text)
		}
	}
	var kinds []string
	for i, name := range kindNames() {
		if f.Kinds&(1<<i) != 0 {
			kinds = append(kinds, name)
		}
	}
	set("kind", strings.Join(kinds, ","))
	if f.Service != nil {
		set("service", ServiceID(*f.Service))
	}
	set("client", peerText(f.Client))
	set("vip", peerText(f.VIP))
	set("server", peerText(f.Server))
	set("verdict", strings.Join(f.Verdicts, ","))
	set("state", statesText(f.States))
	set("filter", f.Packets.String())
	return v
}

// CheckVerdicts reports a verdict that is none of known; where none are known, every
// name is taken.
func (f EventFilter) CheckVerdicts(known []string) error {
	for _, v := range f.Verdicts {
		if len(known) > 0 && !slices.Contains(known, v) {
			return &ParameterError{"verdict", v, fmt.Sprintf("%q is no verdict: one of %s", v, strings.Join(known, ", "))}
		}
	}
	return nil
}

// kinds are those of which there can be chosen events.
func (f *EventFilter) kinds() EventKind {
	switch {
	case f.Kinds != 0:
		return f.Kinds
	case f.Verdicts == nil && f.States == 0 && !f.narrow():
		return allEvents
	case f.Verdicts == nil && f.States == 0:
		return allEvents &^ AdminEvents
	}
	var k EventKind
	if f.Verdicts != nil {
		k |= DropEvents
	}
	if f.States != 0 {
		k |= StateEvents
	}
	return k
}

// narrow reports whether the filter is about packets or connections, which an
// administrator's change has none of.
func (f *EventFilter) narrow() bool {
	return f.Service != nil || f.Client != (conntrack.Peer{}) || f.VIP != (conntrack.Peer{}) || f.Server != (conntrack.Peer{}) || f.Packets != nil
}

// chooses reports whether the filter chooses an event of a kind that it is about.
func (f *EventFilter) chooses(kind EventKind, s *Subject) bool {
	switch {
	case !f.narrow() && f.Verdicts == nil && f.States == 0:
		return true
	case kind == AdminEvents:
		return !f.narrow()
	case kind == DropEvents && f.Verdicts != nil && !slices.Contains(f.Verdicts, s.Verdict):
		return false
	case kind == StateEvents && f.States != 0 && !f.States.Has(s.State):
		return false
	case f.Service != nil && *f.Service != s.Service:
		return false
	}
	// A drop's packet may be a request or a reply.
	either := kind == DropEvents
	return isEnd(f.Client, s.Flow.Src, s.Flow.SrcPort, s.Flow.Dst, s.Flow.DstPort, either) &&
		isEnd(f.VIP, s.Flow.Dst, s.Flow.DstPort, s.Flow.Src, s.Flow.SrcPort, either) &&
		(isEnd(f.Server, s.Server.RIP, s.Server.Port, s.Flow.Src, s.Flow.SrcPort, either)) &&
		(f.Packets == nil || s.matches(f.Packets))
}

// isEnd reports whether an end of a connection is the one that is asked for; with
// either the other may be.
func isEnd(p conntrack.Peer, a packet.Addr, port uint16, b packet.Addr, bPort uint16, either bool) bool {
	is := func(a packet.Addr, port uint16) bool {
		return (p.Port == 0 || p.Port == port) && (!p.Net.IsValid() || a.IsValid() && p.Net.Contains(a.Netip()))
	}
	return is(a, port) || either && is(b, bPort)
}

// matches asks an expression about a packet of the subject: as it came, or as it went
// to the real server.
func (s *Subject) matches(f *filter.Filter) bool {
	if !s.Flow.Src.IsValid() {
		return false
	}
	p := headerOf(s.Flow, s.Flags, s.Bytes)
	if f.Match(p) {
		return true
	}
	if s.Server == (lvs.ServerKey{}) || s.Flow.Src == s.Server.RIP || s.Flow.Src.Is4() != s.Server.RIP.Is4() {
		return false
	}
	sent := s.Flow
	sent.Dst = s.Server.RIP
	if s.Server.Port != 0 {
		sent.DstPort = s.Server.Port
	}
	return f.Match(headerOf(sent, s.Flags, s.Bytes))
}

// headerOf makes the headers of a packet of which that much is known.
func headerOf(f packet.Flow, flags uint8, bytes int) *filter.Packet {
	const ip4, ip6, transport, ethernet = 20, 40, 20, 14
	p := &filter.Packet{EtherType: packet.EtherIPv4, Data: make([]byte, ip6+transport)}
	b := p.Data
	at := ip4
	if f.Src.Is4() {
		b[0], b[8], b[9] = 0x45, 64, byte(f.Proto)
		f.Src.Put4(b[12:])
		f.Dst.Put4(b[16:])
	} else {
		p.EtherType, at = packet.EtherIPv6, ip6
		b[0], b[6], b[7] = 0x60, byte(f.Proto), 64
		f.Src.Put16(b[8:])
		f.Dst.Put16(b[24:])
	}
	p.Data = b[:at+transport]
	p.Len = ethernet + max(bytes, len(p.Data))
	size := uint16(min(p.Len-ethernet, 0xffff))
	if at == ip4 {
		binary.BigEndian.PutUint16(b[2:], size)
	} else {
		binary.BigEndian.PutUint16(b[4:], size-ip6)
	}
	binary.BigEndian.PutUint16(b[at:], f.SrcPort)
	binary.BigEndian.PutUint16(b[at+2:], f.DstPort)
	if f.Proto == packet.TCP {
		b[at+12], b[at+13] = 5<<4, flags
	}
	return p
}
