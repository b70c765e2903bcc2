// Package lvs holds the words of Linux Virtual Server that every other package
// speaks, and nothing that acts.
//
// # Glossary
//
//   - director: the machine (here: this program) that balances.
//   - virtual service: a VIP, protocol and port balanced over real servers.
//   - real server: what the operator wrote: an address, a port, a forwarding
//     method and a weight. RIP is its address.
//   - destination: a real server's live entry in one virtual service. It
//     counts ActiveConn and InActConn.
//   - VIP, RIP, DIP, CIP: the addresses of the virtual service, a real server,
//     the director and a client.
//   - forwarding method: masquerading (NAT, ipvsadm -m), gatewaying (direct
//     routing, -g) or tunnelling (-i).
//   - ActiveConn: connections in states ESTABLISHED, SYN_SENT, SYN_RECV (and
//     SYNACK). InActConn: all others, UDP included.
//   - quiesce: set a real server's weight to 0, so that it gets no new
//     connections and keeps those it has.
//   - request, reply: the two directions of a connection, seen from the client.
package lvs
