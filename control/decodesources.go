package control

import (
	"fmt"
	"strings"

	"pktdirector/lvs"
	"pktdirector/packet"
)

// decodeSources reads what stands for clients towards the FullNAT servers of a
// service.
func decodeSources(s *lvs.VirtualService, addrs, ports, toa value) {
	items, _ := addrs.list()
	if len(items) > lvs.MaxSources {
		items[lvs.MaxSources].wrong("there are %d sources: at most %d can be there", len(items), lvs.MaxSources)
		items = items[:lvs.MaxSources]
	}
	seen := map[packet.Addr]bool{}
	for _, item := range items {
		ip, ok := item.unicast()
		if !ok {
			continue
		}
		a := packet.AddrFrom(ip)
		switch {
		case ip.IsLoopback():
			item.wrong("%s is reached by no other machine: write an address that servers can answer to", ip)
		case (s.Mark != 0 || s.VIP.IsValid()) && a.Is4() != s.Is4():
			item.wrong("%s is of another IP version than the service: write an address of the same", ip)
		case seen[a]:
			item.wrong("%s stands here already: write it once", ip)
		}
		seen[a] = true
		s.Sources.Addrs = append(s.Sources.Addrs, a)
	}
	if !ports.missing() {
		if all := ports.ports(); len(all) == 1 {
			s.Sources.Ports = all[0]
		} else if len(all) > 1 {
			ports.wrong("is a list: write one range like 1024-65535")
		}
	}
	if !toa.missing() {
		s.Sources.TOA, _ = toa.boolean()
	}
}

// checkSources refuses source addresses that are also something else, or have two
// ranges of ports. sources are the places that say so of each service.
func checkSources(r *lvs.Ruleset, sources []value) {
	i, j, why := r.SourceFault()
	if why == "" {
		return
	}
	at := sources[i]
	if j >= 0 {
		if items, ok := at.list(); ok && j < len(items) {
			at = items[j]
		}
	}
	at.wrong("%s", why)
}

// checkFullNAT refuses a FullNAT server where there can be none.
func (d *serverDecoder) checkFullNAT(at value, rs *lvs.RealServer) {
	if rs.Method != lvs.FullNAT {
		return
	}
	if d.service.OnePacket {
		at.wrong("one-packet scheduling (ops) keeps no entry by which fullnat could find the answers: write another method")
	}
	for _, l := range d.links {
		if l.Type == Tundev && len(d.service.Sources.Addrs) == 0 {
			at.wrong("the link %s is a tundev, to which the host hands no answers to its own address: add sources to the service, addresses that the host does not have", l.Name)
		}
	}
}

// printSources writes what decodeSources reads.
func printSources(b *strings.Builder, s *lvs.Sources) {
	if len(s.Addrs) > 0 {
		fmt.Fprintf(b, "    sources: [%s]\n", quotedList(s.Addrs))
	}
	if s.Ports != (lvs.PortRange{}) {
		fmt.Fprintf(b, "    source_ports: %s\n", s.Ports)
	}
	if s.TOA {
		b.WriteString("    toa: true\n")
	}
}
