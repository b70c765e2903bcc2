// Package dataplane is the director's engine: packets with what their link
// knew of them, the time and a seed go in; packets, verdicts and decisions come
// out. Nothing here reads a clock, opens a socket or starts a goroutine, so
// live forwarding, replay, tests and fuzzing are the same engine behind
// different links and clocks. The links themselves are in dataplane/link.
//
// Read director.go first: Worker.step is the way of a packet.
package dataplane
