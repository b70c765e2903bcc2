package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"pktdirector/control"
	"pktdirector/dataplane"
)

// Bounds of what one answer shows. Each service has 8 time series at most, each
// server 14, those under node_exporter's names included.
const (
	MaxServices = 500
	MaxServers  = 2000
)

// State is what one answer shows.
type State struct {
	control.Status
	Choices dataplane.Choices
	// Memory is what the tables take, in bytes.
	Memory struct{ Connections, Templates uint64 }
}

// Build is which program runs.
type Build struct {
	Version   string `json:"version"`
	Revision  string `json:"revision,omitempty"` // of the source, where the build knew it
	GoVersion string `json:"go"`
}

// Collector turns a director's state into metrics. It implements
// prometheus.Collector.
type Collector struct {
	read  func() State
	build Build
	all   []*prometheus.Desc

	info, start, services, servers, omittedServices, omittedServers *prometheus.Desc

	total, service, server                        traffic
	serviceInfo, serverInfo                       *prometheus.Desc
	active, inactive, weight, persistent          *prometheus.Desc
	upper, lower                                  *prometheus.Desc
	packets, decisions, overload                  *prometheus.Desc
	abandoned, reopened                           *prometheus.Desc
	entries, limit, memory, evictions             *prometheus.Desc
	snapshotTime, snapshotBytes                   *prometheus.Desc
	snapshotTook, snapshotFailures                *prometheus.Desc
	received, receivedBytes, sent, sentBytes, mtu *prometheus.Desc
	notReceived, notSent, segmented, summed       *prometheus.Desc
	otherVLAN                                     *prometheus.Desc
	nodeTotal                                     traffic
	nodeActive, nodeInactive, nodeWeight          *prometheus.Desc
}

// traffic describes what ipvsadm --stats shows, of one thing or another.
type traffic struct{ conns, inPkts, outPkts, inBytes, outBytes *prometheus.Desc }

// Labels of services and servers. Those that node_exporter has, too, have the
// same names and values there, so that both can be joined.
func serviceLabels(more ...string) []string {
	return append([]string{"local_address", "local_port", "proto", "local_mark", "family"}, more...)
}

func serverLabels(more ...string) []string {
	return append(serviceLabels("remote_address", "remote_port"), more...)
}

// New returns a collector of what read returns. read may be called from several
// goroutines.
func New(build Build, read func() State) *Collector {
	c := &Collector{read: read, build: build}
	own := func(name, help string, labels ...string) *prometheus.Desc {
		return c.describe("pktdirector_"+name, help, labels)
	}
	c.info = own("build_info", "Which program runs: always 1.", "version", "revision", "goversion")
	c.start = own("start_time_seconds", "When the director started, in seconds since 1970.")
	c.services = own("services", "Virtual services.")
	c.servers = own("servers", "Real servers, once for each service that they are in.")
	c.omittedServices = own("metrics_omitted_services", "Services that are left out here: too many.")
	c.omittedServers = own("metrics_omitted_servers", "Real servers that are left out here: too many.")

	c.total = c.traffic("pktdirector_", "of all services, removed ones too", nil)
	c.service = c.traffic("pktdirector_service_", "of the service", serviceLabels())
	c.server = c.traffic("pktdirector_server_", "of the real server in the service", serverLabels())
	c.serviceInfo = own("service_info", "How the service is configured: always 1.", serviceLabels("scheduler", "flags")...)
	c.serverInfo = own("server_info", "How the real server is reached: always 1.", serverLabels("method")...)
	c.active = own("server_active_connections", "ActiveConn of the real server.", serverLabels()...)
	c.inactive = own("server_inactive_connections", "InActConn of the real server.", serverLabels()...)
	c.weight = own("server_weight", "Weight of the real server; 0: quiesced.", serverLabels()...)
	c.persistent = own("server_persistent_clients", "Templates that bind clients to the real server.", serverLabels()...)
	c.upper = own("server_upper_threshold", "Connections at which the real server gets no new ones; only where it is set.", serverLabels()...)
	c.lower = own("server_lower_threshold", "Connections below which it gets new ones again; only where it is set.", serverLabels()...)

	c.packets = own("packets_total", "Packets by what became of them; each has one verdict.", "verdict")
	c.decisions = own("scheduler_decisions_total", "New connections by what chose their server: scheduler, fallback (another place of the hash table), template, or none was available.", "by")
	c.overload = own("scheduler_overload_skips_total", "Decisions that left a server out because it was over its upper threshold.")
	c.abandoned = own("templates_abandoned_total", "Clients that got another server than their template's.")
	c.reopened = own("connections_reopened_total", "Connections that began anew on an entry that was there, by the setting that let them.", "setting")

	c.entries = own("table_entries", "Entries of the tables of connections and of templates.", "table")
	c.limit = own("table_limit_entries", "Most entries of each table (conn_max).", "table")
	c.memory = own("table_memory_bytes", "Memory of each table.", "table")
	c.evictions = own("table_evictions_total", "Half-open and finished entries that made way for new ones.")

	c.snapshotTime = own("snapshot_timestamp_seconds", "When the last snapshot was written, in seconds since 1970.")
	c.snapshotBytes = own("snapshot_size_bytes", "Size of the last snapshot.")
	c.snapshotTook = own("snapshot_duration_seconds", "Time that the last snapshot took.")
	c.snapshotFailures = own("snapshot_failures_total", "Snapshots that could not be written.")

	link := []string{"link", "vlan"}
	c.received = own("link_received_packets_total", "Packets that the link received.", link...)
	c.receivedBytes = own("link_received_bytes_total", "Bytes that the link received.", link...)
	c.sent = own("link_sent_packets_total", "Frames that the link handed to the kernel.", link...)
	c.sentBytes = own("link_sent_bytes_total", "Bytes that the link handed to the kernel.", link...)
	c.notReceived = own("link_receive_drops_total", "Frames that were lost on receipt: the ring was full, or held them in part (truncated).", "link", "vlan", "reason")
	c.otherVLAN = own("link_other_vlan_packets_total", "Frames of a VLAN that is not the link's.", link...)
	c.notSent = own("link_send_drops_total", "Frames that the link did not send, by reason.", "link", "vlan", "reason")
	c.segmented = own("link_segmented_total", "Super-frames that were cut in software.", link...)
	c.summed = own("link_checksums_total", "Checksums that were finished in software.", link...)
	c.mtu = own("link_mtu_bytes", "MTU of the link.", link...)
	c.describeNode()
	return c
}

