// Package packet holds bytes and what they mean: header offsets, parsing,
// flow keys, checksums (full, incremental, partial) and segmentation.
//
// It knows nothing of services, connections or links. Everything here works
// on a Packet, one network-layer packet in a reusable buffer with headroom in
// front; start reading there, then Parse.
package packet
