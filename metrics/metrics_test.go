package metrics_test

import (
	"bytes"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"pktdirector/control"
	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/metrics"
	"pktdirector/modes/dr"
	"pktdirector/modes/nat"
	"pktdirector/packet"
	"pktdirector/packet/packettest"
)

var update = flag.Bool("update", false, "write testdata anew")

// known is a state with something of everything.
func known() metrics.State {
	s := metrics.State{Choices: dataplane.Choices{Scheduled: 7, Fallback: 1, Template: 2, None: 3, Overloaded: 4, Abandoned: 5, Reused: 6, Expired: 8}}
	s.Memory.Connections, s.Memory.Templates = 65536, 4096
	s.Started = time.UnixMilli(1_700_000_000_500)
	s.Stats = lvs.Stats{Conns: 30, InPkts: 300, OutPkts: 200, InBytes: 1 << 40, OutBytes: 5}
	s.Snapshot = &control.SnapshotState{File: "/var/lib/pktdirector/pktdirector.snapshot", Written: time.Unix(1700000100, 0), Bytes: 123456, Took: 0.25, Failures: 2}
	s.Table = control.TableState{Connections: 11, Templates: 2, Max: 1000, Evicted: 9}
	s.Services = []control.Service{
		{Protocol: "TCP", VIP: "192.0.2.10", Port: 80, Scheduler: "wlc", Stats: lvs.Stats{Conns: 20, InPkts: 100, OutPkts: 50, InBytes: 1000, OutBytes: 500},
			Destinations: []control.Destination{
				{Address: "10.2.0.11", Port: 8080, Method: "Masq", Weight: 3, Active: 4, InAct: 5, Persistent: 6, Upper: 1000, Lower: 800, Stats: lvs.Stats{Conns: 12, InPkts: 60, OutPkts: 50, InBytes: 600, OutBytes: 500}},
				{Address: "10.2.0.12", Port: 80, Method: "Route", Stats: lvs.Stats{Conns: 8, InPkts: 40, InBytes: 400}},
			}},
		{Protocol: "SCTP", VIP: "2001:db8::10", Port: 5060, Scheduler: "sh", Flags: "sh-port,sh-fallback",
			Destinations: []control.Destination{{Address: "2001:db8:2::11", Port: 5060, Method: "Tunnel", Weight: 1}}},
		{Protocol: "FWM", Mark: 0xabc, Scheduler: "rr", Destinations: []control.Destination{{Address: "10.2.0.11", Method: "Route", Weight: 2, Active: 1}}},
		{Protocol: "FWM", Mark: 0xabc, IPv6: true, Scheduler: "rr", Destinations: []control.Destination{{Address: "2001:db8:2::11", Method: "Route", Weight: 2}}},
	}
	s.Links = []control.LinkState{
		{Name: "eth0", Type: control.AFPacket, MTU: 1500, Counters: map[string]uint64{
			"rx_packets": 1, "rx_bytes": 2, "tx_packets": 3, "tx_bytes": 4, "rx_ring_drops": 5, "rx_truncated": 6, "rx_other_vlan": 7,
			"tx_no_buffer": 8, "tx_too_big": 9, "tx_down": 10, "tx_error": 11, "segmented": 12, "summed": 13}},
		{Name: "eth0", Type: control.AFPacket, MTU: 1496, VLAN: 100, Counters: map[string]uint64{}},
	}
	s.Verdicts = []control.Verdict{{Name: "forwarded", Count: 300}, {Name: "table_full", Count: 1}}
	return s
}

func collector(s metrics.State) *metrics.Collector {
	return metrics.New(metrics.Build{Version: "1.2.3", Revision: "abc", GoVersion: "go1.26"}, func() metrics.State { return s })
}

