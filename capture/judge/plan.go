package judge

import (
	"slices"

	"pktdirector/packet"
)

// Plan is a service as a director would have to be given it to do what the capture
// shows, as far as that tells.
type Plan struct {
	Protocol   packet.Proto
	VIP        packet.Addr
	Port       uint16
	Mode       string // nat, dr, tun or fullnat
	Tunnel     string // ipip, gre or gue
	Scheduler  string
	Persistent bool
	Servers    []PlannedServer // in the order in which they are added
}

// PlannedServer is a real server of a Plan.
type PlannedServer struct {
	Address packet.Addr // zero: not known
	Port    uint16
	Weight  int
}

// plans makes the plans of all services whose servers are known.
func (f *inference) plans() []Plan {
	var out []Plan
	for _, p := range f.picksOf() {
		c := p.list[0].conn
		plan := Plan{Protocol: p.service.proto, VIP: p.service.addr, Port: p.service.port, Mode: string(f.modeOf(c)), Scheduler: "rr"}
		if c.kind == tunMode {
			plan.Tunnel = c.paths[c.out].tunnel.String()
		}
		plan.Persistent = p.sticky()
		free := slices.DeleteFunc(slices.Clone(p.list), func(k pick) bool { return plan.Persistent && k.bound })
		order, weights := f.cold(p, free, &plan)
		for _, i := range slices.Backward(order) { // the newest is first in a director's list
			plan.Servers = append(plan.Servers, PlannedServer{p.servers[i].addr, p.servers[i].port, weights[i]})
		}
		out = append(out, plan)
	}
	return out
}

// cold finds a scheduler, an order and weights with which a director that has just
// begun picks as was picked.
func (f *inference) cold(p *picks, free []pick, plan *Plan) (order, weights []int) {
	n := len(p.servers)
	one := slices.Repeat([]int{1}, n)
	if n > explainServers || n == 0 {
		n = min(n, explainServers+1)
		for i := range n {
			order = append(order, i)
		}
		return order, one
	}
	free = free[:min(len(free), explainPicks)]
	for _, name := range []string{"rr", "wrr", "lc", "wlc", "sed", "nq", "sh", "dh"} {
		all := [][]int{one}
		if name != "rr" && name != "lc" && name != "dh" && len(free) > 0 {
			all = p.weights(free)
		}
		for _, w := range all {
			for o := range orders(n) {
				if p.replay(name, o, w, 0, free) {
					plan.Scheduler = name
					return o, w
				}
			}
		}
	}
	for o := range orders(n) {
		return o, one
	}
	return nil, nil
}
