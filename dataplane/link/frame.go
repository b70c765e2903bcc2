package link

import (
	"encoding/binary"
	"time"

	"pktdirector/dataplane"
	"pktdirector/packet"
)

// Ethernet header sizes in bytes (IEEE 802.3 and 802.1Q).
const (
	etherLen  = 14
	vlanLen   = 4
	vlanIDs   = 0x0fff // the VLAN id in a tag control information
	maxPacket = 65535  // largest IP packet
)

// idle is how long a Read waits for packets before it returns none.
const idle = 25 * time.Millisecond // the contract allows 50

// ours reports whether a frame with this tag belongs to the link.
func ours(info *dataplane.LinkInfo, tagged bool, tci uint16) bool {
	return info.VLAN == 0 || tagged && tci&vlanIDs == info.VLAN
}

// egressTag returns the tag that p leaves with: the link's own VLAN, with the
// packet's priority, or else what the packet says.
func egressTag(info *dataplane.LinkInfo, p *packet.Packet) (tci uint16, kind packet.EtherType, tagged bool) {
	tci, kind, tagged = p.VLAN, p.VLANType, p.Tagged
	if info.VLAN != 0 {
		if !tagged {
			tci = 0
		}
		tci, tagged = tci&^vlanIDs|info.VLAN, true
	}
	if kind == 0 {
		kind = packet.EtherVLAN
	}
	return tci, kind, tagged
}

// classify tells for whom a frame to dst is on a link without a kernel that
// says so.
func classify(info *dataplane.LinkInfo, dst packet.MAC) packet.Class {
	switch {
	case info.Layer3 || dst == info.MAC:
		return packet.ToUs
	case dst == packet.Broadcast:
		return packet.Broadcasted
	case dst.IsMulticast():
		return packet.Multicasted
	}
	return packet.OtherHost
}

// putEthernet writes p's Ethernet header, with its tag if it has one, into the
// front of b and returns its length.
func putEthernet(b []byte, info *dataplane.LinkInfo, p *packet.Packet) int {
	copy(b, p.DstMAC[:])
	copy(b[6:], info.MAC[:])
	n := 12
	if tci, kind, tagged := egressTag(info, p); tagged {
		binary.BigEndian.PutUint16(b[n:], uint16(kind))
		binary.BigEndian.PutUint16(b[n+2:], tci)
		n += vlanLen
	}
	binary.BigEndian.PutUint16(b[n:], uint16(p.EtherType))
	return n + 2
}

// tunnelled reports whether the director pushed an outer header: no interface
// segments or sums behind one.
func tunnelled(p *packet.Packet) bool {
	return p.L3 > p.Start && (p.EtherType == packet.EtherIPv4 || p.EtherType == packet.EtherIPv6)
}

// pieces walks over what a packet becomes on an interface without offloads:
// itself with a finished checksum, or its segments.
type pieces struct {
	seg    packet.Segmenter
	header [packet.MaxSegmentHeader]byte
	whole  *packet.Packet // not handed out yet
	cut    bool
}

// reset begins with p. It reports false for a packet that cannot be sent.
func (c *pieces) reset(p *packet.Packet, count *counters) bool {
	if p.Len() == 0 {
		return false // nothing would be sent
	}
	c.whole, c.cut = nil, p.GSO != packet.GSONone
	if c.cut {
		if c.seg.Reset(p) != nil {
			return false
		}
		count.segmented.Add(1)
		return true
	}
	if p.CsumPartial {
		if !packet.FinishChecksum(p) {
			return false
		}
		count.summed.Add(1)
	}
	c.whole = p
	return true
}

// next returns the next piece, whose bytes are header and payload together. At
// the end both are empty.
func (c *pieces) next() (header, payload []byte) {
	if c.cut {
		return c.seg.Next(c.header[:])
	}
	if c.whole == nil {
		return nil, nil
	}
	payload = c.whole.Bytes()
	c.whole = nil
	return nil, payload
}

// ipEtherType returns the EtherType of a packet that begins at its IP header,
// or 0 when it does not.
func ipEtherType(p *packet.Packet) packet.EtherType {
	if p.Len() > 0 {
		switch p.Buf[p.Start] >> 4 {
		case 4:
			return packet.EtherIPv4
		case 6:
			return packet.EtherIPv6
		}
	}
	return 0
}
