package dataplane

import (
	"pktdirector/conntrack"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// PacketRecord is a packet as it came, or as it left: with ObservePackets there is one
// of each. It is valid until the worker's next call.
type PacketRecord struct {
	ID   uint64 // the same for a packet as it came and as it left; 0: made by the director
	Out  bool   // as it left
	Link int    // index

	SrcMAC, DstMAC packet.MAC
	EtherType      packet.EtherType
	VLAN           uint16 // 802.1Q TCI, where Tagged
	Tagged         bool
	Data           []byte // from the network layer on, cut at what SetSnap says
	Len            int    // bytes there were of it
	GSOSize        uint16 // payload bytes a segment, of a super-frame; 0: of none

	// Verdict is the packet's; of one that left it is that of the one that came,
	// TxDropped if the link did not take it. Waits: it waits for a neighbour's
	// answer, and has no verdict yet.
	Verdict Verdict
	Waits   bool

	// Of what came and has a connection; what left has the same where it left in the
	// same call. Proto is 0 where there is none.
	Service             lvs.ServiceKey
	Proto               packet.Proto
	Client, Virtual     packet.Addr
	ClientPort, VIPPort uint16
	Server              lvs.ServerKey
	Method              lvs.Method
	Direction           conntrack.Direction
	Before, After       conntrack.State
	Decision            uint64 // Decision.ID, where the packet led to one
}

// SetSnap says how many bytes of a packet PacketRecord has at most.
func (d *Director) SetSnap(bytes int) { d.snap.Store(int64(bytes)) }

// see keeps a packet. Its unfinished checksum is finished in the copy, where that is
// whole.
func (w *Worker) see(p *packet.Packet, out bool) *PacketRecord {
	n := min(p.Len(), int(w.d.snap.Load()))
	at := len(w.seen)
	w.seen = append(w.seen, p.Bytes()[:n]...)
	data := w.seen[at:len(w.seen):len(w.seen)]
	if p.CsumPartial && n == p.Len() {
		q := *p
		q.Buf, q.Start, q.End, q.CsumStart = data, 0, n, p.CsumStart-p.Start
		packet.FinishChecksum(&q)
	}
	w.Packets = append(w.Packets, PacketRecord{
		ID: p.Seen, Out: out, Link: p.Link, SrcMAC: p.SrcMAC, DstMAC: p.DstMAC, EtherType: p.EtherType, VLAN: p.VLAN, Tagged: p.Tagged,
		Data: data, Len: p.Len(), GSOSize: p.GSOSize,
	})
	return &w.Packets[len(w.Packets)-1]
}

// seeIn keeps a packet that came.
func (w *Worker) seeIn(p *packet.Packet) {
	p.Seen = w.d.seen.Add(1)
	w.see(p, false)
}

// seeVerdict adds what became of the packet that seeIn kept last.
func (w *Worker) seeVerdict(p *packet.Packet, v Verdict) {
	r := &w.Packets[len(w.Packets)-1]
	r.Verdict, r.Waits = v, v == pending
	if w.about.packet != p {
		return
	}
	r.Decision = w.about.decision
	if dest := w.about.dest; dest != nil {
		c := &w.about.conn
		r.Service, r.Proto, r.Client, r.ClientPort, r.Virtual, r.VIPPort = dest.Service, c.Proto, c.Client, c.ClientPort, c.Virtual, c.VirtualPort
		r.Server, r.Method, r.Direction = lvs.ServerKey{RIP: c.Dest, Port: c.DestPort}, c.Method, w.about.dir
		r.Before, r.After = w.about.before, c.State
	}
}

// seeOut keeps what leaves in this batch, with what is known of the packets that came in it.
func (w *Worker) seeOut() {
	came := len(w.Packets)
	next := 0 // most leave in the order in which they came
	for _, p := range w.out {
		r := w.see(p, true)
		for range came {
			from := &w.Packets[next]
			if next++; next == came {
				next = 0
			}
			if p.Seen != 0 && from.ID == p.Seen {
				data, link, src, dst := r.Data, r.Link, r.SrcMAC, r.DstMAC
				kind, vlan, tagged, n, size := r.EtherType, r.VLAN, r.Tagged, r.Len, r.GSOSize
				*r = *from
				r.Out, r.Data, r.Link, r.SrcMAC, r.DstMAC = true, data, link, src, dst
				r.EtherType, r.VLAN, r.Tagged, r.Len, r.GSOSize = kind, vlan, tagged, n, size
				break
			}
		}
	}
}

// seeUnsent notes that the link did not take a packet that left.
func (w *Worker) seeUnsent(p *packet.Packet) {
	for i := range w.Packets {
		if r := &w.Packets[i]; p.Seen != 0 && r.ID == p.Seen {
			r.Verdict = TxDropped
		}
	}
}

// Links are the director's, as it was told of them last.
func (w *Worker) Links() []LinkInfo { return *w.d.links.Load() }
