// Package nat rewrites packets for masquerading (ipvsadm -m): a request gets
// the real server's address and port for the VIP's, a reply the VIP's for the
// real server's. Checksums are updated incrementally, so that what was damaged
// stays recognisably damaged.
package nat
