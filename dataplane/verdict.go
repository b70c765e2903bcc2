package dataplane

import "pktdirector/packet"

// Verdict is the end of a packet's way. Each packet ends in exactly one, and
// each is counted.
type Verdict uint8

// All verdicts.
const (
	pending            Verdict = iota // not a verdict: the packet waits for a neighbour
	Forwarded                         // a request, on its way to a real server
	Replied                           // a real server's reply, on its way to the client
	ErrorForwarded                    // an ICMP error about a connection, on its way to the other end
	TunnelError                       // an ICMP error about a tunnel packet, noted and told to the client
	AnsweredARP                       // ARP request for a VIP, answered
	AnsweredND                        // IPv6 neighbour solicitation for a VIP, answered
	AnsweredEcho                      // ping of a VIP, answered
	Learned                           // ARP or neighbour advertisement, noted
	NotOurs                           // nothing the director serves; the host may want it
	OtherHost                         // addressed to another machine's MAC
	Outgoing                          // sent by this host itself
	Truncated                         // cut short by the link
	Malformed                         // a header contradicts the bytes
	BadChecksum                       // wrong IPv4 header checksum, or ICMP checksum
	Reassembled                       // a fragment, joined with others to a packet that has a verdict of its own
	FragmentRepeated                  // a fragment whose bytes were there already
	FragmentOverlap                   // a fragment of a packet whose fragments overlap
	FragmentBad                       // a fragment that fits no packet
	FragmentTimeout                   // a fragment that waited for the others in vain
	FragmentsFull                     // a fragment that made room for newer ones
	BadOptions                        // IPv4 options with a fault: the sender is told
	SourceRoute                       // IPv4 source route
	ForgedSource                      // from an address that no host sends from
	Hairpin                           // a masqueraded server's request that would go back to itself
	ServerRefused                     // of a real server, about no connection: it is told (nat_icmp_send)
	ShortHeader                       // transport header too short to rewrite
	NoConnection                      // no entry and no right to start one: answered with a reset
	NoService                         // no virtual service on this port of a VIP: refused
	NoDestination                     // no real server available: refused
	DestinationGone                   // the connection's real server was removed
	ThrottledNew                      // a new connection dropped by drop_packet
	ReplyTaken                        // replies could not be told from another connection's
	ICMPIgnored                       // ICMP for a VIP that is neither an echo request nor about a connection
	PortsExhausted                    // no source port left towards the real server: refused
	Delivered                         // a request for a real server that is this host itself, handed to it
	LocalNode                         // the real server is this host itself, and cannot be handed the packet
	StandingBy                        // another director is in charge
	TableFull                         // conn_max connections, and none that may make way
	TTLExceeded                       // TTL used up: the client is told
	TooBig                            // larger than the way to the real server takes
	NoRoute                           // no route out of one of the director's links
	NoNeighbour                       // the next hop did not answer
	NeighbourQueueFull                // too many packets wait for the next hop
	NeedsEthernet                     // direct routing out of a link without MACs
	NoTunnelSource                    // no address of the director to send the tunnel from
	VIPConflict                       // another machine claims a VIP
	TxDropped                         // the link did not take it
	numVerdicts
)

