package lvs

import (
	"fmt"

	"pktdirector/packet"
)

// TunnelType is how tunnelling encapsulates (ipvsadm --tun-type).
type TunnelType uint8

// The kernel's three kinds of tunnels.
const (
	IPIP TunnelType = iota // an outer IP header and nothing else (RFC 2003, RFC 2473)
	GUE                    // IP in UDP by generic UDP encapsulation
	GRE                    // generic routing encapsulation (RFC 2784)
)

// String returns the word that ipvsadm uses.
func (t TunnelType) String() string {
	switch t {
	case IPIP:
		return "ipip"
	case GUE:
		return "gue"
	case GRE:
		return "gre"
	}
	return fmt.Sprintf("tunnel-%d", uint8(t))
}

// ParseTunnelType reads what String writes.
func ParseTunnelType(s string) (TunnelType, error) {
	for t := IPIP; t <= GRE; t++ {
		if s == t.String() {
			return t, nil
		}
	}
	return 0, fmt.Errorf("tunnel type %q is not known: write ipip, gue or gre", s)
}

// TunnelChecksum says whether a tunnel's own header has a checksum.
type TunnelChecksum uint8

// What a GRE or GUE tunnel does about checksums. RemoteChecksum is for GUE
// only: the sender may leave the inner checksum to the far end. Packets whose inner
// checksum is complete travel as with Checksum.
const (
	NoChecksum     TunnelChecksum = iota // ipvsadm --tun-nocsum
	Checksum                             // --tun-csum
	RemoteChecksum                       // --tun-remcsum
)

// String returns the word of ipvsadm's option: nocsum, csum or remcsum.
func (c TunnelChecksum) String() string {
	switch c {
	case NoChecksum:
		return "nocsum"
	case Checksum:
		return "csum"
	case RemoteChecksum:
		return "remcsum"
	}
	return fmt.Sprintf("checksum-%d", uint8(c))
}

// ParseTunnelChecksum reads what String writes.
func ParseTunnelChecksum(s string) (TunnelChecksum, error) {
	for c := NoChecksum; c <= RemoteChecksum; c++ {
		if s == c.String() {
			return c, nil
		}
	}
	return 0, fmt.Errorf("tunnel checksum %q is not known: write nocsum, csum or remcsum", s)
}

// TunnelInfo is the tunnel to a real server of the tunnelling method. The zero
// TunnelInfo is IPIP.
type TunnelInfo struct {
	Type     TunnelType
	Checksum TunnelChecksum // of GRE and GUE
	Port     uint16         // UDP port of GUE on the real server; 0 for the others
}

// Validate reports what contradicts the tunnel's type.
func (t TunnelInfo) Validate() error {
	switch {
	case t.Type > GRE:
		return fmt.Errorf("tunnel type %d is not known: ipip, gue and gre are", t.Type)
	case t.Checksum > RemoteChecksum:
		return fmt.Errorf("tunnel checksum %d is not known: nocsum, csum and remcsum are", t.Checksum)
	case t.Type == GUE && t.Port == 0:
		return fmt.Errorf("a gue tunnel needs the UDP port at which the real server takes it: 1 to 65535")
	case t.Type != GUE && t.Port != 0:
		return fmt.Errorf("tunnel port %d: only gue tunnels have a port, %s has none", t.Port, t.Type)
	case t.Type == IPIP && t.Checksum != NoChecksum:
		return fmt.Errorf("tunnel checksum %s: an ipip tunnel has none: leave it out", t.Checksum)
	case t.Type == GRE && t.Checksum == RemoteChecksum:
		return fmt.Errorf("tunnel checksum remcsum: only gue tunnels can have it: write csum or nocsum")
	}
	return nil
}

// HeaderLen returns the length in bytes of all that a tunnel to a real server puts
// in front of a packet: the outer IP header, and that of GRE, or those of UDP and
// GUE.
func (t TunnelInfo) HeaderLen(server packet.Addr) int {
	n := packet.IPv6HeaderLen
	if server.Is4() {
		n = packet.IPv4HeaderLen
	}
	switch {
	case t.Type == GUE:
		return n + packet.UDPHeaderLen + packet.GUEHeaderLen
	case t.Type == GRE && t.Checksum != NoChecksum:
		return n + packet.GREHeaderLen + packet.GREChecksumLen
	case t.Type == GRE:
		return n + packet.GREHeaderLen
	}
	return n
}

// pack and unpackTunnel keep a TunnelInfo in one atomic word.
func (t TunnelInfo) pack() uint32 {
	return uint32(t.Type)<<24 | uint32(t.Checksum)<<16 | uint32(t.Port)
}

func unpackTunnel(n uint32) TunnelInfo {
	return TunnelInfo{TunnelType(n >> 24), TunnelChecksum(n >> 16 & 0xff), uint16(n)}
}
