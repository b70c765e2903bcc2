package dataplane

import (
	"pktdirector/conntrack"
	"pktdirector/lvs"
)

// ConnsOfServices is Conns with each entry's service.
func (d *Director) ConnsOfServices(yield func(lvs.ServiceKey, ConnStatus) bool) {
	for _, t := range []*conntrack.Table{d.templates, d.table} {
		t.All(func(c conntrack.Conn) bool {
			return yield(d.dests.Load().all[c.DestID].Service, statusOf(t, &c))
		})
	}
}
