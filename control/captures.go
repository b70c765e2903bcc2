package control

import (
	"encoding/binary"
	"slices"
	"time"

	"pktdirector/capture/filter"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// PacketEvents are packets as they came and as they left: captures are of them, and no
// stream of events is.
const PacketEvents EventKind = 1 << 16

// Bounds of captures.
const (
	maxCaptures     = 4
	captureWaiting  = 1 << 14  // packets that wait for one who captures
	captureWeight   = 16 << 20 // bytes of them
	recordOverhead  = 512      // bytes that a packet takes beside its own
	headersCompared = 128      // bytes of what came that are kept for what left
)

// PacketRecord is a packet as it came, or as it left, as the data plane kept it. It is
// valid for the call.
type PacketRecord struct {
	ID             uint64 // the same for what came and what left of it; 0: made by the director
	Out            bool
	Link           string
	Raw            bool // a link without Ethernet headers
	SrcMAC, DstMAC packet.MAC
	EtherType      packet.EtherType
	Tagged         bool
	VLAN           uint16 // 802.1Q TCI
	Data           []byte // from the network layer on; may be cut
	Len            int    // bytes there were from there on
	GSOSize        uint16

	Verdict, Means string // "" where there is none yet
	Dropped        bool
	// Of packets of connections:
	Known         bool
	Request       bool
	Service       lvs.ServiceKey
	Server        lvs.ServerKey
	Method        string
	Before, After string // states
	Decision      uint64
}

// header is how long the link-layer header is, in bytes.
func (r *PacketRecord) header() int {
	const ethernet, tag = 14, 4
	switch {
	case r.Raw:
		return 0
	case r.Tagged:
		return ethernet + tag
	}
	return ethernet
}

// appendFrame appends the frame, its link-layer header in front, at most snap bytes.
func (r *PacketRecord) appendFrame(b []byte, snap int) []byte {
	at := len(b)
	if !r.Raw {
		b = append(append(b, r.DstMAC[:]...), r.SrcMAC[:]...)
		if r.Tagged {
			b = binary.BigEndian.AppendUint16(b, uint16(packet.EtherVLAN))
			b = binary.BigEndian.AppendUint16(b, r.VLAN)
		}
		b = binary.BigEndian.AppendUint16(b, uint16(r.EtherType))
	}
	b = append(b, r.Data[:min(len(r.Data), max(0, snap-r.header()))]...)
	return b[:min(len(b), at+snap)]
}

// matches asks an expression about the packet.
func (r *PacketRecord) matches(f *filter.Filter, p *filter.Packet) bool {
	*p = filter.Packet{
		SrcMAC: r.SrcMAC, DstMAC: r.DstMAC, HasMAC: !r.Raw, EtherType: r.EtherType, Tagged: r.Tagged, VLAN: r.VLAN & 0x0fff,
		Outbound: r.Out, Data: r.Data, Len: r.header() + r.Len,
	}
	return f.Match(p)
}

// PublishPackets hands the packets of a batch to those who capture. Of a packet that an
// expression chooses as it came or as it left, both go to the one who asked. It never waits,
// and keeps nothing of batch.
func (e *Events) PublishPackets(now time.Time, batch []PacketRecord) {
	if e.Wanted()&PacketEvents == 0 {
		return
	}
	var p filter.Packet
	for _, l := range *e.listeners.Load() {
		if l.kinds&PacketEvents == 0 {
			continue
		}
		var ids []uint64
		if f := l.filter.Packets; f != nil {
			for i := range batch {
				if batch[i].ID != 0 && batch[i].matches(f, &p) {
					ids = append(ids, batch[i].ID)
				}
			}
		}
		for i := range batch {
			r := &batch[i]
			if f := l.filter.Packets; f != nil && !slices.Contains(ids, r.ID) && (r.ID != 0 || !r.matches(f, &p)) {
				continue
			}
			l.offerPacket(now.Add(time.Duration(i)), r, batch)
		}
	}
}

// offerPacket queues a copy of a packet, if there is room. Times of a batch are one
// nanosecond apart, so that they say the order.
func (l *listener) offerPacket(now time.Time, r *PacketRecord, batch []PacketRecord) {
	weight := recordOverhead + min(len(r.Data), l.snap)
	if l.weight.Load()+int64(weight) > l.maxWeight || len(l.queue) == cap(l.queue) {
		l.lost.Add(1)
		return
	}
	kept := *r
	frame := r.appendFrame(make([]byte, 0, r.header()+min(len(r.Data), l.snap)), l.snap)
	kept.Data = nil
	var now4, was []byte
	var came bool
	if r.Out && r.ID != 0 {
		now4 = slices.Clone(r.Data[:min(len(r.Data), headersCompared)])
		if i := slices.IndexFunc(batch, func(b PacketRecord) bool { return b.ID == r.ID && !b.Out }); i >= 0 {
			came, was = true, slices.Clone(batch[i].Data[:min(len(batch[i].Data), headersCompared)])
		}
	}
	l.offer(waiting{weight: weight, event: func() Event {
		c := &CapturedPacket{
			Time: now.UnixNano(), ID: kept.ID, Outgoing: kept.Out, Link: kept.Link, Side: kept.side(), Raw: kept.Raw, Data: frame, Length: kept.header() + kept.Len,
		}
		c.Comments = kept.comments(came, was, now4)
		return Event{Time: now, Kind: "packet", Packet: c}
	}})
}

// side is on which side of the director the packet was seen.
func (r *PacketRecord) side() string {
	switch {
	case !r.Known:
		return ""
	case r.Request != r.Out:
		return "client"
	}
	return "server"
}
