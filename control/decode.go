package control

import (
	"net/netip"
	"slices"
	"strings"

	"pktdirector/lvs"
)

// decodeConfig fills c from the document's root. Everything it refuses is
// recorded as a fault at its place.
func decodeConfig(c *Config, root value) {
	m := root.mapping(keys(configFields())...)
	decodeLinks(c, root, m["links"])
	decodeRoutes(c, m["routes"])
	if v := m["control"]; !v.missing() {
		if s, ok := v.text(); ok {
			if !strings.HasPrefix(s, "/") || len(s) > maxSocket {
				v.wrong("%q cannot be a unix socket's path: write an absolute path of at most %d bytes", s, maxSocket)
			}
			c.Control = s
		}
	}
	if v := m["standby"]; !v.missing() {
		c.Standby, _ = v.boolean()
		if c.Standby && slices.ContainsFunc(c.Links, func(l Link) bool { return l.Type == Tundev }) {
			v.wrong("a director with a tundev cannot stand by: the host routes the VIPs into it; use afpacket links, or leave it out")
		}
	}
	decodeAPI(c, m["api"])
	decodeMetrics(c, m["metrics"])
	decodeReload(c, m["drift"], m["watch"])
	decodeSnapshot(c, m["snapshot"])
	decodeSysctl(c, m["sysctl"])
	decodeTimeouts(c, m["timeouts"])
	decodeMarks(c, m["marks"])
	d := serviceDecoder{config: c, seen: map[lvs.ServiceKey]int{}}
	services := m["services"]
	var items []value
	if services.isList() { // an empty one is written on purpose: ipvsadm shall fill it
		items, _ = services.list()
	} else {
		items = atLeastOne(root, services, "virtual service")
	}
	for i, v := range items {
		d.decode(v, i)
	}
	checkSources(&c.Ruleset, d.sources)
}

// atLeastOne returns the items of a list that must not be empty.
func atLeastOne(root, list value, what string) []value {
	items, ok := list.list()
	if ok && len(items) == 0 {
		root.path = list.path
		root.wrong("is missing: at least one %s must be there", what)
	}
	return items
}

func decodeLinks(c *Config, root, links value) {
	items := atLeastOne(root, links, "interface")
	if len(items) > maxLinks {
		items[maxLinks].wrong("there are %d links: at most %d can be there", len(items), maxLinks)
		items = items[:maxLinks]
	}
	for _, v := range items {
		c.Links = append(c.Links, decodeLink(c, v))
	}
	checkLocalLinks(c, items)
}

// checkLocalLinks refuses links to the host's own sockets where no packets could
// come to them.
func checkLocalLinks(c *Config, items []value) {
	count := map[LinkType]int{}
	for i := range c.Links {
		l := &c.Links[i]
		if count[l.Type]++; l.Type == Local && count[Local] == 2 {
			items[i].wrong("there is a link of type local already: one is enough for all services")
		}
	}
	switch first := slices.IndexFunc(c.Links, func(l Link) bool { return l.Type == Local }); {
	case first < 0:
	case count[Tundev] > 0:
		items[first].wrong("with a tundev the host has no VIP and cannot be a real server: use afpacket links, or leave this one out")
	case count[AFPacket] == 0:
		items[first].wrong("a link of type local hands packets to this host, and none comes in: add an afpacket link")
	}
}

