package judge

import (
	"fmt"
	"slices"
	"strings"

	"pktdirector/packet"
)

// conflicts finds machines that share a VIP.
func (f *inference) conflicts() []Finding {
	var out []Finding
	lost := f.lostVIPs()
	for _, a := range sortedAddrs(f.addrs4VIP) {
		x := Finding{Code: ARPConflict, size: 1, Next: "on the servers: arp_ignore=1 and arp_announce=2 (all and the interface) before the VIP is put on lo; find the machine by its MAC (ip neigh, the switch), or ask with pktdirector check-arp from another machine"}
		var refs []Ref
		list := slices.DeleteFunc(slices.Clone(f.neigh.claims[a]), func(c claim) bool {
			return !slices.ContainsFunc(f.neigh.claims[a], func(o claim) bool { return o.mac != c.mac && o.overlaps(&c) })
		})
		if len(list) > 1 {
			var who []string
			for _, c := range list {
				name := c.mac.String()
				if f.own[c.mac] {
					name += " (the director)"
				} else if real := f.addressOf(c.mac, !a.Is4()); real.IsValid() {
					name += " (" + real.String() + ")"
				}
				who = append(who, name)
				refs = append(refs, c.ref)
			}
			x.Text = fmt.Sprintf("%d MACs claim the VIP %s (ARP conflict): %s; some connections never pass the director", len(list), a, strings.Join(who, ", "))
			x.Packets = f.names(refs)
			out = append(out, x)
			continue
		}
		if q := lost[a]; q != nil {
			x.Text = fmt.Sprintf("another machine also answers ARP for the VIP %s (ARP conflict, two MACs claim it): %s (%s) asked %d times, the director answered with %s, and after %d of them nothing came to the director: some or all connections never pass it",
				a, q.from, q.sender, q.n, q.replyMAC, q.lost)
			x.Packets = f.names(slices.Clone(q.refs))
			out = append(out, x)
		}
	}
	return out
}

// lostVIPs finds addresses that were asked for and answered, and whose packets
// went to somebody else then.
func (f *inference) lostVIPs() map[packet.Addr]*asked {
	out := map[packet.Addr]*asked{}
	for _, q := range f.neigh.asks {
		const share = 4
		if q.lost == 0 || q.lost*share < q.n || len(f.conns) > 0 && (q.lost < few || !f.senders[q.from]) {
			continue // with connections to compare: one of those who bring them
		}
		if best := out[q.target]; best == nil || q.lost > best.lost || q.lost == best.lost && q.first.Number < best.first.Number {
			out[q.target] = q
		}
	}
	return out
}

func sortedAddrs(m map[packet.Addr]int) []packet.Addr {
	var list []packet.Addr
	for a := range m {
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b packet.Addr) int { return b2i(b.Less(a)) - b2i(a.Less(b)) })
	return list
}
