// Package judge reads what was captured on a director, one packet after another,
// and says what the director did: which method it forwards by, which VIPs,
// services and real servers there are, which server each connection got, and what
// went wrong. It needs no configuration, and does not care whose director it was.
//
// A connection is seen up to twice: as it comes in, towards the VIP, and as it is
// sent on. Each way it is seen in is a path: the address it goes to, the tunnel it
// is in and the MAC it is sent to. Packets are only filed here, in bounded tables
// (table.go, conn.go, neigh.go); what paths mean is worked out when all is read
// (infer.go), since which of two comes in and which goes out is often told by the
// other connections. codes.go lists what can be found.
//
// Offloads are not held against anybody: frames larger than the MTU are what a
// receiving host joined, unfinished checksums are finished by the device, and no
// checksum is looked at.
package judge
