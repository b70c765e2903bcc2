package metrics

import (
	"strconv"

	"pktdirector/control"
)

// collectLink shows a link. Its counters come by the names of their JSON.
func (c *Collector) collectLink(e emitter, l *control.LinkState) {
	labels := []string{l.Name, strconv.Itoa(int(l.VLAN))}
	labels = labels[:len(labels):len(labels)]
	n := l.Counters
	e.gauge(c.mtu, float64(l.MTU), labels...)
	e.counter(c.received, n["rx_packets"], labels...)
	e.counter(c.receivedBytes, n["rx_bytes"], labels...)
	e.counter(c.sent, n["tx_packets"], labels...)
	e.counter(c.sentBytes, n["tx_bytes"], labels...)
	e.counter(c.notReceived, n["rx_ring_drops"], append(labels, "ring_full")...)
	e.counter(c.notReceived, n["rx_truncated"], append(labels, "truncated")...)
	e.counter(c.otherVLAN, n["rx_other_vlan"], labels...)
	e.counter(c.notSent, n["tx_no_buffer"], append(labels, "no_buffer")...)
	e.counter(c.notSent, n["tx_too_big"], append(labels, "too_big")...)
	e.counter(c.notSent, n["tx_down"], append(labels, "down")...)
	e.counter(c.notSent, n["tx_error"], append(labels, "error")...)
	e.counter(c.segmented, n["segmented"], labels...)
	e.counter(c.summed, n["summed"], labels...)
}
