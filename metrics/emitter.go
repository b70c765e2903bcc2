package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"pktdirector/lvs"
)

// emitter hands metrics out.
type emitter struct{ to chan<- prometheus.Metric }

func (e emitter) gauge(d *prometheus.Desc, v float64, labels ...string) {
	e.send(d, prometheus.GaugeValue, v, labels)
}

func (e emitter) counter(d *prometheus.Desc, v uint64, labels ...string) {
	e.send(d, prometheus.CounterValue, float64(v), labels)
}

// send hands one value out; one that cannot be shown fails the whole answer with
// its reason.
func (e emitter) send(d *prometheus.Desc, t prometheus.ValueType, v float64, labels []string) {
	m, err := prometheus.NewConstMetric(d, t, v, labels...)
	if err != nil {
		m = prometheus.NewInvalidMetric(d, err)
	}
	e.to <- m
}

// traffic hands five counters out; those of replies only where the director sees
// them.
func (e emitter) traffic(t traffic, s lvs.Stats, replies bool, labels ...string) {
	e.counter(t.conns, s.Conns, labels...)
	e.counter(t.inPkts, s.InPkts, labels...)
	e.counter(t.inBytes, s.InBytes, labels...)
	if replies {
		e.counter(t.outPkts, s.OutPkts, labels...)
		e.counter(t.outBytes, s.OutBytes, labels...)
	}
}
