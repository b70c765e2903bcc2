package host

import (
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"pktdirector/packet"
)

// guardSets are the sets that the fixed rules look into. Names end in the IP
// version; all but the two arp ones stand in the inet table.
type guardSets struct {
	links            *nftables.Set // interfaces the director reads
	vip4, vip6       *nftables.Set // VIPs
	served4, served6 *nftables.Set // VIP . protocol . port
	frag4, frag6     *nftables.Set // VIP . protocol
	reply4, reply6   *nftables.Set // RIP . protocol . port of NAT servers
	arpLinks, arpVIP *nftables.Set
}

func (g *Guard) addSets() error {
	s := &g.sets
	for _, d := range []struct {
		to    **nftables.Set
		table *nftables.Table
		name  string
		types []nftables.SetDatatype
	}{
		{&s.links, g.inet, "links", []nftables.SetDatatype{nftables.TypeIFName}},
		{&s.vip4, g.inet, "vip4", []nftables.SetDatatype{nftables.TypeIPAddr}},
		{&s.vip6, g.inet, "vip6", []nftables.SetDatatype{nftables.TypeIP6Addr}},
		{&s.served4, g.inet, "served4", []nftables.SetDatatype{nftables.TypeIPAddr, nftables.TypeInetProto, nftables.TypeInetService}},
		{&s.served6, g.inet, "served6", []nftables.SetDatatype{nftables.TypeIP6Addr, nftables.TypeInetProto, nftables.TypeInetService}},
		{&s.frag4, g.inet, "frag4", []nftables.SetDatatype{nftables.TypeIPAddr, nftables.TypeInetProto}},
		{&s.frag6, g.inet, "frag6", []nftables.SetDatatype{nftables.TypeIP6Addr, nftables.TypeInetProto}},
		{&s.reply4, g.inet, "reply4", []nftables.SetDatatype{nftables.TypeIPAddr, nftables.TypeInetProto, nftables.TypeInetService}},
		{&s.reply6, g.inet, "reply6", []nftables.SetDatatype{nftables.TypeIP6Addr, nftables.TypeInetProto, nftables.TypeInetService}},
		{&s.arpLinks, g.arp, "links", []nftables.SetDatatype{nftables.TypeIFName}},
		{&s.arpVIP, g.arp, "vip4", []nftables.SetDatatype{nftables.TypeIPAddr}},
	} {
		set := &nftables.Set{Table: d.table, Name: d.name, KeyType: d.types[0]}
		if len(d.types) > 1 {
			kind, err := nftables.ConcatSetType(d.types...)
			if err != nil {
				return fmt.Errorf("set %s: %w", d.name, err)
			}
			set.KeyType, set.Concatenation = kind, true
		}
		if err := g.conn.AddSet(set, nil); err != nil {
			return fmt.Errorf("set %s: %w", d.name, err)
		}
		*d.to = set
	}
	return nil
}

// addRules installs the rules. As nft would list those for IPv4:
//
//	iifname @links ip daddr @vip4 fib daddr type != local drop
//	iifname @links ip daddr . meta l4proto . th dport @served4 drop
//	iifname @links ip daddr @vip4 icmp type echo-request drop
//	iifname @links ip frag-off & 0x1fff != 0 ip daddr . meta l4proto @frag4 drop
//	iifname @links ip saddr . meta l4proto . th sport @reply4 fib daddr type != local drop
//	iifname @links jump wide
//	table arp: iifname @links arp operation request arp daddr ip @vip4 drop
//
// The first takes everything for a VIP that the host does not have: the host
// would forward it or say that it is unreachable. The next three are for a VIP
// that the host has too, where it keeps what the director does not handle.
// Whether it has the VIP, the kernel's routing table tells for each packet.
// The last but one takes what the host, being the servers' gateway, would
// forward without translating it.
//
// Later fragments of a NAT server's reply carry no port, so they cannot be
// told from a fragment of something else and are left alone.
func (g *Guard) addRules() {
	accept := nftables.ChainPolicyAccept
	prerouting := g.conn.AddChain(&nftables.Chain{
		Name: "prerouting", Table: g.inet, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookPrerouting,
		Priority: nftables.ChainPriorityRef(guardPriority), Policy: &accept,
	})
	g.wide = g.conn.AddChain(&nftables.Chain{Name: "wide", Table: g.inet})
	// NF_ARP_IN is hook 0, which the library calls prerouting elsewhere.
	requests := g.conn.AddChain(&nftables.Chain{
		Name: "input", Table: g.arp, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookRef(0),
		Priority: nftables.ChainPriorityFilter, Policy: &accept,
	})
	rule := func(c *nftables.Chain, parts ...[]expr.Any) {
		links := g.sets.links
		if c.Table == g.arp {
			links = g.sets.arpLinks
		}
		exprs := []expr.Any{&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1}, inSet(links)}
		for _, p := range parts {
			exprs = append(exprs, p...)
		}
		g.conn.AddRule(&nftables.Rule{Table: c.Table, Chain: c, Exprs: append(exprs, &expr.Verdict{Kind: expr.VerdictDrop})})
	}
	for _, f := range []ipFamily{ipv4(), ipv6()} {
		s := g.sets.of(f)
		rule(prerouting, f.is(), f.dst(), in(s.vip), notLocal())
		rule(prerouting, f.is(), f.dst(), f.l4proto(), f.port(thDport), in(s.served))
		rule(prerouting, f.is(), f.dst(), in(s.vip), icmp(f.icmp, f.echo))
		rule(prerouting, f.is(), f.later(), f.dst(), f.l4proto(), in(s.frag))
		rule(prerouting, f.is(), f.src(), f.l4proto(), f.port(thSport), in(s.reply), notLocal())
	}
	g.conn.AddRule(&nftables.Rule{Table: g.inet, Chain: prerouting, Exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1}, inSet(g.sets.links), &expr.Verdict{Kind: expr.VerdictJump, Chain: g.wide.Name}}})
	// A neighbour solicitation's target follows type, code, checksum and 4
	// reserved bytes (RFC 4861 section 4.3).
	rule(prerouting, ipv6().is(), icmp(packet.ICMPv6, 135),
		[]expr.Any{load(expr.PayloadBaseTransportHeader, 8, 16, 1)}, in(g.sets.vip6))
	// ARP for IPv4 over Ethernet: the operation at 6, the target's protocol
	// address at 24 (RFC 826).
	rule(requests, []expr.Any{load(expr.PayloadBaseNetworkHeader, 6, 2, 1), equal(0, 1),
		load(expr.PayloadBaseNetworkHeader, 24, 4, 1)}, in(g.sets.arpVIP))
}

