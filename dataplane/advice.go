package dataplane

// verdictAdvice tells an operator what a verdict asks for, as docs/verdicts.md has it;
// "" where nothing is to be done.
func verdictAdvice() [numVerdicts]string {
	return [numVerdicts]string{
		Replied:            "Zero with NAT and traffic: the real servers do not answer through the director. Make it their default gateway.",
		ErrorForwarded:     "Many: a server's port is closed, or a router between cannot reach it; `list --verdicts` beside a capture tells which.",
		TunnelError:        "\"protocol unreachable\": the real server does not decapsulate. \"Fragmentation needed\": the path to it is narrower than the link; remembered for 10 minutes.",
		NotOurs:            "Normal: everything else that the host sees on the interface. Replies of a real server without a connection are here too.",
		OtherHost:          "Only with a promiscuous interface or a hub-like virtual switch.",
		Outgoing:           "Normally zero: the socket ignores what the host sends.",
		Truncated:          "Raise `ring.slot_size` of the link.",
		Malformed:          "A broken or hostile sender.",
		BadChecksum:        "A broken sender or cable.",
		Reassembled:        "Normal for datagrams larger than the MTU.",
		FragmentRepeated:   "A network that doubles packets.",
		FragmentOverlap:    "Hostile, or two datagrams with one identification: none of them is passed on.",
		FragmentBad:        "A broken or hostile sender.",
		FragmentTimeout:    "Loss on the way; or the other fragments took another way: all of a datagram must pass this director.",
		FragmentsFull:      "A flood of fragments, or heavy loss on the way.",
		BadOptions:         "A broken or hostile sender.",
		SourceRoute:        "Somebody probes.",
		ForgedSource:       "A group, a broadcast, loopback or the director's own address as source: somebody forges, or two machines have one address.",
		Hairpin:            "The servers are clients of their own service. Give them another way to it, or let another machine ask.",
		ServerRefused:      "Switched on by the operator.",
		ShortHeader:        "A broken or hostile sender (NAT and FullNAT only).",
		NoConnection:       "After a start without a snapshot (docs/service.md), or of a connection that began after the last one; or idle longer than 15 minutes (900 s).",
		NoService:          "Someone probes the VIP, or a service is missing in the configuration.",
		NoDestination:      "All servers have weight 0, or there are none.",
		DestinationGone:    "The server was removed while it had connections. Put it back (with weight 0) to let them end.",
		ThrottledNew:       "Switched on by the operator.",
		ReplyTaken:         "Rare: give the two VIPs different server ports.",
		PortsExhausted:     "Give the service more `sources`, or more real servers.",
		LocalNode:          "Give the director a link of `type: local`, and the server the service's port (docs/run.md).",
		StandingBy:         "Normal while this director stands by; `pktdirector standby off` takes over.",
		TableFull:          "As many connections as the table may hold are established, so none could make way. Raise `conn_max` if there is memory, or `drop_entry=3` to end idle ones.",
		TTLExceeded:        "`traceroute` to the VIP, or a routing loop. When the log says that packets came from the machine they were sent to, that machine is a director, too: let one of the two stand by.",
		TooBig:             "With TUN: the client gets \"fragmentation needed\" when it sets don't-fragment. Otherwise lower the MSS or raise the MTU.",
		NoRoute:            "`ip route get` the real server or client: the route must leave by one of the configured links.",
		NoNeighbour:        "The next hop is down, or on another segment.",
		NeighbourQueueFull: "The same, under load.",
		NeedsEthernet:      "Use `type: afpacket` for DR.",
		NoTunnelSource:     "Give the link an address towards the real servers.",
		VIPConflict:        "`pktdirector check-arp --dev IF VIP` names it. On a DR server: arp_ignore=1 and arp_announce=2 before the VIP is set.",
		TxDropped:          "`list --json` says why, per link: no buffer, too big, interface down.",
	}
}

// Help says what the verdict means.
func (v Verdict) Help() string {
	if v >= numVerdicts {
		return ""
	}
	return verdictWords()[v][1]
}

// Advice says what to do about packets that end in the verdict; "" where nothing is
// to be done.
func (v Verdict) Advice() string {
	if v >= numVerdicts {
		return ""
	}
	return verdictAdvice()[v]
}
