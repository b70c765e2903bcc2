// Package sim plays scenarios: scripts of ipvsadm commands, packets and pauses,
// in virtual time, on a whole director with a small network around it. It
// compares what happens with what a scenario's file records, and can fill in the
// record. docs/scenarios.md is the file format's page.
//
// Read scenario.go for the file, topology.go for the network, scenario_player.go
// for how events are played and scenario_check.go for the comparison.
package sim
