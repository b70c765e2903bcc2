package control

import (
	"time"

	"pktdirector/lvs"
	"pktdirector/sched"
)

// The keys of each mapping in a configuration file. The decoder takes these and no
// others, and the schema for editors says of them what is said here.

func configFields() []field {
	links := listOf(mappingOf(linkFields(), "name"), maxLinks)
	links.Items.AllOf = []*schema{{
		If:   &schema{Properties: map[string]*schema{"type": {Enum: []any{string(Tundev)}}}, Required: []string{"type"}},
		Then: without("vlan", "ring"),
	}, {
		If:   &schema{Properties: map[string]*schema{"type": {Enum: []any{string(Local)}}}, Required: []string{"type"}},
		Then: without("vlan", "ring", "addresses"),
	}}
	links.MinItems = 1
	return []field{
		{"links", "the interfaces the director works on", links},
		{"routes", "routes beside the host's main routing table; each wins over the host's to the same destination", listOf(mappingOf(routeFields(), "to"), 0)},
		{"control", "path of the unix socket by which the director is listed and changed", &schema{Type: "string", Pattern: "^/", MaxLength: maxSocket, Default: DefaultSocket}},
		{"standby", "begin by leaving every packet to the host, until \"pktdirector standby off\"; not with a tundev", yesOrNo()},
		{"api", "a TCP listener of the API beside that socket, for those with a certificate or the token", mappingOf(apiFields(), "listen")},
		{"metrics", "for Prometheus; left out: it can only ask by the control socket", mappingOf(metricsFields(), "listen")},
		{"drift", "what a reload makes of what was changed by hand: restore what the file says, or keep it", withDefault(anyWord(string(DriftRestore), string(DriftKeep)), string(DriftRestore))},
		{"watch", "reload when the file changes", yesOrNo()},
		{"snapshot", "the state that the next start goes on from, also after kill -9 or a crash", mappingOf(snapshotFields())},
		{"sysctl", "the kernel's settings of IPVS by their names, with or without net.ipv4.vs.", sysctlSchema()},
		{"timeouts", "of connections, in seconds, as ipvsadm --set has them", mappingOf(timeoutFields())},
		{"marks", "rules that give packets firewall marks; the first that matches counts", listOf(mappingOf(markFields(), "fwmark"), maxMarkRules)},
		{"services", "what is balanced; an empty list is told by ipvsadm's commands while the director runs", listOf(serviceSchema(), 0)},
	}
}

func linkFields() []field {
	return []field{
		{"name", "the interface, as \"ip link\" shows it", &schema{Type: []string{"string", "number"}, MinLength: 1, MaxLength: maxName, Pattern: `^[^/: \t\n]+$`, Not: &schema{Enum: []any{".", ".."}}}},
		{"type", "afpacket: a network card; tundev: a TUN device that the host routes the VIPs into; local: a TUN device by which this host itself is a real server", withDefault(anyWord(string(AFPacket), string(Tundev), string(Local)), string(AFPacket))},
		{"vlan", "only frames of this 802.1Q id belong to the link", integerFrom(1, maxVLAN)},
		{"ring", "the receive ring; left out: sized from the MTU", mappingOf(ringFields())},
		{"addresses", "the director's own addresses here, with prefix length; left out: the host's", listOf(pattern(prefixPattern), 0)},
	}
}

func ringFields() []field {
	var sizes []any
	for size := minSlotSize; size <= maxSlotSize; size *= 2 {
		sizes = append(sizes, size)
	}
	return []field{
		{"slots", "frames it holds", integerFrom(minSlots, maxSlots)},
		{"slot_size", "bytes a frame may have in its slot", &schema{Enum: sizes}},
	}
}

func routeFields() []field {
	return []field{
		{"to", "the destination, as a prefix", pattern(prefixPattern)},
		{"via", "the gateway; left out: on the link itself", pattern(addressPattern)},
		{"link", "the name of one of the links; may be left out when there is only one", &schema{Type: []string{"string", "number"}}},
	}
}

// sysctlSchema describes settings by any name; Schema names those there are.
func sysctlSchema() *schema {
	return &schema{Type: "object", Additional: new(bool), Patterns: map[string]*schema{".": integerFrom(0, maxSetting)}}
}

func timeoutFields() []field {
	of := func() *schema { return integerFrom(1, maxTimeout) }
	return []field{{"tcp", "established", of()}, {"tcpfin", "FIN_WAIT", of()}, {"udp", "UDP", of()}}
}

func markFields() []field {
	networks := func() *schema { return oneOrSome(pattern(networkPattern)) }
	return []field{
		{"fwmark", "the mark that matching packets get", integerFrom(1, maxMark)},
		{"src", "source addresses or prefixes; left out: any", networks()},
		{"dst", "destination addresses or prefixes; left out: any", networks()},
		{"protocol", "left out: any", anyWord("tcp", "udp", "sctp")},
		{"port", "destination ports, or ranges like 8000-8100; left out: any", oneOrSome(portOrRange())},
		{"link", "the name of the link it came in by", &schema{Type: []string{"string", "number"}}},
		{"vlan", "its 802.1Q id", integerFrom(1, maxVLAN)},
	}
}

