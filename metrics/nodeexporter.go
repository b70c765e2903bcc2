package metrics

import (
	"strconv"
	"strings"

	"pktdirector/control"
)

// describeNode describes what node_exporter's collector "ipvs" shows, by its names
// and labels: totals without labels, servers by service and address. Services by the
// same mark for both IP versions have the same labels there, and are added up.
func (c *Collector) describeNode() {
	labels := []string{"local_address", "local_port", "remote_address", "remote_port", "proto", "local_mark"}
	c.nodeTotal = c.traffic("node_ipvs_", "of all services", nil)
	c.nodeActive = c.describe("node_ipvs_backend_connections_active", "ActiveConn of the real server.", labels)
	c.nodeInactive = c.describe("node_ipvs_backend_connections_inactive", "InActConn of the real server.", labels)
	c.nodeWeight = c.describe("node_ipvs_backend_weight", "Weight of the real server.", labels)
}

// nodeServers are real servers by their labels there.
type nodeServers struct {
	order []string
	by    map[string]*nodeServer
}

type nodeServer struct {
	labels                   []string
	active, inactive, weight int64
}

func newNodeServers() *nodeServers { return &nodeServers{by: map[string]*nodeServer{}} }

// add adds a server of the service with these labels.
func (n *nodeServers) add(service []string, d *control.Destination) {
	labels := []string{service[0], service[1], d.Address, strconv.Itoa(int(d.Port)), service[2], service[3]}
	key := strings.Join(labels, " ")
	s := n.by[key]
	if s == nil {
		s = &nodeServer{labels: labels}
		n.by[key], n.order = s, append(n.order, key)
	}
	s.active, s.inactive, s.weight = s.active+d.Active, s.inactive+d.InAct, s.weight+d.Weight
}

func (c *Collector) collectNode(e emitter, n *nodeServers) {
	for _, key := range n.order {
		s := n.by[key]
		e.gauge(c.nodeActive, float64(s.active), s.labels...)
		e.gauge(c.nodeInactive, float64(s.inactive), s.labels...)
		e.gauge(c.nodeWeight, float64(s.weight), s.labels...)
	}
}
