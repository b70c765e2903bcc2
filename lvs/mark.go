package lvs

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"pktdirector/packet"
)

// MarkRule gives packets a firewall mark, which a director in user space
// cannot see on them. All that is set must match; the first rule that matches
// counts.
type MarkRule struct {
	Src, Dst []netip.Prefix // any of them; none: every address
	Proto    packet.Proto   // 0: any
	Ports    []PortRange    // any of them is the destination port; none: every port
	Link     int            // index of the link it came in by; -1: any
	VLAN     uint16         // VLAN id; 0: any
	Mark     uint32         // 1 and up
}

// PortRange is the ports From to To, both included.
type PortRange struct{ From, To uint16 }

// String formats r as "80" or "8000-8100".
func (r PortRange) String() string {
	if r.From == r.To {
		return fmt.Sprint(r.From)
	}
	return fmt.Sprintf("%d-%d", r.From, r.To)
}

// Matches reports whether the rule matches a packet.
func (r *MarkRule) Matches(p *packet.Packet) bool {
	f := &p.Flow
	switch {
	case r.Proto != 0 && r.Proto != f.Proto,
		r.Link >= 0 && r.Link != p.Link,
		r.VLAN != 0 && (!p.Tagged || p.VLAN&0x0fff != r.VLAN):
		return false
	}
	return r.hasPort(f.DstPort) && within(r.Src, f.Src) && within(r.Dst, f.Dst)
}

// Equal reports whether two rules are the same.
func (r MarkRule) Equal(other MarkRule) bool {
	return slices.Equal(r.Src, other.Src) && slices.Equal(r.Dst, other.Dst) && slices.Equal(r.Ports, other.Ports) &&
		r.Proto == other.Proto && r.Link == other.Link && r.VLAN == other.VLAN && r.Mark == other.Mark
}

func (r *MarkRule) hasPort(port uint16) bool {
	for _, p := range r.Ports {
		if p.From <= port && port <= p.To {
			return true
		}
	}
	return len(r.Ports) == 0
}

func within(prefixes []netip.Prefix, a packet.Addr) bool {
	if len(prefixes) == 0 {
		return true
	}
	ip := a.Netip()
	for _, p := range prefixes {
		if p.Contains(ip) {
			return true
		}
	}
	return false
}

func (r *MarkRule) validate() error {
	if r.Mark == 0 {
		return errors.New("the mark 0 means none: 1 and up mark")
	}
	for _, p := range r.Ports {
		if p.From > p.To {
			return fmt.Errorf("the range of ports %d-%d is empty: write the smaller first", p.From, p.To)
		}
	}
	return nil
}
