// Package endpoint is the far end of an IPIP tunnel for real servers whose
// kernel has none: it takes the packets that a director of the tunnelling
// method sends, unwraps them, and hands them to the host's own kernel through a
// device that has the VIP: a TUN device, or a pair of interfaces where none
// can be opened.
//
// It unwraps IPv4 in IPv4 (RFC 2003) and nothing else; replies do not pass it.
// Read unwrap.go first.
package endpoint
