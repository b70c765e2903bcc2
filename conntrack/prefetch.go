//go:build amd64 || arm64

package conntrack

import "unsafe"

// prefetch asks the processor for the two cache lines of an entry, without reading
// it. Go has no word for that.
//
//go:noescape
func prefetch(entry unsafe.Pointer)
