package capture

import (
	"time"

	"pktdirector/packet"
)

// Record is one packet of a capture file. Reader.Next fills it.
type Record struct {
	Time   int64  // ns since 1970-01-01 UTC, exact; of formats with finer times, cut to ns
	File   int    // index in Reader.Files
	Number uint64 // 1-based number of the packet in its file, skipped ones included. Wireshark numbers custom blocks, too

	// Interface is where it was captured. It stays valid.
	Interface *Interface

	Data      []byte // what was captured; valid until the next call of Next
	OrigLen   int    // bytes on the wire, at least len(Data)
	Truncated bool   // Data is not all of the packet

	Comments []string // of the packet (pcapng opt_comment)
	PacketID uint64   // pcapng epb_packetid: the same packet on another interface has the same; 0: none
	Dropped  uint64   // pcapng epb_dropcount: packets lost between the one before and this one

	LinkLayer
}

// When returns the record's time, in UTC.
func (r *Record) When() time.Time { return time.Unix(0, r.Time).UTC() }

// Payload returns the network-layer packet, padding of the link layer included.
// It is valid as long as Data.
func (r *Record) Payload() []byte { return r.Data[r.Offset:] }

// LinkLayer is what a packet's link-layer header says.
type LinkLayer struct {
	SrcMAC, DstMAC packet.MAC
	HasSrc, HasDst bool // whether SrcMAC and DstMAC are known

	// EtherType is of the payload, behind all tags. 0: unknown, or none, as of
	// 802.3 frames with an LLC header.
	EtherType packet.EtherType
	Offset    int // where the payload begins in Data

	Direction Direction
	Kind      Kind

	// IfIndex is the kernel's number of the network interface, which Linux
	// cooked captures v2 of all interfaces have. 0: not known.
	IfIndex uint32

	tags  [maxTags]Tag
	nTags int
}

// maxTags is how many VLAN tags of a frame are read. What is behind more has no
// EtherType but the next tag's.
const maxTags = 4

// Tags returns the packet's VLAN tags, the outermost first.
func (l *LinkLayer) Tags() []Tag { return l.tags[:l.nTags] }

// Tag is an 802.1Q or 802.1ad tag.
type Tag struct {
	Type packet.EtherType // 0x8100, 0x88a8, or an old 0x9100
	TCI  uint16           // priority (3 bits), drop eligible (1), VLAN id (12)
}

// VLAN returns the VLAN id.
func (t Tag) VLAN() uint16 { return t.TCI & 0x0fff }

// Direction is which way a packet went through the interface, where a file says
// so: Linux cooked captures do, pcapng files may (epb_flags).
type Direction uint8

// Directions.
const (
	DirectionUnknown Direction = iota
	Incoming
	Outgoing
)

// String returns the direction in lower case.
func (d Direction) String() string {
	switch d {
	case Incoming:
		return "incoming"
	case Outgoing:
		return "outgoing"
	}
	return "unknown"
}

// Kind is for whom the link layer delivered a packet.
type Kind uint8

// Kinds of packets. Broadcasts and multicasts are also known by the destination
// MAC; the others only where the file says so.
const (
	KindUnknown Kind = iota
	ToUs             // for the capturing host
	Broadcast
	Multicast
	OtherHost // for another host, seen through promiscuity
)

// Interface is where packets were captured: one of a pcapng file's, or the only
// one of a pcap file.
type Interface struct {
	File        int    // index in Reader.Files
	Section     int    // of a pcapng file, from 0
	Index       int    // in its section, from 0
	Name        string // such as eth0; a pcap file does not tell
	Description string
	OS          string // that captured
	Filter      string // that captured packets had to match
	LinkType    LinkType
	Snaplen     uint32 // bytes of a packet that were captured at most; 0: all. Files do not always keep to it

	clock clock

	queue queue // of reorder
}
