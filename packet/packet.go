package packet

// EtherType names the network-layer protocol of a Packet.
type EtherType uint16

// EtherTypes the director handles (IEEE 802 numbers).
const (
	EtherIPv4 EtherType = 0x0800
	EtherARP  EtherType = 0x0806
	EtherVLAN EtherType = 0x8100
	EtherQinQ EtherType = 0x88a8
	EtherIPv6 EtherType = 0x86dd
)

// Headroom is how many bytes a link leaves free in front of every packet it
// reads: room for the largest outer header (40 IPv6 + 8 UDP + 16 GUE), an
// Ethernet header with two tags (22) and a virtio-net header (12), rounded up.
const Headroom = 128

// Class tells for whom the link layer delivered a frame (PACKET_HOST and so
// on in packet(7)).
type Class uint8

// Classes of frames. Only ToUs, Broadcasted and Multicasted are ever handled;
// the others are counted and dropped.
const (
	ToUs        Class = iota // addressed to the link's own MAC, or a link without MACs
	Broadcasted              // link-layer broadcast
	Multicasted              // link-layer multicast
	OtherHost                // another machine's MAC, seen through promiscuity
	Outgoing                 // sent by this host itself
)

// GSOType is the kind of super-frame a Packet is: several segments of
// GSOSize payload bytes that offloads joined into one (virtio 1.2 section
// 5.1.6, "gso_type").
type GSOType uint8

// Kinds of super-frames.
const (
	GSONone  GSOType = iota
	GSOTCPv4         // TCP over IPv4
	GSOTCPv6         // TCP over IPv6
	GSOUDP           // UDP datagrams of GSOSize each (UDP_L4), either family
)

// Packet is one network-layer packet (IPv4, IPv6 or ARP) in a reusable
// buffer, with what its link knew about it and what Parse found in it. The
// bytes are Buf[Start:End]; at least Headroom bytes are free before Start when
// a link hands it over. Nobody keeps a *Packet or its Buf after the call that
// was given it returns: the memory may be a ring slot.
type Packet struct {
	Buf        []byte
	Start, End int

	// Link-layer metadata, set by the link that read the packet and, for
	// the way out, by the director.
	EtherType EtherType
	SrcMAC    MAC
	DstMAC    MAC
	Class     Class
	Link      int    // index of the link it came from, or leaves by
	VLAN      uint16 // 802.1Q TCI (priority and VLAN id); see Tagged
	VLANType  EtherType
	Tagged    bool // the frame carried VLAN; it is not in the bytes
	Truncated bool // the link could not deliver all of it

	// Offload state (virtio-net header).
	//
	// CsumPartial: the transport checksum field holds only the folded,
	// uncomplemented pseudo-header sum, and the sender left the rest to the
	// device: the sum from CsumStart (absolute, in Buf) to End is stored at
	// CsumStart+CsumOffset.
	CsumPartial bool
	CsumOffset  uint16
	CsumStart   int
	GSO         GSOType
	GSOECN      bool   // the super-frame's first segment carries CWR (RFC 3168)
	GSOSize     uint16 // payload bytes a segment

	// What Parse found. Offsets are absolute in Buf; L3 is the packet's own
	// IP header and stays there when an outer header is pushed in front.
	L3, L4   int
	Flow     Flow
	TCPFlags uint8
	Chunk    uint8 // type of the first SCTP chunk; 255: none
	TTL      uint8
	Frag     Fragment
	DF       bool // IPv4 don't-fragment; always true for IPv6

	// Assembled is set on a packet that was put together from fragments.
	Assembled *Assembled

	// Sent is set by Link.Write: whether the link took the packet.
	Sent bool
	// Seen is the packet's number in captures of the director's; 0: none.
	Seen uint64
	// Verdict is the engine's, numbered as in package dataplane.
	Verdict uint8
}

// Fragment tells whether a packet is a piece of a fragmented one.
type Fragment uint8

// Kinds of packets with regard to fragmentation.
const (
	Whole          Fragment = iota
	FirstFragment           // offset 0, more to come: has the ports
	LaterFragment           // offset > 0: has no transport header
	AtomicFragment          // IPv6: a fragment header around a whole packet (RFC 6946)
)

// TCP flags as they stand in byte 13 of the header (RFC 9293 section 3.1).
const (
	FIN uint8 = 1 << iota
	SYN
	RST
	PSH
	ACK
	URG
	ECE
	CWR
)

// Bytes returns the packet, outer header first if one was pushed. The slice
// aliases Buf.
func (p *Packet) Bytes() []byte { return p.Buf[p.Start:p.End] }

// Len returns the packet's length in bytes.
func (p *Packet) Len() int { return p.End - p.Start }

// HeaderLen returns the bytes from Start to the transport payload: all IP
// headers and the TCP or UDP header. It needs a parsed TCP or UDP packet.
func (p *Packet) HeaderLen() int {
	switch p.Flow.Proto {
	case TCP:
		return p.L4 - p.Start + int(p.Buf[p.L4+12]>>4)*4
	case UDP:
		return p.L4 - p.Start + 8
	}
	return p.L4 - p.Start
}

// WireLen returns the length of the largest network-layer packet this one
// becomes on the wire: its own length, or that of one segment of a
// super-frame. Compare this with an MTU, never Len.
func (p *Packet) WireLen() int {
	if p.GSO == GSONone {
		return p.Len()
	}
	return min(p.HeaderLen()+int(p.GSOSize), p.Len())
}

// Push makes room for n bytes of an outer header in front of the packet and
// returns them. It reports false when there is not enough headroom.
func (p *Packet) Push(n int) ([]byte, bool) {
	if p.Start < n {
		return nil, false
	}
	p.Start -= n
	return p.Buf[p.Start : p.Start+n], true
}

// Reset points p at the n bytes that follow headroom in buf and clears all
// metadata.
func (p *Packet) Reset(buf []byte, headroom, n int) {
	*p = Packet{Buf: buf, Start: headroom, End: headroom + n}
}

// CopyFrom makes p an independent copy of q, reusing p's own buffer when it
// is large enough. Anything that keeps a packet beyond the call that brought
// it must copy it: q's bytes may be a ring slot.
func (p *Packet) CopyFrom(q *Packet) {
	buf := p.Buf
	need := Headroom + q.Len()
	if cap(buf) < need {
		buf = make([]byte, need)
	}
	buf = buf[:cap(buf)]
	shift := Headroom - q.Start
	copy(buf[Headroom:], q.Bytes())
	*p = *q
	p.Buf, p.Start, p.End = buf, Headroom, need
	p.L3 += shift
	p.L4 += shift
	p.CsumStart += shift
}
