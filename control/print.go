package control

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"pktdirector/lvs"
)

// Print writes c as a configuration file that Parse reads back as c.
func (c *Config) Print(w io.Writer) error {
	_, err := io.WriteString(w, c.Annotated(Notes{}))
	return err
}

// Notes are comments in a configuration file that is written, without the #.
type Notes struct {
	Head  []string // the first lines
	Links string   // above each section
	Marks string
	List  string // above services
	// Services are above each service, by its index; behind the last one, too.
	Services map[int][]string
}

// Annotated writes c as Print does, with comments. Sections that have one begin with
// an empty line.
func (c *Config) Annotated(n Notes) string {
	var b strings.Builder
	for _, line := range n.Head {
		comment(&b, "", line)
	}
	heading(&b, n.Links)
	b.WriteString("links:\n")
	for i := range c.Links {
		printLink(&b, &c.Links[i])
	}
	if len(c.Routes) > 0 {
		b.WriteString("routes:\n")
	}
	for _, r := range c.Routes {
		fmt.Fprintf(&b, "  - {to: %q, ", r.To)
		if r.Via.IsValid() {
			fmt.Fprintf(&b, "via: %q, ", r.Via)
		}
		fmt.Fprintf(&b, "link: %s}\n", strconv.Quote(r.Link))
	}
	if c.Control != DefaultSocket {
		fmt.Fprintf(&b, "control: %s\n", strconv.Quote(c.Control))
	}
	if c.Standby {
		b.WriteString("standby: true\n")
	}
	printAPI(&b, &c.API)
	if c.Metrics != "" {
		fmt.Fprintf(&b, "metrics:\n  listen: %q\n", c.Metrics)
	}
	printReload(&b, c)
	printSnapshot(&b, c.Snapshot)
	printSettings(&b, c, n.Marks)
	heading(&b, n.List)
	if len(c.Ruleset.Services) == 0 {
		b.WriteString("services: []\n")
	} else {
		b.WriteString("services:\n")
	}
	for i := range c.Ruleset.Services {
		if i > 0 && n.List != "" {
			b.WriteString("\n")
		}
		for _, line := range n.Services[i] {
			comment(&b, "  ", line)
		}
		printService(&b, &c.Ruleset.Services[i])
	}
	for _, line := range n.Services[len(c.Ruleset.Services)] {
		comment(&b, "  ", line)
	}
	return b.String()
}

func heading(b *strings.Builder, text string) {
	if text != "" {
		b.WriteString("\n")
		comment(b, "", text)
	}
}

// comment writes a comment of one line; what would end it or is no character a
// file may have is written as Go would.
func comment(b *strings.Builder, indent, text string) {
	quoted := strconv.Quote(text)
	quoted = strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
	fmt.Fprintf(b, "%s# %s\n", indent, quoted)
}

// printSettings writes the sections sysctl, timeouts and marks.
func printSettings(b *strings.Builder, c *Config, aboveMarks string) {
	if len(c.Sysctl) > 0 {
		b.WriteString("sysctl:\n")
	}
	for _, s := range c.Sysctl {
		fmt.Fprintf(b, "  %s%s: %s\n", sysctlPrefix, s.Name, s.Value)
	}
	if c.Timeouts != (Timeouts{}) {
		b.WriteString("timeouts:\n")
	}
	for _, t := range []struct {
		name string
		is   time.Duration
	}{{"tcp", c.Timeouts.TCP}, {"tcpfin", c.Timeouts.TCPFin}, {"udp", c.Timeouts.UDP}} {
		if t.is != 0 {
			fmt.Fprintf(b, "  %s: %d\n", t.name, t.is/time.Second)
		}
	}
	if len(c.Ruleset.Marks) > 0 {
		heading(b, aboveMarks)
		b.WriteString("marks:\n")
	}
	for i := range c.Ruleset.Marks {
		printMark(b, c, &c.Ruleset.Marks[i])
	}
}

func printMark(b *strings.Builder, c *Config, r *lvs.MarkRule) {
	fmt.Fprintf(b, "  - {fwmark: %d", r.Mark)
	for _, p := range []struct {
		name string
		is   []netip.Prefix
	}{{"src", r.Src}, {"dst", r.Dst}} {
		if len(p.is) > 0 {
			fmt.Fprintf(b, ", %s: [%s]", p.name, quotedList(p.is))
		}
	}
	if r.Proto != 0 {
		fmt.Fprintf(b, ", protocol: %s", strings.ToLower(r.Proto.String()))
	}
	if len(r.Ports) > 0 {
		fmt.Fprintf(b, ", port: [%s]", quotedList(r.Ports))
	}
	if r.Link >= 0 && r.Link < len(c.Links) {
		fmt.Fprintf(b, ", link: %s", strconv.Quote(c.Links[r.Link].Name))
	}
	if r.VLAN != 0 {
		fmt.Fprintf(b, ", vlan: %d", r.VLAN)
	}
	b.WriteString("}\n")
}

