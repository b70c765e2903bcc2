// Package metrics shows a director's state to Prometheus: what is balanced, what
// became of the packets, how servers were chosen, links and tables. All of it is
// read when it is asked for; nothing is counted here. Begin with collector.go.
//
// Under the names of node_exporter's collector for the kernel's IPVS the same is
// shown as for a kernel's director, so that dashboards go on (nodeexporter.go).
package metrics
