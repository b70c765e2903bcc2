package control

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Print writes c as a configuration file that Parse reads back as c.
func (c *Config) Print(w io.Writer) error {
	var b strings.Builder
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
	b.WriteString("services:\n")
	for _, s := range c.Ruleset.Services {
		fmt.Fprintf(&b, "  - vip: %q\n    protocol: %s\n    port: %d\n    scheduler: %s\n",
			s.VIP, strings.ToLower(s.Proto.String()), s.Port, s.Scheduler)
		if len(s.Servers) > 0 {
			b.WriteString("    servers:\n")
		}
		for _, rs := range s.Servers {
			fmt.Fprintf(&b, "      - {address: %q, port: %d, weight: %d, method: %s}\n",
				rs.RIP, rs.Port, rs.Weight, rs.Method.Short())
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
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
		var quoted []string
		for _, a := range l.Addresses {
			quoted = append(quoted, strconv.Quote(a.String()))
		}
		fmt.Fprintf(b, "    addresses: [%s]\n", strings.Join(quoted, ", "))
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
    scheduler: wlc         # rr, wrr, lc or wlc
    method: nat            # nat, dr or tun
    servers:
      - {address: 10.2.0.1, port: 8080, weight: 1}
      - {address: 10.2.0.2, port: 8080, weight: 1}
`, strconv.Quote(link))
}