func quotedList[T fmt.Stringer](items []T) string {
	var quoted []string
	for _, i := range items {
		quoted = append(quoted, strconv.Quote(i.String()))
	}
	return strings.Join(quoted, ", ")
}

func printService(b *strings.Builder, s *lvs.VirtualService) {
	if s.Mark != 0 {
		fmt.Fprintf(b, "  - fwmark: %d\n", s.Mark)
		if s.V6 {
			b.WriteString("    ipv6: true\n")
		}
	} else {
		fmt.Fprintf(b, "  - vip: %q\n    protocol: %s\n    port: %d\n", s.VIP, strings.ToLower(s.Proto.String()), s.Port)
	}
	fmt.Fprintf(b, "    scheduler: %s\n", s.Scheduler)
	if s.Flags != 0 {
		fmt.Fprintf(b, "    flags: [%s]\n", strings.ReplaceAll(flagNames(s.Scheduler, s.Flags), ",", ", "))
	}
	if s.Persist != 0 {
		fmt.Fprintf(b, "    persistence_timeout: %d\n", s.Persist/time.Second)
	}
	if s.MaskBits != 0 || s.Netmask.IsValid() {
		fmt.Fprintf(b, "    persistence_granularity: %s\n", granularity(s))
	}
	if s.Engine != "" {
		fmt.Fprintf(b, "    persistence_engine: %s\n", s.Engine)
	}
	if s.OnePacket {
		b.WriteString("    ops: true\n")
	}
	if s.ClampMSS {
		b.WriteString("    clamp_mss: true\n")
	}
	printSources(b, &s.Sources)
	if len(s.Servers) > 0 {
		b.WriteString("    servers:\n")
	}
	for i := range s.Servers {
		printServer(b, s, &s.Servers[i])
	}
}

// granularity writes the mask of a persistent service as decodePersistence
// reads it.
func granularity(s *lvs.VirtualService) string {
	if s.Netmask.IsValid() {
		return s.Netmask.String()
	}
	if s.Is4() {
		return net.IP(net.CIDRMask(s.MaskBits, 32)).String()
	}
	return strconv.Itoa(s.MaskBits)
}

func printServer(b *strings.Builder, s *lvs.VirtualService, rs *lvs.RealServer) {
	fmt.Fprintf(b, "      - {address: %q", rs.RIP)
	if rs.Port != 0 || rs.Port != s.Port {
		fmt.Fprintf(b, ", port: %d", rs.Port)
	}
	fmt.Fprintf(b, ", weight: %d, method: %s", rs.Weight, rs.Method.Short())
	if rs.Upper != 0 {
		fmt.Fprintf(b, ", uthreshold: %d", rs.Upper)
	}
	if rs.Lower != 0 {
		fmt.Fprintf(b, ", lthreshold: %d", rs.Lower)
	}
	b.WriteString(tunnelKeys(rs) + "}\n")
}

func printLink(b *strings.Builder, l *Link) {
	fmt.Fprintf(b, "  - name: %s\n    type: %s\n", strconv.Quote(l.Name), l.Type)
	if l.VLAN != 0 {
		fmt.Fprintf(b, "    vlan: %d\n", l.VLAN)
	}
	var ring []string
	if l.Ring.Slots != 0 {
		ring = append(ring, fmt.Sprintf("slots: %d", l.Ring.Slots))
	}
	if l.Ring.SlotSize != 0 {
		ring = append(ring, fmt.Sprintf("slot_size: %d", l.Ring.SlotSize))
	}
	if len(ring) > 0 {
		fmt.Fprintf(b, "    ring: {%s}\n", strings.Join(ring, ", "))
	}
	if len(l.Addresses) > 0 {
		fmt.Fprintf(b, "    addresses: [%s]\n", quotedList(l.Addresses))
	}
}

// Minimal returns a small configuration file with explanations, to start
// from: one NAT service over the interface link.
func Minimal(link string) []byte {
	return fmt.Appendf(nil, `# A small pktdirector configuration. Change the interface and the addresses,
# then:  pktdirector check -c THIS_FILE  and  pktdirector run -c THIS_FILE
links:
  - name: %s

services:
  - vip: 192.0.2.10        # the address clients connect to; not configured on any host
    protocol: tcp
    port: 80
    scheduler: wlc         # any that ipvsadm knows; wlc is the default
    method: nat            # nat, dr, tun or fullnat
    servers:
      - {address: 10.2.0.1, port: 8080, weight: 1}
      - {address: 10.2.0.2, port: 8080, weight: 1}
`, strconv.Quote(link))
}