func decodeLink(c *Config, v value) Link {
	l := Link{Type: AFPacket}
	m := v.mapping(keys(linkFields())...)
	if n := m["name"]; !v.needs(n, "name is missing: the interface's name, like eth0") {
	} else if s, ok := n.text(); ok {
		if !isInterfaceName(s) {
			n.wrong("%q cannot be an interface's name: 1 to %d characters without / and blanks", s, maxName)
		}
		l.Name = s
	}
	if t := m["type"]; !t.missing() {
		if s, ok := t.text(); ok {
			l.Type = LinkType(s)
			if l.Type != AFPacket && l.Type != Tundev && l.Type != Local {
				t.wrong("%q is no kind of link: afpacket (a network card), tundev (a TUN device) or local (to real servers on this host)", s)
			}
		}
	}
	if n := m["vlan"]; !n.missing() {
		id, ok := n.integer(1, maxVLAN)
		l.VLAN = uint16(id)
		if ok && l.Type != AFPacket {
			n.wrong("a %s link carries no frames, so it has no VLAN: leave it out", l.Type)
		}
	}
	if r := m["ring"]; !r.missing() {
		if l.Type != AFPacket {
			r.wrong("a %s link has no ring: leave it out", l.Type)
		}
		rm := r.mapping(keys(ringFields())...)
		if n := rm["slots"]; !n.missing() {
			slots, _ := n.integer(minSlots, maxSlots)
			l.Ring.Slots = int(slots)
		}
		if n := rm["slot_size"]; !n.missing() {
			size, ok := n.integer(minSlotSize, maxSlotSize)
			if ok && size&(size-1) != 0 {
				n.wrong("%d is no power of two: write one from %d to %d", size, minSlotSize, maxSlotSize)
			}
			l.Ring.SlotSize = int(size)
		}
	}
	addresses, _ := m["addresses"].list()
	for _, a := range addresses {
		if p, ok := a.prefix(); ok {
			l.Addresses = append(l.Addresses, p)
		}
	}
	if l.Type == Local && len(addresses) > 0 {
		m["addresses"].wrong("a local link has no addresses: leave it out")
	}
	for _, other := range c.Links {
		if other.Name == l.Name && l.Name != "" && (other.VLAN == l.VLAN || other.VLAN == 0 || l.VLAN == 0) {
			v.wrong("%s is another link already, and its frames would be handled twice: write it once, or give each a vlan of its own", l.Name)
		}
	}
	return l
}

func isInterfaceName(s string) bool {
	return s != "" && len(s) <= maxName && s != "." && s != ".." && !strings.ContainsAny(s, "/: \t\n")
}

func decodeRoutes(c *Config, routes value) {
	items, _ := routes.list()
	seen := map[netip.Prefix]bool{}
	for _, v := range items {
		var r Route
		m := v.mapping(keys(routeFields())...)
		if t := m["to"]; !v.needs(t, "to is missing: the destination, like 0.0.0.0/0") {
		} else if p, ok := t.prefix(); ok {
			if p != p.Masked() {
				t.wrong("%s has bits set after its prefix: write %s", p, p.Masked())
			}
			r.To = p
		}
		if g := m["via"]; !g.missing() {
			if a, ok := g.address(); ok {
				if r.To.IsValid() && a.Is4() != r.To.Addr().Is4() {
					g.wrong("%s is of another IP version than %s: give the gateway an address of the same", a, r.To)
				}
				r.Via = a
			}
		}
		switch l := m["link"]; {
		case !l.missing():
			if s, ok := l.text(); ok {
				r.Link = s
				if c.Link(s) == nil && len(c.Links) > 0 {
					l.wrong("%q is none of the links: one of %s", s, strings.Join(linkNames(c), ", "))
				}
			}
		case len(c.Links) == 1:
			r.Link = c.Links[0].Name
		default:
			v.needs(l, "link is missing: the name of one of the links")
		}
		if l := c.Link(r.Link); l != nil && l.Type == Local {
			v.wrong("the link %s leads to this host: name one that leads to %s", l.Name, r.To)
		} else if l != nil && l.Type == Tundev && r.Via.IsValid() {
			m["via"].wrong("the tundev %s has no neighbours, the host routes what comes out of it: leave via out", l.Name)
		}
		if r.To.IsValid() && seen[r.To] {
			v.wrong("a route to %s stands here already: write one", r.To)
		}
		seen[r.To] = true
		c.Routes = append(c.Routes, r)
	}
}

func linkNames(c *Config) []string {
	var names []string
	for _, l := range c.Links {
		names = append(names, l.Name)
	}
	return names
}
