// Package host deals with the machine the director runs on: it keeps the
// host's own kernel from handling the packets that the director handles
// (Guard), follows the host's routes, addresses and neighbours (Watcher),
// finds what would break forwarding (Check), asks a segment who answers for an
// address (Ask), and steers traffic through a TUN device (Steer).
//
// Nothing here forwards packets, and nothing it changes on the host outlives
// the director: what the kernel does not take back by itself is written to a
// state file first, so that the next start or Cleanup can restore it after a
// kill -9.
//
// Start reading at guard_linux.go.
package host
