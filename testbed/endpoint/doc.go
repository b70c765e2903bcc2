// Package endpoint is the far end of a tunnel for real servers whose kernel has
// none: it takes the packets that a director of the tunnelling method sends,
// unwraps them, and hands them to the host's own kernel, which has the VIP, through
// a TUN device, or a pair of interfaces where none can be opened.
//
// It unwraps IP in IP, GRE and GUE over IPv4 and IPv6, with IPv4 or IPv6 inside,
// checks the tunnels' own checksums, and puts fragments together; replies do not pass
// it. Read unwrap.go first.
package endpoint