// familySets are one IP version's sets.
type familySets struct{ vip, served, frag, reply *nftables.Set }

func (s *guardSets) of(f ipFamily) familySets {
	if f.nfproto == unix.NFPROTO_IPV4 {
		return familySets{s.vip4, s.served4, s.frag4, s.reply4}
	}
	return familySets{s.vip6, s.served6, s.frag6, s.reply6}
}

// Offsets of the ports in a TCP or UDP header.
const (
	thSport = 0
	thDport = 2
)

// ipFamily says where things stand in an IP header. A concatenation is built
// in consecutive 4-byte registers from NFT_REG_1 on, which an IPv4 address
// fills to a quarter and an IPv6 address wholly.
type ipFamily struct {
	nfproto            byte
	srcAt, dstAt, size uint32
	protoReg, portReg  uint32
	icmp               packet.Proto
	echo               byte // the type of an echo request
}

func ipv4() ipFamily {
	return ipFamily{unix.NFPROTO_IPV4, 12, 16, 4, unix.NFT_REG32_01, unix.NFT_REG32_02, packet.ICMP, 8}
}

func ipv6() ipFamily {
	return ipFamily{unix.NFPROTO_IPV6, 8, 24, 16, unix.NFT_REG32_04, unix.NFT_REG32_05, packet.ICMPv6, 128}
}

func (f ipFamily) is() []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, equal(f.nfproto)}
}

func (f ipFamily) src() []expr.Any {
	return []expr.Any{load(expr.PayloadBaseNetworkHeader, f.srcAt, f.size, 1)}
}

func (f ipFamily) dst() []expr.Any {
	return []expr.Any{load(expr.PayloadBaseNetworkHeader, f.dstAt, f.size, 1)}
}

func (f ipFamily) l4proto() []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: f.protoReg}}
}

func (f ipFamily) port(at uint32) []expr.Any {
	return []expr.Any{load(expr.PayloadBaseTransportHeader, at, 2, f.portReg)}
}

// later matches fragments other than the first: an offset that is not 0, in
// the low 13 bits of IPv4's field (RFC 791) or the high 13 of the IPv6
// fragment header's (RFC 8200 section 4.5).
func (f ipFamily) later() []expr.Any {
	first, mask := expr.Any(load(expr.PayloadBaseNetworkHeader, 6, 2, 1)), []byte{0x1f, 0xff}
	if f.nfproto == unix.NFPROTO_IPV6 {
		const fragmentHeader = 44
		first = &expr.Exthdr{DestRegister: 1, Type: fragmentHeader, Offset: 2, Len: 2, Op: expr.ExthdrOpIpv6}
		mask = []byte{0xff, 0xf8}
	}
	return []expr.Any{first,
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 2, Mask: mask, Xor: []byte{0, 0}},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{0, 0}}}
}

// notLocal matches packets whose destination is no address of this host.
func notLocal() []expr.Any { return isLocal(expr.CmpOpNeq) }

// local matches packets whose destination is an address of this host.
func local() []expr.Any { return isLocal(expr.CmpOpEq) }

func isLocal(op expr.CmpOp) []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: op, Register: 1, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)}}
}

func icmp(p packet.Proto, kind byte) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, equal(byte(p)),
		load(expr.PayloadBaseTransportHeader, 0, 1, 1), equal(kind)}
}

func in(s *nftables.Set) []expr.Any { return []expr.Any{inSet(s)} }

func inSet(s *nftables.Set) expr.Any {
	return &expr.Lookup{SourceRegister: 1, SetName: s.Name, SetID: s.ID}
}

func equal(b ...byte) expr.Any { return &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: b} }

func load(base expr.PayloadBase, at, n, reg uint32) expr.Any {
	return &expr.Payload{DestRegister: reg, Base: base, Offset: at, Len: n}
}
