//go:build !linux

package link

import (
	"errors"
	"fmt"

	"pktdirector/dataplane"
)

// OpenAFPacket needs Linux.
func OpenAFPacket(name string, o AFPacketOptions) (dataplane.Link, error) {
	return nil, fmt.Errorf("link %s: AF_PACKET: %w", name, errors.ErrUnsupported)
}

// OpenTundev needs Linux.
func OpenTundev(name string, o TundevOptions) (dataplane.Link, error) {
	return nil, fmt.Errorf("link %s: TUN device: %w", name, errors.ErrUnsupported)
}