// gather asks as Prometheus does, and checks each value against its description.
func gather(t testing.TB, s metrics.State) []*dto.MetricFamily {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(collector(s))
	all, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestTheTextOfAKnownState(t *testing.T) {
	var b bytes.Buffer
	for _, f := range gather(t, known()) {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	const file = "testdata/known.txt"
	if *update {
		if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(b.String(), "\n")); diff != "" {
		t.Errorf("(-want +got) go test ./metrics -update writes it anew:\n%s", diff)
	}
}

func TestNamesFollowPrometheussRules(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(collector(known()))
	problems, err := testutil.GatherAndLint(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// What node_exporter shows of the kernel's IPVS, with its labels: from its source,
// collector/ipvs_linux.go.
func TestNodeExportersNames(t *testing.T) {
	const want = `# HELP node_ipvs_backend_connections_active ActiveConn of the real server.
# TYPE node_ipvs_backend_connections_active gauge
node_ipvs_backend_connections_active{local_address="",local_mark="00000ABC",local_port="0",proto="FWM",remote_address="10.2.0.11",remote_port="0"} 1
node_ipvs_backend_connections_active{local_address="",local_mark="00000ABC",local_port="0",proto="FWM",remote_address="2001:db8:2::11",remote_port="0"} 0
node_ipvs_backend_connections_active{local_address="192.0.2.10",local_mark="",local_port="80",proto="TCP",remote_address="10.2.0.11",remote_port="8080"} 4
node_ipvs_backend_connections_active{local_address="192.0.2.10",local_mark="",local_port="80",proto="TCP",remote_address="10.2.0.12",remote_port="80"} 0
node_ipvs_backend_connections_active{local_address="2001:db8::10",local_mark="",local_port="5060",proto="SCTP",remote_address="2001:db8:2::11",remote_port="5060"} 0
`
	if err := testutil.CollectAndCompare(collector(known()), strings.NewReader(want), "node_ipvs_backend_connections_active"); err != nil {
		t.Error(err)
	}
	types := map[string]dto.MetricType{}
	labels := map[string]int{}
	for _, f := range gather(t, known()) {
		types[f.GetName()], labels[f.GetName()] = f.GetType(), len(f.GetMetric()[0].GetLabel())
	}
	for name, of := range map[string]struct {
		t      dto.MetricType
		labels int
	}{
		"node_ipvs_connections_total": {dto.MetricType_COUNTER, 0}, "node_ipvs_incoming_packets_total": {dto.MetricType_COUNTER, 0},
		"node_ipvs_outgoing_packets_total": {dto.MetricType_COUNTER, 0}, "node_ipvs_incoming_bytes_total": {dto.MetricType_COUNTER, 0},
		"node_ipvs_outgoing_bytes_total": {dto.MetricType_COUNTER, 0}, "node_ipvs_backend_connections_active": {dto.MetricType_GAUGE, 6},
		"node_ipvs_backend_connections_inactive": {dto.MetricType_GAUGE, 6}, "node_ipvs_backend_weight": {dto.MetricType_GAUGE, 6},
	} {
		if got, there := types[name]; !there || got != of.t || labels[name] != of.labels {
			t.Errorf("%s: there %v, type %v with %d labels, want %v with %d", name, there, got, labels[name], of.t, of.labels)
		}
	}
}

// Two services by one mark that have one server add up, as in node_exporter.
func TestNodeExportersSum(t *testing.T) {
	s := known()
	s.Services[3].Destinations[0].Address = "10.2.0.11"
	for _, f := range gather(t, s) {
		for _, m := range f.GetMetric() {
			if f.GetName() == "node_ipvs_backend_weight" && m.GetLabel()[1].GetValue() == "00000ABC" && m.GetGauge().GetValue() != 4 {
				t.Errorf("weight %v, want 2 + 2", m)
			}
		}
	}
}

// Too many servers and services are left out and told; those that are shown stay
// the same, and totals are whole.
func TestTheNumberOfSeriesIsBounded(t *testing.T) {
	s := known()
	s.Services = nil
	for i := range metrics.MaxServices + 7 {
		one := control.Service{Protocol: "TCP", VIP: netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}).String(), Port: 80}
		for j := range 6 {
			one.Destinations = append(one.Destinations, control.Destination{Address: fmt.Sprint("10.0.0.", j), Port: 80, Method: "Masq", Upper: 2, Lower: 1})
		}
		s.Services = append(s.Services, one)
	}
	series := map[string]int{}
	total := 0
	values := map[string]float64{}
	for _, f := range gather(t, s) {
		series[f.GetName()] = len(f.GetMetric())
		total += len(f.GetMetric())
		values[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
	}
	all := 6 * (metrics.MaxServices + 7)
	for name, want := range map[string]float64{
		"pktdirector_metrics_omitted_services": 7, "pktdirector_metrics_omitted_servers": float64(all - metrics.MaxServers),
		"pktdirector_services": metrics.MaxServices + 7, "pktdirector_servers": float64(all),
	} {
		if values[name] != want {
			t.Errorf("%s is %v, want %v", name, values[name], want)
		}
	}
	if series["pktdirector_service_info"] != metrics.MaxServices || series["pktdirector_server_info"] != metrics.MaxServers || series["node_ipvs_backend_weight"] != metrics.MaxServers {
		t.Errorf("series %v", series)
	}
	// 100 are for all else: verdicts, links, tables.
	if most := 6*metrics.MaxServices + 15*metrics.MaxServers + 100; total > most {
		t.Errorf("%d time series, more than %d", total, most)
	}
}

// What a director counted: of each service its servers' sums, of all the services'.
func TestSumsAgree(t *testing.T) {
	d := dataplane.New(dataplane.Options{Seed: 1, Forwarders: dataplane.Forwarders{lvs.Masq: nat.Masq{}, lvs.Route: dr.Gateway{}}})
	d.SetLinks([]dataplane.LinkInfo{{Name: "one", MAC: packet.MAC{2}, MTU: 1500}})
	d.SetHost(dataplane.HostTable{Routes: []dataplane.Route{{Dst: netip.MustParsePrefix("0.0.0.0/0")}}})
	service := func(vip string, port uint16, m lvs.Method) lvs.VirtualService {
		s := lvs.VirtualService{ServiceKey: lvs.ServiceKey{Proto: packet.TCP, VIP: packet.MustParseAddr(vip), Port: port}, Scheduler: "rr"}
		for i := range 3 {
			s.Servers = append(s.Servers, lvs.RealServer{ServerKey: lvs.ServerKey{RIP: packet.MustParseAddr(fmt.Sprint("192.0.2.", 11+i)), Port: port}, Method: m, Weight: 1})
		}
		return s
	}
	if err := d.Apply(lvs.Ruleset{Services: []lvs.VirtualService{service("203.0.113.80", 80, lvs.Masq), service("203.0.113.81", 81, lvs.Route)}}); err != nil {
		t.Fatal(err)
	}
	for _, a := range []string{"192.0.2.11", "192.0.2.12", "192.0.2.13", "198.51.100.10"} {
		d.Learn(dataplane.Neighbour{Addr: packet.MustParseAddr(a), MAC: packet.MAC{2, 1}})
	}
	w := d.NewWorker()
	for i := range 100 {
		client := fmt.Sprint("198.51.100.10:", 1000+i)
		vip := "203.0.113.80:80"
		if i%2 == 1 {
			vip = "203.0.113.81:81"
		}
		out := w.Process([]*packet.Packet{packettest.Build(t, packettest.Spec{Src: client, Dst: vip, Flags: packet.SYN})}, time.Second)
		server := fmt.Sprintf("%v:%d", out[0].Flow.Dst, out[0].Flow.DstPort) // with direct routing the VIP: no reply that it knows
		w.Process([]*packet.Packet{packettest.Build(t, packettest.Spec{Src: server, Dst: client, Flags: packet.SYN | packet.ACK})}, time.Second)
	}
	state := metrics.State{Choices: d.Choices()}
	state.Services = control.ServicesOf(d.Status())
	state.Stats, _ = d.Totals()
	for _, v := range d.Verdicts() {
		state.Verdicts = append(state.Verdicts, control.Verdict{Name: v.Name, Count: v.Count})
	}
	sums, ones := map[string]float64{}, map[string]float64{}
	for _, f := range gather(t, state) {
		for _, m := range f.GetMetric() {
			sums[f.GetName()] += m.GetCounter().GetValue()
			for _, l := range m.GetLabel() {
				ones[f.GetName()+" "+l.GetValue()] += m.GetCounter().GetValue()
			}
		}
	}
	for _, name := range []string{"connections_total", "incoming_packets_total", "outgoing_packets_total", "incoming_bytes_total", "outgoing_bytes_total"} {
		total := sums["pktdirector_"+name]
		if total == 0 || sums["pktdirector_service_"+name] != total || sums["pktdirector_server_"+name] != total || sums["node_ipvs_"+name] != total {
			t.Errorf("%s: servers %v, services %v, all %v, node_exporter's %v", name, sums["pktdirector_server_"+name], sums["pktdirector_service_"+name], total, sums["node_ipvs_"+name])
		}
	}
	if n := sums["pktdirector_incoming_packets_total"]; n != 100 || ones["pktdirector_packets_total forwarded"] != n {
		t.Errorf("%v requests counted, %v forwarded, 100 sent", n, ones["pktdirector_packets_total forwarded"])
	}
	if n := sums["pktdirector_outgoing_packets_total"]; n == 0 || ones["pktdirector_packets_total replied"] != n {
		t.Errorf("%v replies counted, %v forwarded", n, ones["pktdirector_packets_total replied"])
	}
	if n := sums["pktdirector_scheduler_decisions_total"]; n != 100 || n != sums["pktdirector_connections_total"] {
		t.Errorf("%v decisions, %v connections", n, sums["pktdirector_connections_total"])
	}
	if sums["pktdirector_packets_total"] != 200 {
		t.Errorf("%v packets have verdicts, 200 were sent", sums["pktdirector_packets_total"])
	}
}
