package host

import (
	"encoding/binary"
	"fmt"
	"net"

	mdl "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// parseNeighbour reads a message of the kernel's about one neighbour: a struct
// ndmsg and its attributes (rtnetlink(7), RTM_NEWNEIGH). The netlink library's own reader trusts the
// lengths in it, and panics where they are wrong.
func parseNeighbour(data []byte) (*netlink.Neigh, error) {
	if len(data) < unix.SizeofNdMsg {
		return nil, fmt.Errorf("message of a neighbour: %d bytes, must be %d at least", len(data), unix.SizeofNdMsg)
	}
	n := &netlink.Neigh{
		Family:    int(data[0]),
		LinkIndex: int(int32(binary.NativeEndian.Uint32(data[4:]))),
		State:     int(binary.NativeEndian.Uint16(data[8:])),
		Flags:     int(data[10]),
		Type:      int(data[11]),
	}
	attrs, err := mdl.NewAttributeDecoder(data[unix.SizeofNdMsg:])
	if err != nil {
		return nil, fmt.Errorf("message of a neighbour: %w", err)
	}
	for attrs.Next() {
		switch attrs.Type() {
		case unix.NDA_DST:
			n.IP = net.IP(attrs.Bytes())
		case unix.NDA_LLADDR:
			n.HardwareAddr = net.HardwareAddr(attrs.Bytes())
		}
	}
	if err := attrs.Err(); err != nil {
		return nil, fmt.Errorf("message of a neighbour: %w", err)
	}
	return n, nil
}
