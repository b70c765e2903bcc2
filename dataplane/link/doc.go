// Package link moves packets between the director and the world.
//
// Four kinds of link exist: AFPacket reads and writes a network interface
// through an AF_PACKET socket, Tundev is a TUN device that the host routes
// packets into, Pipe is a pair in memory for tests, and Capture reads a capture
// file. Run joins links and a director.
//
// A link keeps link-layer headers and offloads to itself: what it hands out
// begins at the IP or ARP header, with unfinished checksums and super-frames
// marked as such, and what it is given to send it segments and finishes as far
// as its interface cannot.
//
// Start with run.go, then pipe.go, the simplest link.
package link
