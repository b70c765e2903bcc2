// Package traffic is what a lab's client and real servers say to each other:
// a small HTTP server that gives its name, hashes uploads and streams
// downloads, a UDP echo, and a client that counts, times and compares.
//
// Everything is deterministic: a stream's bytes follow from its seed, so both
// ends can tell what should have arrived. Read server.go first.
package traffic
