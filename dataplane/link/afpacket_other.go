//go:build !linux

package link

import (
	"errors"
	"fmt"
	"os"

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

// TakeAFPacket needs Linux.
func TakeAFPacket(p Place, _ []*os.File, _ AFPacketOptions) (Movable, error) {
	return nil, fmt.Errorf("link %s: AF_PACKET: %w", p.Name, errors.ErrUnsupported)
}

// TakeTundev needs Linux.
func TakeTundev(p Place, _ *os.File, _ TundevOptions) (Movable, error) {
	return nil, fmt.Errorf("link %s: TUN device: %w", p.Name, errors.ErrUnsupported)
}