// describe makes a description and remembers it.
func (c *Collector) describe(name, help string, labels []string) *prometheus.Desc {
	d := prometheus.NewDesc(name, help, labels, nil)
	c.all = append(c.all, d)
	return d
}

// traffic describes five counters.
func (c *Collector) traffic(prefix, of string, labels []string) traffic {
	one := func(name, help string) *prometheus.Desc { return c.describe(prefix+name, help+" "+of+".", labels) }
	return traffic{
		conns:    one("connections_total", "Connections"),
		inPkts:   one("incoming_packets_total", "Packets of clients"),
		outPkts:  one("outgoing_packets_total", "Packets of real servers that the director saw,"),
		inBytes:  one("incoming_bytes_total", "Bytes of clients"),
		outBytes: one("outgoing_bytes_total", "Bytes of real servers that the director saw,"),
	}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range c.all {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	s := c.read()
	e := emitter{to}
	e.gauge(c.info, 1, c.build.Version, c.build.Revision, c.build.GoVersion)
	e.gauge(c.start, float64(s.Started.UnixMilli())/1000)
	c.collectServices(e, s.Services)
	e.traffic(c.total, s.Stats, true)
	for _, v := range s.Verdicts {
		e.counter(c.packets, v.Count, v.Name)
	}
	c.collectChoices(e, s.Choices)
	c.collectTables(e, &s)
	c.collectSnapshot(e, s.Snapshot)
	for _, l := range s.Links {
		c.collectLink(e, &l)
	}
	e.traffic(c.nodeTotal, s.Stats, true)
}

func (c *Collector) collectChoices(e emitter, s dataplane.Choices) {
	e.counter(c.decisions, s.Scheduled, "scheduler")
	e.counter(c.decisions, s.Fallback, "fallback")
	e.counter(c.decisions, s.Template, "template")
	e.counter(c.decisions, s.None, "none")
	e.counter(c.overload, s.Overloaded)
	e.counter(c.abandoned, s.Abandoned)
	e.counter(c.reopened, s.Reused, "conn_reuse_mode")
	e.counter(c.reopened, s.Expired, "expire_nodest_conn")
}

func (c *Collector) collectSnapshot(e emitter, s *control.SnapshotState) {
	if s == nil {
		return
	}
	e.counter(c.snapshotFailures, s.Failures)
	if !s.Written.IsZero() {
		e.gauge(c.snapshotTime, float64(s.Written.UnixMilli())/1000)
		e.gauge(c.snapshotBytes, float64(s.Bytes))
		e.gauge(c.snapshotTook, s.Took)
	}
}

func (c *Collector) collectTables(e emitter, s *State) {
	for _, t := range []struct {
		name    string
		entries int
		memory  uint64
	}{{"connections", s.Table.Connections, s.Memory.Connections}, {"templates", s.Table.Templates, s.Memory.Templates}} {
		e.gauge(c.entries, float64(t.entries), t.name)
		e.gauge(c.limit, float64(s.Table.Max), t.name)
		e.gauge(c.memory, float64(t.memory), t.name)
	}
	e.counter(c.evictions, s.Table.Evicted)
}
