// Package conntrack remembers which destination each connection was given.
//
// A Table is an array of shards, each behind its own lock. The shard is chosen
// by the client's address and port, which both directions of a connection know,
// so that a request and its reply meet under one lock whatever worker handles
// them. Entries hold no pointers and live in pages that never move: the garbage
// collector has nothing to scan and growth copies no entry. Timers are a
// hierarchical wheel per shard.
//
// Read Table first, then Conn; state.go has the TCP state tables as data.
package conntrack
