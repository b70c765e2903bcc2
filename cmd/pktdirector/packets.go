package main

import (
	"time"

	"pktdirector/conntrack"
	"pktdirector/control"
	"pktdirector/dataplane"
	"pktdirector/packet"
)

// publishPackets hands the packets of a worker's batch to those who capture.
func publishPackets(to *control.Events, w *dataplane.Worker, now time.Time) {
	if len(w.Packets) == 0 {
		return
	}
	links := w.Links()
	batch := make([]control.PacketRecord, len(w.Packets))
	for i := range w.Packets {
		batch[i] = recordOf(&w.Packets[i], links)
	}
	to.PublishPackets(now, batch)
}

// recordOf is a packet as those who capture are told of it. Its bytes are the worker's.
func recordOf(p *dataplane.PacketRecord, links []dataplane.LinkInfo) control.PacketRecord {
	r := control.PacketRecord{
		ID: p.ID, Out: p.Out, SrcMAC: p.SrcMAC, DstMAC: p.DstMAC, EtherType: p.EtherType, Tagged: p.Tagged, VLAN: p.VLAN,
		Data: p.Data, Len: p.Len, GSOSize: p.GSOSize, Decision: p.Decision, Known: p.Proto != 0,
	}
	if p.Link >= 0 && p.Link < len(links) {
		l := &links[p.Link]
		r.Link, r.Raw = l.Name, l.Layer3
		if p.Out && !l.Layer3 {
			r.SrcMAC = l.MAC // the link puts it there
		}
		if l.VLAN != 0 && !r.Tagged { // the link's own tag, which the engine does not see
			r.Tagged, r.VLAN = true, l.VLAN
		}
	}
	if !p.Waits && p.Verdict != 0 {
		r.Verdict, r.Means, r.Dropped = p.Verdict.String(), p.Verdict.Help(), p.Verdict.Drop()
	}
	if r.EtherType == 0 && len(r.Data) > 0 { // made by the engine, perhaps
		r.EtherType = map[byte]packet.EtherType{4: packet.EtherIPv4, 6: packet.EtherIPv6}[r.Data[0]>>4]
	}
	if r.Known {
		r.Request, r.Service, r.Server, r.Method = p.Direction == conntrack.Request, p.Service, p.Server, p.Method.String()
		r.Before, r.After = p.Before.String(), p.After.String()
	}
	return r
}