// verdictWords gives each verdict's name, as metrics and listings show it, and
// what it means for an operator.
func verdictWords() [numVerdicts][2]string {
	return [numVerdicts][2]string{
		pending:            {"pending", "waits for a neighbour's answer"},
		Forwarded:          {"forwarded", "request forwarded to a real server"},
		Replied:            {"replied", "reply of a real server forwarded to the client"},
		ErrorForwarded:     {"error_forwarded", "ICMP error about a connection forwarded to its other end"},
		TunnelError:        {"tunnel_error", "ICMP error about a tunnel packet: the client was told"},
		AnsweredARP:        {"answered_arp", "ARP request for a VIP answered"},
		AnsweredND:         {"answered_nd", "neighbour solicitation for a VIP answered"},
		AnsweredEcho:       {"answered_echo", "ping of a VIP answered"},
		Learned:            {"learned", "a neighbour's address noted"},
		NotOurs:            {"not_ours", "no VIP and no connection of ours: left to the host"},
		OtherHost:          {"other_host", "addressed to another machine's MAC"},
		Outgoing:           {"outgoing", "sent by this host itself"},
		Truncated:          {"truncated", "cut short by the ring: raise the ring's slot size"},
		Malformed:          {"malformed", "a header contradicts the bytes"},
		BadChecksum:        {"bad_checksum", "wrong checksum of an IPv4 header, of ICMP or of a segment that the FTP helper reads"},
		Reassembled:        {"reassembled", "a fragment that was joined with the others; the last one has the packet's verdict"},
		FragmentRepeated:   {"fragment_repeated", "a fragment that was there already"},
		FragmentOverlap:    {"fragment_overlap", "a fragment of a packet whose fragments overlap"},
		FragmentBad:        {"fragment_bad", "a fragment that is empty, misaligned, too long or one too many, or mixes congestion marks"},
		FragmentTimeout:    {"fragment_timeout", "a fragment whose other fragments did not come"},
		FragmentsFull:      {"fragments_full", "a fragment given up for newer ones: too many wait"},
		BadOptions:         {"bad_options", "IPv4 options with a wrong length or pointer: the sender is told"},
		SourceRoute:        {"source_route", "IPv4 source route, never followed"},
		ForgedSource:       {"forged_source", "from an address that no host sends from"},
		Hairpin:            {"hairpin", "request of a masqueraded server that the scheduler gave back to itself"},
		ServerRefused:      {"server_refused", "packet of a real server about no connection: told so by nat_icmp_send"},
		ShortHeader:        {"short_header", "transport header too short to rewrite"},
		NoConnection:       {"no_connection", "no such connection, and not its first packet: reset"},
		NoService:          {"no_service", "no virtual service on this port of the VIP: refused"},
		NoDestination:      {"no_destination", "no real server with weight above 0: refused"},
		DestinationGone:    {"destination_gone", "the connection's real server was removed"},
		ThrottledNew:       {"drop_packet", "a new connection dropped by drop_packet"},
		ReplyTaken:         {"reply_taken", "replies could not be told from another connection's"},
		ICMPIgnored:        {"icmp_ignored", "ICMP for a VIP: no echo request, and about no connection"},
		PortsExhausted:     {"ports_exhausted", "no source port left towards the real server: refused"},
		Delivered:          {"delivered", "request handed to this host, which is the real server"},
		LocalNode:          {"local_node", "the real server is this host itself, which cannot be handed the packet"},
		StandingBy:         {"standby", "another director is in charge: left to the host"},
		TableFull:          {"table_full", "a new connection refused: conn_max connections are there"},
		TTLExceeded:        {"ttl_exceeded", "TTL used up: is there a routing loop?"},
		TooBig:             {"too_big", "larger than the MTU towards the real server"},
		NoRoute:            {"no_route", "no route out of one of the director's links"},
		NoNeighbour:        {"no_neighbour", "the next hop does not answer ARP or ND"},
		NeighbourQueueFull: {"neighbour_queue_full", "too many packets wait for the next hop"},
		NeedsEthernet:      {"needs_ethernet", "direct routing needs a link with MAC addresses"},
		NoTunnelSource:     {"no_tunnel_source", "the director has no address towards the real server"},
		VIPConflict:        {"vip_conflict", "another machine claims a VIP"},
		TxDropped:          {"tx_dropped", "the interface did not take the packet"},
	}
}

// String returns the verdict's name.
func (v Verdict) String() string {
	if v >= numVerdicts {
		return "unknown"
	}
	return verdictWords()[v][0]
}

// VerdictCount is how many packets ended in a verdict.
type VerdictCount struct {
	Name  string `json:"name"`
	Count uint64 `json:"count"`
	Help  string `json:"help"`
}

// parseVerdict turns a parser's refusal into a verdict.
func parseVerdict(e packet.ParseError) Verdict {
	if e == packet.ErrChecksum {
		return BadChecksum
	}
	return Malformed
}
