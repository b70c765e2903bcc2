package host

import (
	"encoding/binary"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"pktdirector/lvs"
)

// replaceWide makes the rules of the chain "wide" anew, for what is told by
// prefixes, ranges of ports, or for every port, where sets of single addresses
// and ports do not reach. As nft would list some:
//
//	ip saddr 198.51.100.0/24 ip daddr 192.0.2.40 meta l4proto tcp th dport 8000-8100 drop
//	ip daddr 192.0.2.50 meta l4proto udp ip frag-off & 0x1fff != 0 drop
//	ip saddr 10.2.0.11 meta l4proto tcp th sport 8000-8100 fib daddr type != local drop
func (g *Guard) replaceWide(r GuardRules) {
	g.conn.FlushChain(g.wide)
	rule := func(verdict expr.VerdictKind, parts ...[]expr.Any) {
		var exprs []expr.Any
		for _, p := range parts {
			exprs = append(exprs, p...)
		}
		g.conn.AddRule(&nftables.Rule{Table: g.inet, Chain: g.wide, Exprs: append(exprs, &expr.Verdict{Kind: verdict})})
	}
	for _, m := range r.Marked {
		f, verdict := familyOf(m.V6), expr.VerdictDrop
		if m.Keep {
			verdict = expr.VerdictReturn
		}
		flow := [][]expr.Any{f.is(), f.inPrefix(f.srcAt, m.Src), f.inPrefix(f.dstAt, m.Dst), l4proto(byte(m.Proto))}
		rule(verdict, append(flow, portIn(thDport, m.Ports))...)
		if m.Ports != (lvs.PortRange{}) && !m.Keep {
			rule(verdict, append(flow, f.later())...) // it has no port, and the director holds it
		}
	}
	for _, p := range r.Replies {
		if p.Ports.From == p.Ports.To && p.Ports.From != 0 {
			continue // is in a set
		}
		f := familyOf(!p.RIP.Is4())
		rule(expr.VerdictDrop, f.is(), f.inPrefix(f.srcAt, hostPrefix(p.RIP)), l4proto(byte(p.Proto)), portIn(thSport, p.Ports), notLocal())
	}
	g.replaceSources(r, rule)
}

// replaceSources makes the rules for FullNAT's source addresses anew. As nft would
// list some:
//
//	ip daddr 10.2.0.200 fib daddr type != local drop
//	ip daddr 10.2.0.1 ip saddr 10.2.0.11 meta l4proto tcp th sport 80 th dport 1024-32767 drop
//
// The first is about an address that is the director's alone; whether it is, the
// kernel's routing table tells. On one that the host has, only servers' answers to
// the director's ports are the director's. Where no address was given the second
// stands with "fib daddr type local" in place of one.
func (g *Guard) replaceSources(r GuardRules, rule func(expr.VerdictKind, ...[]expr.Any)) {
	for _, a := range r.Sources {
		f := familyOf(!a.Is4())
		rule(expr.VerdictDrop, f.is(), f.inPrefix(f.dstAt, hostPrefix(a)), notLocal())
	}
	for _, s := range r.Sourced {
		f := familyOf(!s.RIP.Is4())
		drop := func(to []expr.Any) {
			rule(expr.VerdictDrop, f.is(), to, f.inPrefix(f.srcAt, hostPrefix(s.RIP)), l4proto(byte(s.Proto)),
				portIn(thSport, s.Ports), portIn(thDport, s.ToPorts))
		}
		if len(s.To) == 0 {
			drop(local())
		}
		for _, a := range s.To {
			drop(f.inPrefix(f.dstAt, hostPrefix(a)))
		}
	}
}

func familyOf(v6 bool) ipFamily {
	if v6 {
		return ipv6()
	}
	return ipv4()
}

// inPrefix matches an address that stands at an offset in the IP header; every
// one where p is invalid.
func (f ipFamily) inPrefix(at uint32, p netip.Prefix) []expr.Any {
	if !p.IsValid() || p.Bits() == 0 {
		return nil
	}
	mask := make([]byte, f.size)
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return []expr.Any{load(expr.PayloadBaseNetworkHeader, at, f.size, 1),
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: f.size, Mask: mask, Xor: make([]byte, f.size)},
		equal(p.Masked().Addr().AsSlice()...)}
}

func l4proto(p byte) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, equal(p)}
}

// portIn matches a port of the transport header; every one where r is zero.
func portIn(at uint32, r lvs.PortRange) []expr.Any {
	if r == (lvs.PortRange{}) {
		return nil
	}
	return []expr.Any{load(expr.PayloadBaseTransportHeader, at, 2, 1),
		&expr.Range{Op: expr.CmpOpEq, Register: 1,
			FromData: binary.BigEndian.AppendUint16(nil, r.From), ToData: binary.BigEndian.AppendUint16(nil, r.To)}}
}
