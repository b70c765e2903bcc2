package metrics

import (
	"fmt"
	"slices"
	"strconv"

	"pktdirector/control"
	"pktdirector/lvs"
)

// collectServices shows services in the director's own order, and their servers
// oldest first, up to the bounds: what is added later hides no server of its service.
func (c *Collector) collectServices(e emitter, services []control.Service) {
	all, shown := 0, 0
	n := newNodeServers()
	for i := range services {
		s := &services[i]
		all += len(s.Destinations)
		if i >= MaxServices {
			continue
		}
		labels := serviceOf(s)
		e.gauge(c.serviceInfo, 1, append(labels, s.Scheduler, s.Flags)...)
		e.traffic(c.service, s.Stats, true, labels...)
		for _, d := range slices.Backward(s.Destinations) {
			if shown == MaxServers {
				break
			}
			shown++
			c.collectServer(e, labels, &d)
			n.add(labels, &d)
		}
	}
	e.gauge(c.services, float64(len(services)))
	e.gauge(c.servers, float64(all))
	e.gauge(c.omittedServices, float64(max(0, len(services)-MaxServices)))
	e.gauge(c.omittedServers, float64(all-shown))
	c.collectNode(e, n)
}

func (c *Collector) collectServer(e emitter, service []string, d *control.Destination) {
	labels := append(service[:len(service):len(service)], d.Address, strconv.Itoa(int(d.Port)))
	e.gauge(c.serverInfo, 1, append(labels, d.Method)...)
	e.gauge(c.active, float64(d.Active), labels...)
	e.gauge(c.inactive, float64(d.InAct), labels...)
	e.gauge(c.weight, float64(d.Weight), labels...)
	e.gauge(c.persistent, float64(d.Persistent), labels...)
	if d.Upper != 0 {
		e.gauge(c.upper, float64(d.Upper), labels...)
	}
	if d.Lower != 0 {
		e.gauge(c.lower, float64(d.Lower), labels...)
	}
	e.traffic(c.server, d.Stats, seesReplies(d), labels...)
}

// seesReplies reports whether the director sees what the server answers, or has:
// the server may have had another method.
func seesReplies(d *control.Destination) bool {
	return d.Method != lvs.Route.String() && d.Method != lvs.Tunnel.String() || d.Stats.OutPkts != 0
}

// serviceOf returns the values of serviceLabels, with room for no more.
func serviceOf(s *control.Service) []string {
	family, mark := "ipv4", ""
	if s.IPv6 || s.Mark == 0 && isIPv6(s.VIP) {
		family = "ipv6"
	}
	if s.Mark != 0 {
		mark = fmt.Sprintf("%08X", s.Mark) // as /proc/net/ip_vs has it, and node_exporter from there
	}
	labels := []string{s.VIP, strconv.Itoa(int(s.Port)), s.Protocol, mark, family}
	return labels[:len(labels):len(labels)]
}

func isIPv6(addr string) bool {
	for i := range len(addr) {
		if addr[i] == ':' {
			return true
		}
	}
	return false
}
