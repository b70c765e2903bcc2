// Package filter reads tcpdump's filter expressions (pcap-filter(7)) and tells which
// packets they choose.
//
// It takes the part of the language that is about addresses, networks, ports,
// protocols, MACs, VLANs, lengths and bytes of headers, and refuses the rest by name.
// Where it takes an expression, it chooses the packets that libpcap's compiler
// chooses, which a test holds against tcpdump; that a tag of a VLAN need not be named
// for what is behind it to be found is the exception.
//
// An expression is looked through packet by packet as it was read; no code for the
// kernel is made of it, since the packets are already here. Read parse.go first.
package filter
