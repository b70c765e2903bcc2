package control

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"pktdirector/lvs"
)

// sysctlPrefix stands before a setting's name where sysctl(8) shows it.
const sysctlPrefix = "net.ipv4.vs."

// Sysctl is one of the kernel's settings of IPVS.
type Sysctl struct {
	Name  string // without net.ipv4.vs
	Value string // a whole number
	At    string // where it stands, for messages: file:line:column: path
}

// Timeouts are those of connections, as ipvsadm --set takes them. Zeros keep
// what the director has.
type Timeouts struct{ TCP, TCPFin, UDP time.Duration }

// The timeouts that the director has where nobody sets others.
const (
	DefaultTCP    = 900 * time.Second
	DefaultTCPFin = 120 * time.Second
	DefaultUDP    = 300 * time.Second
)

// maxMarkRules bounds the rules that each packet without a connection is held
// against, in order.
const maxMarkRules = 4096

// CheckSysctl holds each setting against known, which is what the director
// takes, and joins what it refuses, one line each with its place.
func (c *Config) CheckSysctl(known func(name, value string) error) error {
	var errs []error
	for _, s := range c.Sysctl {
		if err := known(s.Name, s.Value); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.At, err))
		}
	}
	return errors.Join(errs...)
}

// decodeSysctl reads settings by the kernel's names, with or without
// net.ipv4.vs in front. Which there are, CheckSysctl tells.
func decodeSysctl(c *Config, v value) {
	if v.missing() {
		return
	}
	names := v.keys()
	m := v.mapping(names...)
	seen := map[string]string{}
	for _, written := range names {
		one := m[written]
		n, ok := one.integer(0, maxSetting)
		name := strings.TrimPrefix(written, sysctlPrefix)
		if first, there := seen[name]; there && first != written {
			one.wrong("stands here already as %s: write it once", first)
		}
		seen[name] = written
		if at := one.token(); ok && at != nil {
			c.Sysctl = append(c.Sysctl, Sysctl{name, strconv.FormatInt(n, 10),
				fmt.Sprintf("%s:%d:%d: %s", v.doc.name, at.Position.Line, at.Position.Column, one.path)})
		}
	}
}

// decodeTimeouts reads what ipvsadm --set sets.
func decodeTimeouts(c *Config, v value) {
	if v.missing() {
		return
	}
	m := v.mapping(keys(timeoutFields())...)
	for name, to := range map[string]*time.Duration{"tcp": &c.Timeouts.TCP, "tcpfin": &c.Timeouts.TCPFin, "udp": &c.Timeouts.UDP} {
		if t := m[name]; !t.missing() {
			n, _ := t.integer(1, maxTimeout)
			*to = time.Duration(n) * time.Second
		}
	}
}

// decodeMarks reads the rules that give packets firewall marks.
func decodeMarks(c *Config, v value) {
	items, _ := v.list()
	if len(items) > maxMarkRules {
		items[maxMarkRules].wrong("there are %d rules: at most %d can be there", len(items), maxMarkRules)
		items = items[:maxMarkRules]
	}
	for _, item := range items {
		c.Ruleset.Marks = append(c.Ruleset.Marks, decodeMark(c, item))
	}
}

func decodeMark(c *Config, v value) lvs.MarkRule {
	r := lvs.MarkRule{Link: -1}
	m := v.mapping(keys(markFields())...)
	if f := m["fwmark"]; v.needs(f, "fwmark is missing: the mark that matching packets get, from 1 to 4294967295") {
		n, _ := f.integer(1, maxMark)
		r.Mark = uint32(n)
	}
	r.Src, r.Dst = m["src"].prefixes(), m["dst"].prefixes()
	for _, s := range r.Src {
		for _, d := range r.Dst {
			if s.Addr().Is4() != d.Addr().Is4() {
				m["src"].wrong("%s is of another IP version than %s under dst: no packet has both; write two rules", s, d)
			}
		}
	}
	if p := m["protocol"]; !p.missing() {
		r.Proto = p.protocol()
	}
	if p := m["port"]; !p.missing() {
		r.Ports = p.ports()
		if m["protocol"].missing() && !m["protocol"].faulty {
			p.wrong("is a port of which protocol? write protocol, too")
		}
	}
	if l := m["link"]; !l.missing() {
		if s, ok := l.text(); ok {
			for i := range c.Links {
				if c.Links[i].Name == s {
					r.Link = i
					break
				}
			}
			if r.Link < 0 && len(c.Links) > 0 {
				l.wrong("%q is none of the links: one of %s", s, strings.Join(linkNames(c), ", "))
			}
		}
	}
	if n := m["vlan"]; !n.missing() {
		id, _ := n.integer(1, maxVLAN)
		r.VLAN = uint16(id)
	}
	return r
}

// oneOrMore returns the items of a list, or v itself where it is none.
func (v value) oneOrMore() []value {
	if v.missing() {
		return nil
	}
	if v.isList() {
		items, _ := v.list()
		return items
	}
	return []value{v}
}

// prefixes reads an address, with or without a prefix length, or a list of
// them.
func (v value) prefixes() []netip.Prefix {
	var all []netip.Prefix
	for _, item := range v.oneOrMore() {
		s, ok := item.text()
		if !ok {
			continue
		}
		if !strings.Contains(s, "/") {
			if a, ok := item.address(); ok {
				all = append(all, netip.PrefixFrom(a, a.BitLen()))
			}
			continue
		}
		p, ok := item.prefix()
		switch {
		case !ok:
		case p.Addr().Is4In6():
			item.wrong("%q is an IPv4 address written as IPv6: write it as IPv4", s)
		case p != p.Masked():
			item.wrong("%s has bits set after its prefix: write %s", p, p.Masked())
		default:
			all = append(all, p)
		}
	}
	return all
}

// ports reads a port, a range of ports as in 8000-8100, or a list of them.
func (v value) ports() []lvs.PortRange {
	var all []lvs.PortRange
	for _, item := range v.oneOrMore() {
		s, ok := item.text()
		if !ok {
			continue
		}
		low, high, isRange := strings.Cut(s, "-")
		if !isRange {
			high = low
		}
		from, err1 := strconv.ParseUint(low, 10, 16)
		to, err2 := strconv.ParseUint(high, 10, 16)
		if err1 != nil || err2 != nil || from == 0 || from > to {
			item.wrong("%q is no port: write a number from 1 to 65535, or a range like 8000-8100", s)
			continue
		}
		all = append(all, lvs.PortRange{From: uint16(from), To: uint16(to)})
	}
	return all
}