func serviceSchema() *schema {
	s := mappingOf(serviceFields())
	byMark := without("vip", "protocol", "port")
	byMark.Required = []string{"fwmark"}
	byAddress := without("fwmark", "ipv6")
	byAddress.Required = []string{"vip", "protocol", "port"}
	s.AnyOf = []*schema{byMark, byAddress}
	persistent := &schema{Required: []string{"persistence_timeout"}}
	zero := int64(0)
	s.AllOf = []*schema{
		{If: &schema{Required: []string{"persistence_granularity"}}, Then: persistent},
		{If: &schema{Properties: map[string]*schema{"port": {Type: "integer", Maximum: &zero}}, Required: []string{"port"}}, Then: persistent},
		{
			If: &schema{Properties: map[string]*schema{"ops": {Enum: []any{true}}, "protocol": {Enum: []any{"tcp", "sctp"}}}, Required: []string{"ops", "protocol"}},
			// Not a word about ops: it is the one of the two that is out of place.
			Then: &schema{Properties: map[string]*schema{"ops": {Enum: []any{false}}}},
		},
		{
			If:   without("method"),
			Then: &schema{Properties: map[string]*schema{"servers": {Items: &schema{Required: []string{"method"}}}}},
		},
	}
	return s
}

func serviceFields() []field {
	return []field{
		{"vip", "the address clients connect to; no host has it", pattern(addressPattern)},
		{"protocol", "of the service", anyWord("tcp", "udp", "sctp")},
		{"port", "0: every port, of a persistent service", integerFrom(0, 65535)},
		{"fwmark", "in place of vip, protocol and port: a firewall mark that rules under marks give", integerFrom(1, maxMark)},
		{"ipv6", "of a service by fwmark: for IPv6 packets", yesOrNo()},
		{"scheduler", "which server a new connection gets", withDefault(anyWord(sched.Names()...), DefaultScheduler)},
		{"flags", "of the scheduler", listOf(anyWord("flag-1", "flag-2", "flag-3", "sh-fallback", "sh-port", "mh-fallback", "mh-port"), 0)},
		{"persistence_timeout", "seconds a client stays with its server after its last new connection", integerFrom(1, maxTimeout)},
		{"persistence_granularity", "clients that count as one: a netmask; with an IPv6 VIP a prefix length", &schema{AnyOf: []*schema{pattern(`^` + address4Pattern + `$`), integerFrom(1, 128)}}},
		{"persistence_engine", "of ipvsadm --pe; kept and listed, of no effect", anyWord("sip")},
		{"ops", "each UDP datagram is scheduled on its own, without a connection", yesOrNo()},
		{"method", "of servers that name none", methodSchema()},
		{"clamp_mss", "lower the largest segment that SYNs announce to what the way to the server takes", yesOrNo()},
		{"sources", "addresses that stand for clients towards FullNAT servers", listOf(pattern(addressPattern), lvs.MaxSources)},
		{"source_ports", "ports of each source, as a range like 1024-65535", &schema{AnyOf: []*schema{portOrRange(), {Type: "array", Items: portOrRange(), MaxItems: 1}}}},
		{"toa", "a TCP option tells FullNAT servers the client's address", yesOrNo()},
		{"servers", "real servers, in the order in which they are added", listOf(mappingOf(serverFields(), "address"), 0)},
	}
}

func serverFields() []field {
	return []field{
		{"address", "RIP", pattern(addressPattern)},
		{"port", "left out: the service's; 0: each packet's own", integerFrom(0, 65535)},
		{"weight", "0: no new connections", withDefault(integerFrom(0, lvs.MaxWeight), 1)},
		{"method", "left out: the service's", methodSchema()},
		{"uthreshold", "connections at which it gets no new ones; 0: none", integerFrom(0, maxThreshold)},
		{"lthreshold", "connections below which it gets them again; 0: three quarters of uthreshold", integerFrom(0, maxThreshold)},
		{"tunnel", "of method tun; left out: ipip", tunnelSchema()},
	}
}

// methodSchema has all words that lvs.ParseMethod reads.
func methodSchema() *schema {
	return anyWord("nat", "dr", "tun", "fullnat", "masq", "masquerading", "route", "gatewaying", "tunnel", "tunnelling", "tunneling")
}

func tunnelSchema() *schema {
	s := mappingOf(tunnelFields(), "type")
	gue := &schema{Properties: map[string]*schema{"type": {Enum: []any{lvs.GUE.String()}}}, Required: []string{"type"}}
	remcsum := &schema{Properties: map[string]*schema{"checksum": {Enum: []any{lvs.RemoteChecksum.String()}}}, Required: []string{"checksum"}}
	s.AllOf = []*schema{
		{If: gue, Then: &schema{Required: []string{"port"}}, Else: without("port")},
		only("type", []any{lvs.GUE.String(), lvs.GRE.String()}, "checksum"),
		{If: remcsum, Then: gue},
	}
	return s
}

func tunnelFields() []field {
	return []field{
		{"type", "IP in IP, IP in UDP, or GRE", anyWord(lvs.IPIP.String(), lvs.GUE.String(), lvs.GRE.String())},
		{"port", "of gue: the UDP port at which the server takes it", integerFrom(1, 65535)},
		{"checksum", "of gue and gre; remcsum of gue only", withDefault(anyWord(lvs.NoChecksum.String(), lvs.Checksum.String(), lvs.RemoteChecksum.String()), lvs.NoChecksum.String())},
	}
}

func withDefault(s *schema, is any) *schema {
	s.Default = is
	return s
}

// Bounds of numbers in a configuration file.
const (
	maxSetting   = 1<<31 - 1
	maxTimeout   = int64(lvs.MaxPersist / time.Second)
	maxMark      = 1<<32 - 1
	maxThreshold = 1<<32 - 1
)
